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
// It returns when all replicas know the binding, even if the binding already existed, because the caller may be
// repeating a call whose answer was lost with a replica that crashed.
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

// CreateBindings creates either all or none of up to resource.MaxBatch bindings in
// one group, under the rules of CreateBinding.
func (s *Service) CreateBindings(
	ctx context.Context, parent resource.UID, batch []resource.RoleBinding,
) ([]resource.BoundRole, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, parent); err != nil {
		return nil, err
	}
	if len(batch) == 0 || len(batch) > resource.MaxBatch {
		return nil, fault.Field("requests", "must have 1 to %d bindings", resource.MaxBatch)
	}
	currentTime := s.now()
	var unseen []resource.UID
	for i := range batch {
		batch[i] = batch[i].WholeSeconds()
		prefix := fmt.Sprintf("requests[%d].role_binding.", i)
		if err := s.checkBinding(ctx, parent, batch[i], resource.RoleBinding{}, prefix); err != nil {
			return nil, err
		}
		batch[i].UID, batch[i].CreateTime = parent.NewChild(), currentTime
		unseen = append(unseen, s.hiddenIdentity(ctx, batch[i])...)
	}
	out, err := s.store.InsertBindings(ctx, batch, unseen...)
	if errors.Is(err, fault.AlreadyExists) {
		s.store.AwaitReplicas(ctx)
	}
	s.redactAll(ctx, out)
	return out, err
}

// hiddenIdentity returns the identity of a binding if the caller must not learn whether it exists, and otherwise nil.
func (s *Service) hiddenIdentity(ctx context.Context, b resource.RoleBinding) []resource.UID {
	if s.authz.Require(ctx, resource.IdentityList, b.Identity) == nil {
		return nil
	}
	return []resource.UID{b.Identity}
}

// Redact returns a binding without the description of its identity, unless the caller may see the identity. The caller
// may see their own identity, workloads that they may list, and, if they may list identities in the binding's group,
// people who have joined its organization themselves. The UID remains, because the caller already knows it.
//
// Redact also sets the time and the deactivation that decide the state of the binding.
func (s *Service) Redact(ctx context.Context, b resource.BoundRole) resource.BoundRole {
	_, b.Now = s.store.Clock()
	b.Deactivated = s.authz.Suspended(b.Identity)
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

func (s *Service) redactAll(ctx context.Context, bindings []resource.BoundRole) {
	for i := range bindings {
		bindings[i] = s.Redact(ctx, bindings[i])
	}
}

// checkBinding validates a binding, and checks that the caller may give its role in a group until the binding ends.
// before is the state of the binding before a change, or zero. Errors have prefix before the names of fields.
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
	case b.Identity == group.Root(), slices.Contains(managed, b.Identity): // organizations and roles have UIDs like people
		add("identity_uid", "is the uid of an organization or of a role")
	}
	if b.Role == "" {
		add("role_uid", "is required")
	}
	if b.Role == resource.OwnerRole && !b.Identity.IsRoot() && b.Identity.Root() != group.Root() {
		add("identity_uid", "is a workload of another organization, which can delete it; so it cannot be an owner")
	}
	_, latest := s.store.Clock()
	if err := b.ValidateTimes(before, latest, prefix); err != nil {
		bad = append(bad, fault.From(err).Fields...)
	}
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return s.authz.RequireRole(ctx, group, b.Role, prefix+"role_uid", b.ExpireTime)
}

// forever is the end of a binding that does not end.
var forever time.Time

// mayBind checks that the caller may permanently bind identities to a role in a group.
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
			return fault.Field("identity_uid", "is not an identity that you may list; create a new binding for it")
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
