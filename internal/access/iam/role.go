package iam

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// CreateRole creates a role in a group. The caller needs roles.create there. The role may have capabilities that the
// caller does not hold, because a role grants nothing until it is bound.
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
	return r, s.store.InsertRole(ctx, r)
}

// GetRole returns a role. The caller needs roles.list on it. For a managed role, roles.list on any group suffices.
func (s *Service) GetRole(ctx context.Context, uid resource.UID) (resource.Role, error) {
	if err := s.mayGetRole(ctx, uid); err != nil {
		return resource.Role{}, err
	}
	return s.store.Role(ctx, uid)
}

// mayGetRole returns nil if the caller may get a role.
func (s *Service) mayGetRole(ctx context.Context, uid resource.UID) error {
	if uid.IsRoot() {
		return s.authz.RequireAnywhere(ctx, resource.RolesList)
	}
	return s.authz.Require(ctx, resource.RolesList, uid)
}

// UpdateRole applies change to a role. The caller needs roles.update on it, and must
// permanently hold every capability that the change adds, because the role may
// already be bound.
func (s *Service) UpdateRole(
	ctx context.Context, uid resource.UID, change func(*resource.Role) error,
) (resource.Role, error) {
	if err := s.authz.Require(ctx, resource.RolesUpdate, uid); err != nil {
		return resource.Role{}, err
	}
	return store.Edit(ctx, uid, s.store.Role, s.store.UpdateRole, func(r *resource.Role) error {
		before := *r
		if err := change(r); err != nil {
			return err
		}
		r.UID, r.CreateTime = before.UID, before.CreateTime
		if err := r.Validate(); err != nil {
			return err
		}
		return s.authz.RequireLasting(ctx, r.Capabilities.Without(before.Capabilities), uid.Parent(), forever)
	})
}

// DeleteRole removes a role that is not bound. The caller needs roles.delete on it.
func (s *Service) DeleteRole(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.RolesDelete, uid, s.store.DeleteRole)
}

// ListRoles returns a page of the roles on which the caller holds roles.list. It
// includes the managed roles if the caller holds roles.list on any group.
func (s *Service) ListRoles(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.Role], error) {
	under, err := s.authz.Reach(ctx, resource.RolesList)
	if err != nil {
		return page.Page[resource.Role]{}, err
	}
	reach := store.Reach{Under: under}
	if len(under) > 0 {
		reach.Also = managed
	}
	return page.Read(ctx, s.pages, iamdb.RoleList, reach, f, p, s.store.Roles)
}

// managed are the UIDs of the managed roles.
var managed = managedUIDs()

func managedUIDs() (uids []resource.UID) {
	for _, r := range authz.ManagedRoles() {
		uids = append(uids, r.UID)
	}
	return uids
}
