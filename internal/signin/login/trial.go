package login

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Finding is the result of one check of a provider.
type Finding struct {
	Name   string
	OK     bool
	Detail string
}

// A Verdict is the result of testing a provider.
type Verdict struct {
	Findings    []Finding
	Ready       bool
	RedirectURI string // redirect URI to register with the provider
	TrialURL    string // where to sign in to see its claims; "" for a provider that is not stored
}

// TestProvider tests a stored provider without anybody signing in. The caller
// needs identity_providers.list on it.
func (s *Service) TestProvider(ctx context.Context, uid resource.UID) (Verdict, error) {
	if err := s.authz.Require(ctx, resource.IdentityProvidersList, uid); err != nil {
		return Verdict{}, err
	}
	p, err := s.store.Provider(ctx, uid)
	if err != nil {
		return Verdict{}, err
	}
	v := s.testProvider(ctx, p)
	v.TrialURL = s.at("/oauth?trial=true&idp_id=" + url.QueryEscape(string(uid)))
	return v, nil
}

// TestNewProvider tests a provider before it is created. The caller needs
// identity_providers.create in its group.
func (s *Service) TestNewProvider(
	ctx context.Context, parent resource.UID, p resource.IdentityProvider,
) (Verdict, error) {
	if err := s.authz.Require(ctx, resource.IdentityProvidersCreate, parent); err != nil {
		return Verdict{}, err
	}
	if err := p.Validate(); err != nil {
		return Verdict{}, err
	}
	p.UID, p.SharedRedirect = parent.NewChild(), true
	v := s.testProvider(ctx, p)
	if v.RedirectURI != s.at(SharedRedirect) {
		v.RedirectURI = s.at(SharedRedirect + "/<last segment of the provider's uid>")
	}
	return v, nil
}

func (s *Service) testProvider(ctx context.Context, p resource.IdentityProvider) (v Verdict) {
	add := func(name string, ok bool, detail string) {
		v.Findings = append(v.Findings, Finding{name, ok, detail})
	}
	d, err := s.upstream.discover(ctx, p.OIDC.Issuer, true)
	v.RedirectURI = s.redirectURI(d, p)
	if err != nil {
		add("discovery", false, err.Error()) // of discover, so it may be shown
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
	if p.SharedRedirect && !sharesRedirect(d, p) {
		add("redirect", false, "a client without a secret has a redirect address of its own here, "+
			"because the issuer does not name itself in its answers (RFC 9207)")
	}
	s.testKeys(ctx, d, add)
	s.testClient(ctx, d, p, add)
	v.Ready = !slices.ContainsFunc(v.Findings, func(f Finding) bool {
		return !f.OK && f.Name != "scopes" && f.Name != "redirect"
	})
	return v
}

func orNothing(all []string) string {
	if len(all) == 0 {
		return "nothing"
	}
	return shortText(strings.Join(all, ", "))
}

// testKeys checks that the keys of the issuer can be fetched.
func (s *Service) testKeys(ctx context.Context, d *discovery, add func(string, bool, string)) {
	// The token is invalid, but the error of the library tells whether keys were fetched.
	const invalid = "eyJhbGciOiJSUzI1NiIsImtpZCI6Im5vbmUifQ.e30.AAAA"
	_, err := oidc.NewRemoteKeySet(s.upstream.context(ctx), d.metadata.Keys).VerifySignature(ctx, invalid)
	if err != nil && strings.Contains(err.Error(), "fetching keys") {
		add("keys", false, "its keys cannot be fetched")
		return
	}
	add("keys", true, "its keys can be fetched")
}

// testClient sends the provider an invalid code: it reports an unknown client
// before it reports that the code is wrong.
func (s *Service) testClient(
	ctx context.Context, d *discovery, p resource.IdentityProvider, add func(string, bool, string),
) {
	cfg, err := s.oauthConfig(d, p)
	if err != nil {
		add("client", false, "its client secret cannot be read; set it again")
		return
	}
	verifier := oauth2.VerifierOption(oauth2.GenerateVerifier())
	_, err = cfg.Exchange(s.upstream.context(ctx), "holdfast-test-"+newID(), verifier)
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case err == nil:
		add("client", false, "it takes any code at all")
	case ok && (refused.ErrorCode == "invalid_grant" || refused.ErrorCode == "invalid_request"):
		add("client", true, "it knows the client")
	default:
		add("client", false, tokenReason(err))
	}
}
