package login

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/provider"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// TestProvider tests a stored provider without a sign-in. The caller needs
// identity_providers.list on it.
func (s *Service) TestProvider(ctx context.Context, uid resource.UID) (provider.Verdict, error) {
	if err := s.authz.Require(ctx, resource.IdentityProvidersList, uid); err != nil {
		return provider.Verdict{}, err
	}
	p, err := s.store.Provider(ctx, uid)
	if err != nil {
		return provider.Verdict{}, err
	}
	v := s.providers.Test(ctx, p)
	v.TrialURL = s.site.URL("/oauth?trial=true&idp_id=" + url.QueryEscape(string(uid)))
	return v, nil
}

// TestNewProvider tests a provider before it is created in the group parent. The caller needs
// identity_providers.create on the group.
func (s *Service) TestNewProvider(
	ctx context.Context, parent resource.UID, p resource.IdentityProvider,
) (provider.Verdict, error) {
	if err := s.authz.Require(ctx, resource.IdentityProvidersCreate, parent); err != nil {
		return provider.Verdict{}, err
	}
	if err := p.Validate(); err != nil {
		return provider.Verdict{}, err
	}
	p.UID, p.SharedRedirect = parent.NewChild(), true
	v := s.providers.Test(ctx, p)
	if v.RedirectURI != s.site.URL(provider.SharedRedirect) {
		v.RedirectURI = s.site.URL(provider.SharedRedirect + "/<last segment of the provider's uid>")
	}
	return v, nil
}

// showTrial shows the claims of a provider and the roles that they would give. It signs in
// nobody.
func (s *Service) showTrial(
	w http.ResponseWriter, r *http.Request, f *flow, p resource.IdentityProvider, claims *provider.Claims,
) error {
	page := &trialPage{
		Provider: p.Name, Redirect: s.site.URL(r.URL.Path), Verified: claims.EmailVerified, Groups: claims.Groups,
	}
	for _, name := range slices.Sorted(maps.Keys(claims.All)) {
		page.Claims = append(page.Claims, Claim{input.Short(name), provider.Text(claims.All[name])})
	}
	roles, err := s.store.RolesFor(r.Context(), p, claims.Groups)
	if err != nil {
		return site.Titled("The trial cannot continue", err)
	}
	page.Roles = roles
	if claims.Email == "" {
		page.Warnings = append(page.Warnings, "The provider sends no e-mail address: add the scope email.")
	} else if !claims.EmailVerified {
		page.Warnings = append(page.Warnings,
			"The provider does not say that the e-mail address is verified: invites to it will be refused.")
	}
	if c := p.OIDC.GroupsClaim; c != "" && claims.All[c] == nil {
		page.Warnings = append(page.Warnings, "The claim "+input.Short(c)+", which should contain the groups, is missing.")
	}
	s.deleteFlow(w, f)
	return s.show(w, r, http.StatusOK, "trial", nil, page)
}
