package provider

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
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
	TrialURL    string // address of a trial sign-in that shows the claims; "" if the provider is not stored
}

// Test tests a provider without anybody signing in. It leaves TrialURL empty.
func (c *Client) Test(ctx context.Context, p resource.IdentityProvider) (v Verdict) {
	add := func(name string, ok bool, detail string) {
		v.Findings = append(v.Findings, Finding{name, ok, detail})
	}
	d, err := c.discover(ctx, p.OIDC.Issuer, true)
	v.RedirectURI = c.redirectURI(d, p)
	if err != nil {
		add("discovery", false, err.Error()) // err is an *Error, which may be shown
		return v
	}
	add("discovery", true, "the discovery document can be read")
	if types := d.metadata.ResponseTypes; len(types) > 0 {
		add("code", slices.Contains(types, "code"), "it supports the response types: "+strings.Join(types, ", "))
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
		add("redirect", false, "a client without a secret has a separate redirect URI here, "+
			"because the issuer does not identify itself in its responses (RFC 9207)")
	}
	c.testKeys(ctx, d, add)
	c.testClient(ctx, d, p, add)
	v.Ready = !slices.ContainsFunc(v.Findings, func(f Finding) bool {
		return !f.OK && f.Name != "scopes" && f.Name != "redirect"
	})
	return v
}

func orNothing(values []string) string {
	if len(values) == 0 {
		return "nothing"
	}
	return input.Short(strings.Join(values, ", "))
}

// testKeys checks that the keys of the issuer can be fetched.
func (c *Client) testKeys(ctx context.Context, d *discovery, add func(string, bool, string)) {
	// The token is invalid. The error of the library shows whether it could fetch the keys.
	const invalid = "eyJhbGciOiJSUzI1NiIsImtpZCI6Im5vbmUifQ.e30.AAAA"
	_, err := oidc.NewRemoteKeySet(c.context(ctx), d.metadata.Keys).VerifySignature(ctx, invalid)
	if err != nil && strings.Contains(err.Error(), "fetching keys") {
		add("keys", false, "its keys cannot be fetched")
		return
	}
	add("keys", true, "its keys can be fetched")
}

// testClient checks that the provider knows our client. It sends an invalid code, and
// the provider reports an unknown client before it reports that the code is wrong.
func (c *Client) testClient(
	ctx context.Context, d *discovery, p resource.IdentityProvider, add func(string, bool, string),
) {
	cfg, err := c.oauthConfig(d, p)
	if err != nil {
		add("client", false, "its client secret cannot be read; set it again")
		return
	}
	verifier := oauth2.VerifierOption(oauth2.GenerateVerifier())
	_, err = cfg.Exchange(c.context(ctx), "holdfast-test-"+rand.Text(), verifier)
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case err == nil:
		add("client", false, "it accepts any code")
	case ok && (refused.ErrorCode == "invalid_grant" || refused.ErrorCode == "invalid_request"):
		add("client", true, "it knows the client")
	default:
		add("client", false, tokenReason(err))
	}
}
