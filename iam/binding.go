package iam

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// CreateBinding gives an identity a role in a group. The caller needs
// role_bindings.create there, and every capability of the role.
func (s *Service) CreateBinding(ctx context.Context, parent resource.UID, b resource.RoleBinding) (resource.BoundRole, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, parent); err != nil {
		return resource.BoundRole{}, err
	}
	if err := s.mayGrant(ctx, parent, b, ""); err != nil {
		return resource.BoundRole{}, err
	}
	b.UID, b.CreateTime = parent.NewChild(), s.now()
	out, err := s.store.InsertBinding(ctx, b, s.unseen(ctx, b)...)
	return s.shown(ctx, out), err
}

// CreateBindings makes up to resource.MaxBatch bindings in one group, all or
// none, under the rules of CreateBinding.
func (s *Service) CreateBindings(ctx context.Context, parent resource.UID, all []resource.RoleBinding) ([]resource.BoundRole, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, parent); err != nil {
		return nil, err
	}
	if len(all) == 0 || len(all) > resource.MaxBatch {
		return nil, fault.Field("requests", "must have 1 to %d bindings", resource.MaxBatch)
	}
	now := s.now()
	var unseen []resource.UID
	for i := range all {
		if err := s.mayGrant(ctx, parent, all[i], fmt.Sprintf("requests[%d].role_binding.", i)); err != nil {
			return nil, err
		}
		all[i].UID, all[i].CreateTime = parent.NewChild(), now
		unseen = append(unseen, s.unseen(ctx, all[i])...)
	}
	out, err := s.store.InsertBindings(ctx, all, unseen...)
	for i := range out {
		out[i] = s.shown(ctx, out[i])
	}
	return out, err
}

// unseen returns the identity of a binding if the caller must not learn whether it
// is there.
func (s *Service) unseen(ctx context.Context, b resource.RoleBinding) []resource.UID {
	if s.authz.Require(ctx, resource.IdentityList, b.Identity) == nil {
		return nil
	}
	return []resource.UID{b.Identity}
}

// shown returns a binding with as much of its identity as the caller may see:
// workloads that they may list, themselves, and people who are known to the
// binding's organization by an act of their own to those who may list identities
// there. Of any other there is the UID, which the caller knew.
func (s *Service) shown(ctx context.Context, b resource.BoundRole) resource.BoundRole {
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

// mayGrant checks that a binding is whole and that the caller may make it in a
// group.
func (s *Service) mayGrant(ctx context.Context, group resource.UID, b resource.RoleBinding, field string) error {
	var bad []fault.Violation
	switch {
	case b.Identity == "":
		bad = append(bad, fault.Violation{Subject: field + "identity_uid", Description: "is required"})
	case b.Identity == group.Root(), slices.Contains(managed, b.Identity): // or it would pass for a person's
		bad = append(bad, fault.Violation{Subject: field + "identity_uid", Description: "is the uid of an organization or of a role"})
	}
	if b.Role == "" {
		bad = append(bad, fault.Violation{Subject: field + "role_uid", Description: "is required"})
	}
	if b.Role == resource.OwnerRole && !b.Identity.IsRoot() && b.Identity.Root() != group.Root() {
		bad = append(bad, fault.Violation{Subject: field + "identity_uid", Description: "is a workload of another organization, which can delete it, and so cannot be an owner"})
	}
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return s.mayPromise(ctx, group, b.Role, field+"role_uid")
}

// mayGive checks that the caller may bind somebody to a role in a group.
func (s *Service) mayGive(ctx context.Context, group, role resource.UID, field string) error {
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, group); err != nil {
		return err
	}
	return s.mayPromise(ctx, group, role, field)
}

// mayPromise checks that a role is good in a group and that the caller has what
// it gives. A role is good for its own group and all below it; so whoever can
// change the role rules over wherever it is given.
func (s *Service) mayPromise(ctx context.Context, group, role resource.UID, field string) error {
	if !role.IsRoot() && !role.Parent().Covers(group) {
		return fault.Field(field, "is neither a managed role nor one of this group or a group above it")
	}
	r, err := s.store.Role(ctx, role)
	if err != nil {
		return err
	}
	return s.authz.RequireAll(ctx, r.Capabilities, group)
}

// GetBinding returns a binding. The caller needs role_bindings.list on it.
func (s *Service) GetBinding(ctx context.Context, uid resource.UID) (resource.BoundRole, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsList, uid); err != nil {
		return resource.BoundRole{}, err
	}
	b, err := s.store.Binding(ctx, uid)
	return s.shown(ctx, b), err
}

// UpdateBinding applies change to a binding, under the rules of CreateBinding.
// The caller needs role_bindings.update on it.
func (s *Service) UpdateBinding(ctx context.Context, uid resource.UID, change func(*resource.RoleBinding) error) (resource.BoundRole, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsUpdate, uid); err != nil {
		return resource.BoundRole{}, err
	}
	out, err := s.store.UpdateBinding(ctx, uid, func(b *resource.RoleBinding) error {
		before := *b
		if err := change(b); err != nil {
			return err
		}
		b.UID, b.CreateTime = before.UID, before.CreateTime
		if err := s.mayGrant(ctx, uid.Parent(), *b, ""); err != nil {
			return err
		}
		if b.Identity != before.Identity && !b.Identity.IsRoot() && s.unseen(ctx, *b) != nil {
			return fault.Field("identity_uid", "is not an identity you may list; make a binding of its own for it")
		}
		return nil
	})
	return s.shown(ctx, out), err
}

// DeleteBinding takes a role away again; what is gone already is no error. The
// caller needs role_bindings.delete on it.
func (s *Service) DeleteBinding(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.RoleBindingsDelete, uid); err != nil {
		return err
	}
	return s.store.DeleteBinding(ctx, uid)
}

// ListBindings returns a page of the bindings the caller holds
// role_bindings.list on.
func (s *Service) ListBindings(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.BoundRole], error) {
	reach, err := s.reach(ctx, resource.RoleBindingsList)
	if err != nil {
		return page.Page[resource.BoundRole]{}, err
	}
	got, err := page.Read(ctx, s.pages, bindingList, reach, f, p, s.store.Bindings)
	for i := range got.Items {
		got.Items[i] = s.shown(ctx, got.Items[i])
	}
	return got, err
}
