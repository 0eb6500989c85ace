package iam

import (
	"context"
	"reflect"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// clientSecret is the purpose client secrets are sealed for.
const clientSecret = "client secret"

// CreateProvider makes an identity provider in a group. The caller needs
// identity_providers.create and role_bindings.create there, and every capability
// of the default role: newcomers get it.
func (s *Service) CreateProvider(ctx context.Context, parent resource.UID, p resource.IdentityProvider) (resource.IdentityProvider, error) {
	if err := s.requireBoth(ctx, resource.IdentityProvidersCreate, parent); err != nil {
		return resource.IdentityProvider{}, err
	}
	if err := p.Validate(); err != nil {
		return resource.IdentityProvider{}, err
	}
	if err := s.mayPromise(ctx, parent, p.DefaultRole, "default_role"); err != nil {
		return resource.IdentityProvider{}, err
	}
	p.UID, p.Trusted, p.Epoch = parent.NewChild(), false, 0
	p.Realm = p.OwnRealm()
	p.CreateTime = s.now()
	p.UpdateTime = p.CreateTime
	s.seal(&p)
	if err := s.store.InsertProvider(ctx, p); err != nil {
		return resource.IdentityProvider{}, err
	}
	return p, nil
}

// seal encrypts a secret that has just been given.
func (s *Service) seal(p *resource.IdentityProvider) {
	if plain := p.OIDC.ClientSecret.Plain; plain != "" {
		p.OIDC.ClientSecret = resource.Secret{Sealed: s.cfg.Key.Seal(clientSecret, []byte(plain))}
	}
}

// requireBoth checks a capability together with role_bindings.create: a promise
// of a role is a grant to come.
func (s *Service) requireBoth(ctx context.Context, want resource.Capability, place resource.UID) error {
	if err := s.authz.Require(ctx, want, place); err != nil {
		return err
	}
	return s.authz.Require(ctx, resource.RoleBindingsCreate, place)
}

// GetProvider returns a provider. The caller needs identity_providers.list on
// it.
func (s *Service) GetProvider(ctx context.Context, uid resource.UID) (resource.IdentityProvider, error) {
	if err := s.authz.Require(ctx, resource.IdentityProvidersList, uid); err != nil {
		return resource.IdentityProvider{}, err
	}
	return s.store.Provider(ctx, uid)
}

// UpdateProvider applies change to a provider. The caller needs
// identity_providers.update and role_bindings.create on it and, to change anything
// but its name and description, everything that its default role and its mappings
// give, where they give it: whoever decides whom a provider vouches for decides
// who gets that. The correlation rule is fixed once it has a value.
//
// If what the provider believes changes, its people are new people, and its client
// secret, which was the old issuer's, is gone. With keepPeople those stay who they
// are whom the caller may become; the rest does not. The people of a provider that
// the operator trusts are the installation's, and none of them is kept.
func (s *Service) UpdateProvider(ctx context.Context, uid resource.UID, keepPeople bool, change func(*resource.IdentityProvider) error) (resource.IdentityProvider, error) {
	if err := s.requireBoth(ctx, resource.IdentityProvidersUpdate, uid); err != nil {
		return resource.IdentityProvider{}, err
	}
	return s.store.UpdateProvider(ctx, uid, func(p *resource.IdentityProvider, mappings []resource.ExternalGroupRoleMapping) (keep func(resource.UID) bool, _ error) {
		before := *p
		oidc := *before.OIDC
		if err := change(p); err != nil {
			return nil, err
		}
		p.UID, p.CreateTime, p.Trusted = before.UID, before.CreateTime, before.Trusted
		if err := p.Validate(); err != nil {
			return nil, err
		}
		if rule := oidc.CorrelationRule; rule != resource.CorrelationUnspecified && p.OIDC.CorrelationRule != rule {
			return nil, fault.Field("oidc.correlation_rule", "cannot be changed")
		}
		if err := disbelieve(oidc, p); err != nil {
			return nil, err
		}
		if keepPeople && !before.Trusted {
			keep = func(person resource.UID) bool { return s.authz.RequireBecome(ctx, person) == nil }
		}
		if sameEffect(before, oidc, *p) {
			return keep, s.mayPromise(ctx, uid.Parent(), p.DefaultRole, "default_role")
		}
		s.seal(p)
		return keep, s.mayVouch(ctx, *p, mappings)
	})
}

// disbelieve takes away what depended on what a provider believed before, if that
// has changed: the trust of the operator, who has not looked at this one, and the
// client secret, which is not for the new issuer to see.
func disbelieve(before resource.OIDC, p *resource.IdentityProvider) error {
	if p.OIDC.SameBeliefs(before) {
		return nil
	}
	p.Trusted = false
	if p.OIDC.ClientSecret.Plain != "" {
		return nil
	}
	p.OIDC.ClientSecret = resource.Secret{}
	if !p.OIDC.PKCE {
		return fault.Field("oidc.client_secret", "is required with another issuer or client: the one before was for those before")
	}
	return nil
}

// sameEffect reports whether a change of a provider makes no difference to whom it
// vouches for and to what they get.
func sameEffect(before resource.IdentityProvider, oidc resource.OIDC, p resource.IdentityProvider) bool {
	return reflect.DeepEqual(oidc, *p.OIDC) && before.Disabled == p.Disabled && before.DefaultRole == p.DefaultRole
}

// mayVouch checks that the caller may give everything that a provider gives.
func (s *Service) mayVouch(ctx context.Context, p resource.IdentityProvider, mappings []resource.ExternalGroupRoleMapping) error {
	if err := s.mayGive(ctx, p.UID.Parent(), p.DefaultRole, "default_role"); err != nil {
		return err
	}
	for _, m := range mappings {
		if err := s.mayGive(ctx, m.Scope, m.Role, "role_uid"); err != nil {
			return err
		}
	}
	return nil
}

// TrustProvider notes, for the operator, that a provider speaks for its issuer to
// the whole installation, or that it no longer does. Its people become the
// installation's, or only its own again; those who are known there already stay
// apart.
func (s *Service) TrustProvider(ctx context.Context, uid resource.UID, trusted bool) (resource.IdentityProvider, error) {
	return s.store.UpdateProvider(ctx, uid, func(p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping) (func(resource.UID) bool, error) {
		p.Trusted = trusted
		return func(resource.UID) bool { return true }, nil
	})
}

// DeleteProvider removes a provider that nothing depends on. The caller needs
// identity_providers.delete on it.
func (s *Service) DeleteProvider(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.IdentityProvidersDelete, uid); err != nil {
		return err
	}
	return s.store.DeleteProvider(ctx, uid)
}

// ListProviders returns a page of the providers the caller holds
// identity_providers.list on.
func (s *Service) ListProviders(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.IdentityProvider], error) {
	reach, err := s.reach(ctx, resource.IdentityProvidersList)
	if err != nil {
		return page.Page[resource.IdentityProvider]{}, err
	}
	return page.Read(ctx, s.pages, providerList, reach, f, p, s.store.Providers)
}
