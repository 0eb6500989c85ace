package iam

import (
	"context"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// CreateMapping gives a role in a scope to the members of an external group of a provider. The scope defaults to the
// provider's organization. The caller needs identity_providers.create and role_bindings.create on the provider, and, as
// for a binding, role_bindings.create and every capability of the role in the scope.
func (s *Service) CreateMapping(
	ctx context.Context, provider resource.UID, m resource.ExternalGroupRoleMapping,
) (resource.ExternalGroupRoleMapping, error) {
	if err := s.requireWithBind(ctx, resource.IdentityProvidersCreate, provider); err != nil {
		return resource.ExternalGroupRoleMapping{}, err
	}
	m.UID = provider.NewChild()
	if m.Scope == "" {
		m.Scope = provider.Root()
	}
	if err := m.Validate(); err != nil {
		return resource.ExternalGroupRoleMapping{}, err
	}
	if err := s.authz.RequireRole(ctx, m.Scope, m.Role, "role_uid", forever); err != nil {
		return resource.ExternalGroupRoleMapping{}, err
	}
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, m.Scope); err != nil {
		return resource.ExternalGroupRoleMapping{}, err
	}
	m.CreateTime = s.now()
	return m, s.store.InsertMapping(ctx, m)
}

// GetMapping returns a mapping. The caller needs identity_providers.list on it.
func (s *Service) GetMapping(ctx context.Context, uid resource.UID) (resource.ExternalGroupRoleMapping, error) {
	return authz.Get(ctx, s.authz, resource.IdentityProvidersList, uid, s.store.Mapping)
}

// DeleteMapping removes a mapping. The caller needs identity_providers.delete on it.
func (s *Service) DeleteMapping(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.IdentityProvidersDelete, uid, s.store.DeleteMapping)
}

// DeleteMappings removes up to resource.MaxBatchDelete mappings of a provider, and returns the mappings that existed.
// The caller needs identity_providers.delete on the provider. field is the name of the field with the UIDs in the
// request, for error messages.
func (s *Service) DeleteMappings(
	ctx context.Context, provider resource.UID, field string, uids []resource.UID,
) ([]resource.ExternalGroupRoleMapping, error) {
	if err := s.authz.Require(ctx, resource.IdentityProvidersDelete, provider); err != nil {
		return nil, err
	}
	if len(uids) == 0 || len(uids) > resource.MaxBatchDelete {
		return nil, fault.Field(field, "must have 1 to %d uids", resource.MaxBatchDelete)
	}
	for i, uid := range uids {
		if uid.Parent() != provider {
			return nil, fault.Field(fmt.Sprintf("%s[%d]", field, i), "is not a mapping of this provider")
		}
	}
	return s.store.DeleteMappings(ctx, provider, uids)
}

// ListMappings returns a page of the mappings on which the caller holds identity_providers.list.
func (s *Service) ListMappings(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.ExternalGroupRoleMapping], error) {
	return authz.List(ctx, s.authz, s.pages, iamdb.MappingList, resource.IdentityProvidersList, f, p, s.store.Mappings)
}
