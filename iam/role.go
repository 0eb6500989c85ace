package iam

import (
	"context"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// CreateRole makes a role in a group. The caller needs roles.create there. A
// role grants nothing until it is bound, so it may hold what the caller does
// not.
func (s *Service) CreateRole(ctx context.Context, parent resource.UID, r resource.Role) (resource.Role, error) {
	if err := s.authz.Require(ctx, resource.RolesCreate, parent); err != nil {
		return resource.Role{}, err
	}
	if err := r.Validate(); err != nil {
		return resource.Role{}, err
	}
	r.UID = parent.NewChild()
	r.CreateTime = s.now()
	r.UpdateTime = r.CreateTime
	if err := s.store.InsertRole(ctx, r); err != nil {
		return resource.Role{}, err
	}
	return r, nil
}

// GetRole returns a role. The caller needs roles.list on it, or anywhere for a
// managed one.
func (s *Service) GetRole(ctx context.Context, uid resource.UID) (resource.Role, error) {
	if err := s.maySeeRole(ctx, uid); err != nil {
		return resource.Role{}, err
	}
	return s.store.Role(ctx, uid)
}

func (s *Service) maySeeRole(ctx context.Context, uid resource.UID) error {
	if uid.IsRoot() {
		return s.authz.RequireAnywhere(ctx, resource.RolesList)
	}
	return s.authz.Require(ctx, resource.RolesList, uid)
}

// UpdateRole applies change to a role. The caller needs roles.update on it, and
// must hold every capability that is added: the role may be bound already.
func (s *Service) UpdateRole(ctx context.Context, uid resource.UID, change func(*resource.Role) error) (resource.Role, error) {
	if err := s.authz.Require(ctx, resource.RolesUpdate, uid); err != nil {
		return resource.Role{}, err
	}
	return s.store.UpdateRole(ctx, uid, func(r *resource.Role) error {
		before := *r
		if err := change(r); err != nil {
			return err
		}
		r.UID, r.CreateTime = before.UID, before.CreateTime
		if err := r.Validate(); err != nil {
			return err
		}
		return s.authz.RequireAll(ctx, r.Capabilities.Without(before.Capabilities), uid.Parent())
	})
}

// DeleteRole removes a role that is not bound. The caller needs roles.delete on
// it.
func (s *Service) DeleteRole(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.RolesDelete, uid); err != nil {
		return err
	}
	return s.store.DeleteRole(ctx, uid)
}

// ListRoles returns a page of the roles the caller holds roles.list on, and of
// the managed ones if that is anything at all.
func (s *Service) ListRoles(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.Role], error) {
	reach, err := s.reach(ctx, resource.RolesList)
	if err != nil {
		return page.Page[resource.Role]{}, err
	}
	if len(reach.Under) > 0 {
		reach.Also = managed
	}
	return page.Read(ctx, s.pages, roleList, reach, f, p, s.store.Roles)
}

var managed = managedUIDs()

func managedUIDs() (uids []resource.UID) {
	for _, r := range authz.ManagedRoles() {
		uids = append(uids, r.UID)
	}
	return uids
}
