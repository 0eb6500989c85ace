package iam

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Bootstrap creates an organization and its first owner, identified by the issuer and subject of its claim
// match. It checks no permission: it is for setting up a server. name is kept as the display name if it is not
// valid as a name. If there is an organization of that name, the owner is added to it.
func (s *Service) Bootstrap(
	ctx context.Context, name string, kind resource.OrgKind, owner resource.Identity,
) (resource.Group, resource.Identity, error) {
	now := s.now()
	owner.Realm = owner.Relationship.Issuer()
	owner.CreateTime, owner.UpdateTime, owner.LastSeenTime = now, now, now
	g := resource.Group{UID: resource.NewRoot(), Kind: kind, CreateTime: now, UpdateTime: now}
	g.Name, g.DisplayName = resource.Titled(name)
	if err := g.Validate(); err != nil {
		return g, owner, err
	}
	if err := owner.Validate(now); err != nil {
		return g, owner, err
	}
	var err error
	if owner.UID, err = s.store.PersonUID(ctx, owner.Realm, owner.Relationship.Subject()); err != nil {
		return g, owner, err
	}
	// Another replica may have inserted it first.
	if err = s.store.InsertIdentity(ctx, owner); errors.Is(err, fault.AlreadyExists) {
		owner.UID, err = s.store.PersonUID(ctx, owner.Realm, owner.Relationship.Subject())
	}
	if err != nil {
		return g, owner, err
	}
	made, err := s.store.InsertGroup(ctx, g, ownerBinding(g, owner.UID))
	if errors.Is(err, fault.AlreadyExists) {
		made, err = s.addOwner(ctx, g.Name, owner.UID)
	}
	return made, owner, err
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
