package iam

import (
	"context"

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
	p.UID = parent.NewChild()
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

// UpdateProvider applies change to a provider, under the rules of
// CreateProvider. The correlation rule is fixed once it has a value: it decides
// who somebody is.
func (s *Service) UpdateProvider(ctx context.Context, uid resource.UID, change func(*resource.IdentityProvider) error) (resource.IdentityProvider, error) {
	if err := s.requireBoth(ctx, resource.IdentityProvidersUpdate, uid); err != nil {
		return resource.IdentityProvider{}, err
	}
	return s.store.UpdateProvider(ctx, uid, func(p *resource.IdentityProvider) error {
		before := *p
		rule := before.OIDC.CorrelationRule
		if err := change(p); err != nil {
			return err
		}
		p.UID, p.CreateTime = before.UID, before.CreateTime
		if err := p.Validate(); err != nil {
			return err
		}
		if rule != resource.CorrelationUnspecified && p.OIDC.CorrelationRule != rule {
			return fault.Field("oidc.correlation_rule", "cannot be changed")
		}
		s.seal(p)
		return s.mayPromise(ctx, uid.Parent(), p.DefaultRole, "default_role")
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
	return list(ctx, s, providerList, reach, f, p, s.store.Providers)
}
