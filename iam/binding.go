package iam

import (
	"context"
	"fmt"
	"slices"

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
	return s.store.InsertBinding(ctx, b)
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
	for i := range all {
		if err := s.mayGrant(ctx, parent, all[i], fmt.Sprintf("requests[%d].role_binding.", i)); err != nil {
			return nil, err
		}
		all[i].UID, all[i].CreateTime = parent.NewChild(), now
	}
	return s.store.InsertBindings(ctx, all)
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
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return s.mayPromise(ctx, group, b.Role, field+"role_uid")
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
	return s.store.Binding(ctx, uid)
}

// UpdateBinding applies change to a binding, under the rules of CreateBinding.
// The caller needs role_bindings.update on it.
func (s *Service) UpdateBinding(ctx context.Context, uid resource.UID, change func(*resource.RoleBinding) error) (resource.BoundRole, error) {
	if err := s.authz.Require(ctx, resource.RoleBindingsUpdate, uid); err != nil {
		return resource.BoundRole{}, err
	}
	return s.store.UpdateBinding(ctx, uid, func(b *resource.RoleBinding) error {
		before := *b
		if err := change(b); err != nil {
			return err
		}
		b.UID, b.CreateTime = before.UID, before.CreateTime
		return s.mayGrant(ctx, uid.Parent(), *b, "")
	})
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
	return list(ctx, s, bindingList, reach, f, p, s.store.Bindings)
}
