package iam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// CreateAssociation sets the cloud accounts of a group that has none yet. The
// caller needs account_associations.create on it.
func (s *Service) CreateAssociation(
	ctx context.Context, group resource.UID, a resource.AccountAssociation,
) (resource.AccountAssociation, error) {
	if err := s.authz.Require(ctx, resource.AccountAssociationsCreate, group); err != nil {
		return resource.AccountAssociation{}, err
	}
	a.UID = group
	a.CreateTime = s.now()
	a.UpdateTime = a.CreateTime
	if err := s.checkAssociation(ctx, a); err != nil {
		return resource.AccountAssociation{}, err
	}
	return a, s.store.InsertAssociation(ctx, a)
}

// checkAssociation validates an association and checks that each of its
// service bindings names an identity of that service.
func (s *Service) checkAssociation(ctx context.Context, a resource.AccountAssociation) error {
	if err := a.Validate(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(a.ServiceBindings)) {
		field := fmt.Sprintf("service_bindings[%s]", name)
		principal, ok := resource.ParseServicePrincipal(name)
		if !ok {
			return fault.Field(field, "there is no such service principal")
		}
		i, err := s.store.Identity(ctx, a.ServiceBindings[name])
		switch {
		case err != nil && !errors.Is(err, fault.NotFound):
			return err
		// Both cases have the same error, because the identity may belong to another organization.
		case err != nil || i.Relationship.ServicePrincipal != principal:
			return fault.Field(field, "there is no such identity of this service principal")
		}
	}
	return nil
}

// GetAssociation returns the association of a group. The caller needs account_associations.list on it.
func (s *Service) GetAssociation(ctx context.Context, uid resource.UID) (resource.AccountAssociation, error) {
	return authz.Get(ctx, s.authz, resource.AccountAssociationsList, uid, s.store.Association)
}

// UpdateAssociation applies change to an association. The caller needs account_associations.update on it.
func (s *Service) UpdateAssociation(
	ctx context.Context, uid resource.UID, change func(*resource.AccountAssociation) error,
) (resource.AccountAssociation, error) {
	if err := s.authz.Require(ctx, resource.AccountAssociationsUpdate, uid); err != nil {
		return resource.AccountAssociation{}, err
	}
	return store.Edit(ctx, uid, s.store.Association, s.store.UpdateAssociation,
		func(a *resource.AccountAssociation) error {
			before := *a
			if err := change(a); err != nil {
				return err
			}
			a.UID, a.CreateTime = before.UID, before.CreateTime
			return s.checkAssociation(ctx, *a)
		})
}

// DeleteAssociation removes the association of a group, if there is one. The
// caller needs account_associations.delete on it.
func (s *Service) DeleteAssociation(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.AccountAssociationsDelete, uid, s.store.DeleteAssociation)
}

// ListAssociations returns a page of the associations on which the caller holds account_associations.list.
func (s *Service) ListAssociations(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.AccountAssociation], error) {
	read := s.store.Associations
	return authz.List(ctx, s.authz, s.pages, iamdb.AssociationList, resource.AccountAssociationsList, f, p, read)
}

// CheckAssociation reports whether the service can act in the cloud account of an association. It calls try to ask the
// cloud provider. The caller needs account_associations.list on the association.
func (s *Service) CheckAssociation(
	ctx context.Context, uid resource.UID, cloud resource.ProviderType,
	try func(context.Context, resource.AccountAssociation, resource.ProviderType) (resource.Readiness, error),
) (resource.Readiness, error) {
	a, err := s.GetAssociation(ctx, uid)
	if err != nil {
		return resource.Readiness{}, err
	}
	set := map[resource.ProviderType]bool{
		resource.ProviderGoogle: a.Google != nil, resource.ProviderAmazon: a.Amazon != nil,
		resource.ProviderAzure: a.Azure != nil,
	}
	configured, known := set[cloud]
	switch {
	case !known:
		return resource.Readiness{}, fault.Field("provider_type", "is required: Google, Amazon or Azure")
	case !configured:
		return resource.Readiness{
			Reason: "NOT_CONFIGURED", Message: "the association has no account of this provider",
		}, nil
	}
	return try(ctx, a, cloud)
}
