package login

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/holdfast-dev/holdfast/resource"
)

// A Finding is how one thing about a provider fared.
type Finding struct {
	Name   string
	OK     bool
	Detail string
}

// A Verdict is how a provider fared.
type Verdict struct {
	Findings    []Finding
	Ready       bool
	RedirectURI string // to be registered with the provider
	TrialURL    string // where one can sign in to see what it says; "" for a provider that is not kept
}

// TestProvider tries a provider that is kept, without anybody signing in. The
// caller needs identity_providers.list on it.
func (s *Service) TestProvider(ctx context.Context, uid resource.UID) (Verdict, error) {
	if err := s.authz.Require(ctx, resource.IdentityProvidersList, uid); err != nil {
		return Verdict{}, err
	}
	p, err := s.store.Provider(ctx, uid)
	if err != nil {
		return Verdict{}, err
	}
	v := s.testProvider(ctx, p)
	v.RedirectURI = s.redirectURI(uid)
	v.TrialURL = s.at("/oauth?trial=true&idp_id=" + url.QueryEscape(string(uid)))
	return v, nil
}

// TestNewProvider tries a provider before it is kept. The caller needs
// identity_providers.create in the group it is meant for.
func (s *Service) TestNewProvider(ctx context.Context, parent resource.UID, p resource.IdentityProvider) (Verdict, error) {
	if err := s.authz.Require(ctx, resource.IdentityProvidersCreate, parent); err != nil {
		return Verdict{}, err
	}
	if err := p.Validate(); err != nil {
		return Verdict{}, err
	}
	p.UID = parent.NewChild()
	v := s.testProvider(ctx, p)
	v.RedirectURI = s.at("/oauth/callback/<last segment of the provider's uid>")
	return v, nil
}

func (s *Service) testProvider(ctx context.Context, p resource.IdentityProvider) (v Verdict) {
	add := func(name string, ok bool, detail string) { v.Findings = append(v.Findings, Finding{name, ok, detail}) }
	d, err := s.upstream.discover(ctx, p.OIDC.Issuer, true)
	if err != nil {
		var failure *upstreamError
		if !errors.As(err, &failure) {
			failure = &upstreamError{"it cannot be asked", err}
		}
		add("discovery", false, failure.text)
		return v
	}
	add("discovery", true, "the issuer describes itself")
	if types := d.metadata.ResponseTypes; len(types) > 0 {
		add("code", slices.Contains(types, "code"), "it says it answers with: "+strings.Join(types, ", "))
	}
	if len(d.metadata.Challenges) > 0 || p.OIDC.PKCE {
		ok := slices.Contains(d.metadata.Challenges, "S256") || len(d.metadata.Challenges) == 0
		add("pkce", ok, "it supports: "+orNothing(d.metadata.Challenges))
	}
	if scopes := d.metadata.Scopes; len(scopes) > 0 {
		var missing []string
		for _, want := range append([]string{"email"}, p.OIDC.AdditionalScopes...) {
			if !slices.Contains(scopes, want) {
				missing = append(missing, want)
			}
		}
		add("scopes", len(missing) == 0, "it does not list: "+orNothing(missing))
	}
	s.testKeys(ctx, d, add)
	s.testClient(ctx, d, p, add)
	v.Ready = !slices.ContainsFunc(v.Findings, func(f Finding) bool { return !f.OK && f.Name != "scopes" })
	return v
}

func orNothing(all []string) string {
	if len(all) == 0 {
		return "nothing"
	}
	return shortText(strings.Join(all, ", "))
}

// testKeys looks for the keys that ID tokens are signed with.
func (s *Service) testKeys(ctx context.Context, d *discovery, add func(string, bool, string)) {
	// A token of nobody's: the library says whether it found keys to try it with.
	const nobodys = "eyJhbGciOiJSUzI1NiIsImtpZCI6Im5vbmUifQ.e30.AAAA"
	_, err := oidc.NewRemoteKeySet(s.upstream.context(ctx), d.metadata.Keys).VerifySignature(ctx, nobodys)
	if err != nil && strings.Contains(err.Error(), "fetching keys") {
		add("keys", false, "its keys cannot be fetched")
		return
	}
	add("keys", true, "its keys can be fetched")
}

// testClient shows the provider a code that is none: it says whether it knows the
// client before it says that the code is wrong.
func (s *Service) testClient(ctx context.Context, d *discovery, p resource.IdentityProvider, add func(string, bool, string)) {
	cfg, err := s.oauthConfig(d, p)
	if err != nil {
		add("client", false, "its client secret cannot be read; set it again")
		return
	}
	_, err = cfg.Exchange(s.upstream.context(ctx), "holdfast-test-"+newID(), oauth2.VerifierOption(oauth2.GenerateVerifier()))
	var refused *oauth2.RetrieveError
	switch {
	case err == nil:
		add("client", false, "it takes any code at all")
	case !errors.As(err, &refused):
		add("client", false, tokenReason(err))
	case refused.ErrorCode == "invalid_grant" || refused.ErrorCode == "invalid_request":
		add("client", true, "it knows the client")
	default:
		add("client", false, tokenReason(err))
	}
}
