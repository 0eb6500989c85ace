package iam

import (
	"context"
	"reflect"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
)

// CreateProvider creates an identity provider in a group. The caller needs identity_providers.create and
// role_bindings.create there, and every capability of the default role, which people get at their first sign-in.
func (s *Service) CreateProvider(
	ctx context.Context, parent resource.UID, p resource.IdentityProvider,
) (resource.IdentityProvider, error) {
	if err := s.requireWithBind(ctx, resource.IdentityProvidersCreate, parent); err != nil {
		return resource.IdentityProvider{}, err
	}
	if err := p.Validate(); err != nil {
		return resource.IdentityProvider{}, err
	}
	if err := s.authz.RequireRole(ctx, parent, p.DefaultRole, "default_role", forever); err != nil {
		return resource.IdentityProvider{}, err
	}
	p.UID, p.Trusted, p.SharedRedirect, p.Epoch = parent.NewChild(), false, true, 0
	p.Realm = p.OwnRealm()
	p.CreateTime = s.now()
	p.UpdateTime = p.CreateTime
	s.seal(&p)
	return p, s.store.InsertProvider(ctx, p)
}

// seal encrypts a client secret that was given in plain text.
func (s *Service) seal(p *resource.IdentityProvider) {
	if plain := p.OIDC.ClientSecret.Plain; plain != "" {
		p.OIDC.ClientSecret = resource.Secret{Sealed: s.cfg.Key.Seal(secret.ForClientSecrets, []byte(plain))}
	}
}

// requireWithBind checks that the caller holds want and role_bindings.create. It is
// for resources that create bindings later.
func (s *Service) requireWithBind(ctx context.Context, want resource.Capability, target resource.UID) error {
	if err := s.authz.Require(ctx, want, target); err != nil {
		return err
	}
	return s.authz.Require(ctx, resource.RoleBindingsCreate, target)
}

// GetProvider returns a provider. The caller needs identity_providers.list on it.
func (s *Service) GetProvider(ctx context.Context, uid resource.UID) (resource.IdentityProvider, error) {
	return authz.Get(ctx, s.authz, resource.IdentityProvidersList, uid, s.store.Provider)
}

// UpdateProvider applies change to a provider. The caller needs identity_providers.update and role_bindings.create on
// it. To change anything except its name and description, the caller must also be allowed to give its default role and
// the roles of its mappings, because a caller who decides for whom a provider vouches decides who gets these roles. The
// correlation rule cannot be changed once it is set.
//
// If the issuer or the client of the provider changes, the people who sign in with it become new identities, and the
// client secret, which belonged to the old issuer, is removed. If keepPeople is true, people remain the same identities
// if the caller holds all their capabilities: see authz.Checker.RequireBecome. If the operator trusts the provider, its
// people belong to the installation, so all of them become new identities.
func (s *Service) UpdateProvider(
	ctx context.Context, uid resource.UID, keepPeople bool, change func(*resource.IdentityProvider) error,
) (resource.IdentityProvider, error) {
	if err := s.requireWithBind(ctx, resource.IdentityProvidersUpdate, uid); err != nil {
		return resource.IdentityProvider{}, err
	}
	return s.store.UpdateProvider(ctx, uid, func(
		p *resource.IdentityProvider, mappings []resource.ExternalGroupRoleMapping,
	) (keep func(resource.UID) bool, _ error) {
		before := *p
		oidc := *before.OIDC
		if err := change(p); err != nil {
			return nil, err
		}
		p.UID, p.CreateTime, p.Trusted = before.UID, before.CreateTime, before.Trusted
		// Clients that do not know the field send false, so an update cannot disable it.
		p.SharedRedirect = p.SharedRedirect || before.SharedRedirect
		if err := p.Validate(); err != nil {
			return nil, err
		}
		if rule := oidc.CorrelationRule; rule != resource.CorrelationUnspecified && p.OIDC.CorrelationRule != rule {
			return nil, fault.Field("oidc.correlation_rule", "cannot be changed")
		}
		if err := resetTrust(oidc, p); err != nil {
			return nil, err
		}
		if keepPeople && !before.Trusted {
			keep = func(person resource.UID) bool { return s.authz.RequireBecome(ctx, person) == nil }
		}
		// The change affects neither for whom the provider vouches nor which roles these people get.
		if reflect.DeepEqual(oidc, *p.OIDC) && before.Disabled == p.Disabled && before.DefaultRole == p.DefaultRole {
			return keep, s.authz.RequireRole(ctx, uid.Parent(), p.DefaultRole, "default_role", forever)
		}
		s.seal(p)
		return keep, s.mayGrantProviderRoles(ctx, *p, mappings)
	})
}

// resetTrust resets two fields if the issuer or the client of a provider has changed: Trusted, because the operator has
// not reviewed the new issuer, and the client secret, because the new issuer must not get the old one.
func resetTrust(before resource.OIDC, p *resource.IdentityProvider) error {
	if p.OIDC.SameBeliefs(before) {
		return nil
	}
	p.Trusted = false
	if p.OIDC.ClientSecret.Plain != "" {
		return nil
	}
	p.OIDC.ClientSecret = resource.Secret{}
	if !p.OIDC.PKCE {
		return fault.Field("oidc.client_secret",
			"is required, because the issuer or the client has changed: the old secret was for the old ones")
	}
	return nil
}

// mayGrantProviderRoles checks that the caller may give every role that a provider gives.
func (s *Service) mayGrantProviderRoles(
	ctx context.Context, p resource.IdentityProvider, mappings []resource.ExternalGroupRoleMapping,
) error {
	err := s.mayBind(ctx, p.UID.Parent(), p.DefaultRole, "default_role")
	for i := 0; err == nil && i < len(mappings); i++ {
		err = s.mayBind(ctx, mappings[i].Scope, mappings[i].Role, "role_uid")
	}
	return err
}

// TrustProvider records whether the operator trusts a provider to vouch for the
// people of its issuer in the whole installation. The people of the provider move to
// the realm of the issuer, or back to the provider's own realm, except people whose
// subject already exists there.
func (s *Service) TrustProvider(
	ctx context.Context, uid resource.UID, trusted bool,
) (resource.IdentityProvider, error) {
	return s.store.UpdateProvider(ctx, uid, func(
		p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping,
	) (func(resource.UID) bool, error) {
		p.Trusted = trusted
		return func(resource.UID) bool { return true }, nil
	})
}

// DeleteProvider removes a provider, unless something depends on it. The caller needs identity_providers.delete on it.
func (s *Service) DeleteProvider(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.IdentityProvidersDelete, uid, s.store.DeleteProvider)
}

// ListProviders returns a page of the providers on which the caller holds identity_providers.list.
func (s *Service) ListProviders(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.IdentityProvider], error) {
	return authz.List(ctx, s.authz, s.pages, iamdb.ProviderList, resource.IdentityProvidersList, f, p, s.store.Providers)
}
