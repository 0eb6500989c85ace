package iam

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Bootstrap creates an organization and its first owner, who is identified by the issuer and subject of the claim
// match. It authorizes nobody: it is for setting up a server. If name is not a valid name, it becomes the display
// name. If there already is an organization with that name, Bootstrap adds the owner to it.
func (s *Service) Bootstrap(
	ctx context.Context, name string, kind resource.OrgKind, owner resource.Identity,
) (resource.Group, resource.Identity, error) {
	currentTime := s.now()
	owner.Realm = owner.Relationship.Issuer()
	owner.CreateTime, owner.UpdateTime, owner.LastSeenTime = currentTime, currentTime, currentTime
	g := resource.Group{UID: resource.NewRoot(), Kind: kind, CreateTime: currentTime, UpdateTime: currentTime}
	g.Name, g.DisplayName = resource.Titled(name)
	if err := g.Validate(); err != nil {
		return g, owner, err
	}
	if err := owner.Validate(currentTime); err != nil {
		return g, owner, err
	}
	var err error
	if owner.UID, err = s.store.PersonUID(ctx, owner.Realm, owner.Relationship.Subject()); err != nil {
		return g, owner, err
	}
	// Another replica may have inserted the identity first.
	if err = s.store.InsertIdentity(ctx, owner); errors.Is(err, fault.AlreadyExists) {
		owner.UID, err = s.store.PersonUID(ctx, owner.Realm, owner.Relationship.Subject())
	}
	if err != nil {
		return g, owner, err
	}
	// The operator decides who gets a name.
	if err := s.names.Release(ctx, g.Name); err != nil && !errors.Is(err, fault.NotFound) {
		return g, owner, err
	}
	created, err := s.store.InsertGroup(ctx, g, ownerBinding(g, owner.UID))
	if errors.Is(err, fault.AlreadyExists) {
		created, err = s.addOwner(ctx, g.Name, owner.UID)
	}
	return created, owner, err
}

// addOwner makes an identity an owner of an existing organization.
func (s *Service) addOwner(ctx context.Context, name string, owner resource.UID) (resource.Group, error) {
	g, err := s.store.Organization(ctx, name)
	if err != nil {
		return g, err
	}
	b := ownerBinding(g, owner)
	b.CreateTime = s.now()
	if _, err := s.store.InsertBinding(ctx, b); err != nil && !errors.Is(err, fault.AlreadyExists) {
		return g, err
	}
	return g, nil
}
