package iam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// CreateBinding gives an identity a role in a group. The caller needs
// role_bindings.create there, and every capability of the role until the
// binding ends.
//
// It returns when all replicas know of it, also if the binding was there before: the caller
// may repeat one whose answer was lost because a replica has died.
func (s *Service) CreateBinding(
	ctx context.Context, parent resource.UID, b resource.RoleBinding,
) (resource.BoundRole, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, parent); err != nil {
		return resource.BoundRole{}, err
	}
	b = b.WholeSeconds()
	if err := s.checkBinding(ctx, parent, b, resource.RoleBinding{}, ""); err != nil {
		return resource.BoundRole{}, err
	}
	b.UID, b.CreateTime = parent.NewChild(), s.now()
	out, err := s.store.InsertBinding(ctx, b, s.hiddenIdentity(ctx, b)...)
	if errors.Is(err, fault.AlreadyExists) {
		s.store.AwaitReplicas(ctx)
	}
	return s.Redact(ctx, out), err
}

// CreateBindings makes up to resource.MaxBatch bindings in one group, all or
// none, under the rules of CreateBinding.
func (s *Service) CreateBindings(
	ctx context.Context, parent resource.UID, all []resource.RoleBinding,
) ([]resource.BoundRole, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, parent); err != nil {
		return nil, err
	}
	if len(all) == 0 || len(all) > resource.MaxBatch {
		return nil, fault.Field("requests", "must have 1 to %d bindings", resource.MaxBatch)
	}
	now := s.now()
	var unseen []resource.UID
	for i := range all {
		all[i] = all[i].WholeSeconds()
		prefix := fmt.Sprintf("requests[%d].role_binding.", i)
		if err := s.checkBinding(ctx, parent, all[i], resource.RoleBinding{}, prefix); err != nil {
			return nil, err
		}
		all[i].UID, all[i].CreateTime = parent.NewChild(), now
		unseen = append(unseen, s.hiddenIdentity(ctx, all[i])...)
	}
	out, err := s.store.InsertBindings(ctx, all, unseen...)
	if errors.Is(err, fault.AlreadyExists) {
		s.store.AwaitReplicas(ctx)
	}
	s.redactAll(ctx, out)
	return out, err
}

// hiddenIdentity returns the identity of a binding if the caller must not learn whether it exists.
func (s *Service) hiddenIdentity(ctx context.Context, b resource.RoleBinding) []resource.UID {
	if s.authz.Require(ctx, resource.IdentityList, b.Identity) == nil {
		return nil
	}
	return []resource.UID{b.Identity}
}

// Redact returns a binding with as much of its identity as the caller may see: their own, workloads that they
// may list, and, if they may list identities in the binding's organization, people who have joined it
// themselves. Of any other identity only the UID remains, which the caller knew.
//
// It also notes the time, on which the state of the binding depends.
func (s *Service) Redact(ctx context.Context, b resource.BoundRole) resource.BoundRole {
	_, b.Now = s.store.Clock()
	place := b.Identity
	if b.Identity.IsRoot() {
		place = b.Group()
		if c, ok := authz.CallerFrom(ctx); ok && c.Identity == b.Identity && c.Narrowing().IsZero() {
			return b
		}
		if !b.IdentityInfo.Member {
			place = ""
		}
	}
	if place == "" || s.authz.Require(ctx, resource.IdentityList, place) != nil {
		b.IdentityInfo = resource.IdentityInfo{Info: resource.Info{UID: b.Identity}}
	}
	return b
}

func (s *Service) redactAll(ctx context.Context, all []resource.BoundRole) {
	for i := range all {
		all[i] = s.Redact(ctx, all[i])
	}
}

// checkBinding checks that a binding, which was before, is complete and that the caller may make
// it in a group, until its end. prefix is put before the names of fields in errors.
func (s *Service) checkBinding(
	ctx context.Context, group resource.UID, b, before resource.RoleBinding, prefix string,
) error {
	var bad []fault.Violation
	add := func(field, text string) {
		bad = append(bad, fault.Violation{Subject: prefix + field, Description: text})
	}
	switch {
	case b.Identity == "":
		add("identity_uid", "is required")
	case b.Identity == group.Root(), slices.Contains(managed, b.Identity): // root UIDs like those of people
		add("identity_uid", "is the uid of an organization or of a role")
	}
	if b.Role == "" {
		add("role_uid", "is required")
	}
	if b.Role == resource.OwnerRole && !b.Identity.IsRoot() && b.Identity.Root() != group.Root() {
		add("identity_uid", "is a workload of another organization, which can delete it, and so cannot be an owner")
	}
	_, now := s.store.Clock()
	if err := b.ValidateTimes(before, now, prefix); err != nil {
		bad = append(bad, fault.From(err).Fields...)
	}
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return s.authz.RequireRole(ctx, group, b.Role, prefix+"role_uid", b.ExpireTime)
}

// forever is the end of what has none.
var forever time.Time

// mayBind checks that the caller may bind identities to a role in a group, without an end.
func (s *Service) mayBind(ctx context.Context, group, role resource.UID, field string) error {
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, group); err != nil {
		return err
	}
	return s.authz.RequireRole(ctx, group, role, field, forever)
}

// GetBinding returns a binding. The caller needs role_bindings.list on it.
func (s *Service) GetBinding(ctx context.Context, uid resource.UID) (resource.BoundRole, error) {
	b, err := authz.Get(ctx, s.authz, resource.RoleBindingsList, uid, s.store.Binding)
	return s.Redact(ctx, b), err
}

// UpdateBinding applies change to a binding, under the rules of CreateBinding.
// The caller needs role_bindings.update on it.
func (s *Service) UpdateBinding(
	ctx context.Context, uid resource.UID, change func(*resource.RoleBinding) error,
) (resource.BoundRole, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsUpdate, uid); err != nil {
		return resource.BoundRole{}, err
	}
	out, err := s.store.UpdateBinding(ctx, uid, func(b *resource.RoleBinding) error {
		before := *b
		if err := change(b); err != nil {
			return err
		}
		b.UID, b.CreateTime, b.EndTime = before.UID, before.CreateTime, before.EndTime
		*b = b.WholeSeconds()
		if err := s.checkBinding(ctx, uid.Parent(), *b, before, ""); err != nil {
			return err
		}
		if b.Identity != before.Identity && !b.Identity.IsRoot() && s.hiddenIdentity(ctx, *b) != nil {
			return fault.Field("identity_uid", "is not an identity you may list; make a binding of its own for it")
		}
		return nil
	})
	return s.Redact(ctx, out), err
}

// DeleteBinding removes a binding, if it exists. The caller needs role_bindings.delete on it.
func (s *Service) DeleteBinding(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.RoleBindingsDelete, uid, s.store.DeleteBinding)
}

// ListBindings returns a page of the bindings on which the caller holds role_bindings.list.
func (s *Service) ListBindings(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.BoundRole], error) {
	got, err := authz.List(ctx, s.authz, s.pages, iamdb.BindingList, resource.RoleBindingsList, f, p, s.store.Bindings)
	s.redactAll(ctx, got.Items)
	return got, err
}
