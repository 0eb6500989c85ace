package login

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/oauth2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
)

const (
	discoveryLife    = 10 * time.Minute
	maxCachedIssuers = 1000
	maxAnswer        = 1 << 20 // bytes of a response
	maxGroups        = 1000
	maxGroup         = 256
)

// An upstream is a client of the identity providers of organizations.
type upstream struct {
	client *http.Client
	now    func() time.Time
	cache  *lru.Cache[string, *discovery]
}

// A discovery is the discovery document of an issuer.
type discovery struct {
	*oidc.Provider
	at       time.Time
	metadata metadata
}

type metadata struct {
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Userinfo      string   `json:"userinfo_endpoint"`
	Keys          string   `json:"jwks_uri"`
	Challenges    []string `json:"code_challenge_methods_supported"`
	Scopes        []string `json:"scopes_supported"`
	ResponseTypes []string `json:"response_types_supported"`
	SendsIssuer   bool     `json:"authorization_response_iss_parameter_supported"`
}

func newUpstream(client *http.Client, now func() time.Time) *upstream {
	limited := *cmp.Or(client, outbound.Client(outbound.Config{}))
	limited.Transport = limitTransport{cmp.Or(limited.Transport, http.DefaultTransport)}
	cache, _ := lru.New[string, *discovery](maxCachedIssuers) // fails only for a size of 0
	return &upstream{client: &limited, now: now, cache: cache}
}

// A limitTransport limits the size of responses, because the libraries read
// them to their end.
type limitTransport struct{ next http.RoundTripper }

func (l limitTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

func (u *upstream) context(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, u.client)
}

// discover returns the discovery document of an issuer, from the cache unless
// refresh is true. Its error may be shown to people.
func (u *upstream) discover(ctx context.Context, issuer string, refresh bool) (*discovery, error) {
	d, ok := u.cache.Get(issuer)
	if ok && !refresh && u.now().Sub(d.at) < discoveryLife {
		return d, nil
	}
	// The keys are fetched later with this context, so it must outlive the request.
	p, err := oidc.NewProvider(u.context(context.WithoutCancel(ctx)), issuer)
	if err != nil {
		return nil, &upstreamError{"its discovery document at " + issuer +
			"/.well-known/openid-configuration cannot be used: " + discoveryReason(err), err}
	}
	d = &discovery{Provider: p, at: u.now()}
	if err := p.Claims(&d.metadata); err != nil {
		return nil, &upstreamError{"its discovery document is not of the right form", err}
	}
	if d.metadata.Authorization == "" || d.metadata.Token == "" {
		return nil, &upstreamError{"its discovery document has no authorization_endpoint or no token_endpoint", nil}
	}
	for _, e := range []string{d.metadata.Authorization, d.metadata.Token} {
		if at, err := url.Parse(e); err != nil || at.Scheme != "https" && !isLoopbackHost(at.Hostname()) {
			return nil, &upstreamError{"its discovery document names an endpoint that is not https", nil}
		}
	}
	u.cache.Add(issuer, d)
	return d, nil
}

func isLoopbackHost(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

// An upstreamError is a failure of a provider. Its text may be shown to
// people: it reveals nothing about our network or secrets.
type upstreamError struct {
	text  string
	cause error
}

func (e *upstreamError) Error() string { return e.text }
func (e *upstreamError) Unwrap() error { return e.cause }

func discoveryReason(err error) string {
	_, broken := errors.AsType[*url.Error](err)
	switch text := err.Error(); {
	case broken:
		return outbound.Reason(err)
	case strings.Contains(text, "issuer did not match"), strings.Contains(text, "issuer URL provided to client"):
		return "it is of another issuer; compare every character, a slash at the end too"
	case len(text) > 3 && text[3] == ' ': // the status of the response
		return "the answer was " + text[:3] + ", not 200"
	}
	return "it is not the JSON of one"
}

// oauthConfig returns the configuration of our OAuth client at a provider.
func (s *Service) oauthConfig(d *discovery, p resource.IdentityProvider) (*oauth2.Config, error) {
	clientSecret := ""
	if sealed := p.OIDC.ClientSecret.Sealed; len(sealed) > 0 {
		plain, err := s.cfg.Key.Open(secret.ForClientSecrets, sealed)
		if err != nil {
			return nil, err
		}
		clientSecret = string(plain)
	}
	if plain := p.OIDC.ClientSecret.Plain; plain != "" { // a secret that is only being tested
		clientSecret = plain
	}
	scopes := []string{oidc.ScopeOpenID}
	for _, scope := range slices.Concat([]string{"profile", "email"}, p.OIDC.AdditionalScopes) {
		if !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	endpoint := d.Endpoint()
	if clientSecret == "" {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: p.OIDC.ClientID, ClientSecret: clientSecret, Endpoint: endpoint,
		RedirectURL: s.redirectURI(d, p), Scopes: scopes,
	}, nil
}

// SharedRedirect is the path of the redirect URI that all providers share. It
// is known before a provider exists, so that a client can be registered first.
const SharedRedirect = "/oauth/callback"

// redirectURI returns the redirect URI of a provider: the one that all share,
// or one of its own, under which the response of another provider cannot
// arrive. d may be nil, if the provider cannot be asked.
func (s *Service) redirectURI(d *discovery, p resource.IdentityProvider) string {
	if sharesRedirect(d, p) {
		return s.at(SharedRedirect)
	}
	return s.ownRedirectURI(p.UID)
}

func (s *Service) ownRedirectURI(provider resource.UID) string {
	return s.at(SharedRedirect + "/" + lastSegment(provider))
}

// sharesRedirect reports whether a provider uses the shared redirect URI. At
// that address a malicious provider can have the response of another one
// passed off as its own, and so is sent a code of the other (RFC 9700, 4.4).
// The code is worthless to it if our client there has a secret, because here no
// code is accepted twice. A client without a secret shares the address only if
// its issuer names itself in responses, so that they are not mistaken.
func sharesRedirect(d *discovery, p resource.IdentityProvider) bool {
	return p.SharedRedirect && (!p.OIDC.ClientSecret.Empty() || d == nil || d.metadata.SendsIssuer)
}

func lastSegment(uid resource.UID) string {
	text := string(uid)
	return text[strings.LastIndexByte(text, '/')+1:]
}

// usesPKCE reports whether to use PKCE with a provider: whenever possible,
// because it makes a stolen or injected code worthless.
func usesPKCE(d *discovery, p resource.IdentityProvider) bool {
	return p.OIDC.PKCE || p.OIDC.ClientSecret.Empty() || slices.Contains(d.metadata.Challenges, "S256")
}

// providerClaims are the claims of a provider about a person.
type providerClaims struct {
	subject       string
	email         string
	emailVerified bool
	name          string
	groups        []string
	all           map[string]any
	raw           string // the encoded ID token
}

// redeem exchanges an authorization code, which has arrived at redirectURI, for
// the claims of the provider. Its error may be shown to people.
func (s *Service) redeem(
	ctx context.Context, p resource.IdentityProvider, f *flow, code, redirectURI string,
) (*providerClaims, error) {
	d, err := s.upstream.discover(ctx, p.OIDC.Issuer, false)
	if err != nil {
		return nil, err
	}
	cfg, err := s.oauthConfig(d, p)
	if err != nil {
		return nil, err
	}
	cfg.RedirectURL = redirectURI
	var options []oauth2.AuthCodeOption
	if usesPKCE(d, p) {
		options = append(options, oauth2.VerifierOption(f.Verifier))
	}
	ctx = s.upstream.context(ctx)
	tokens, err := cfg.Exchange(ctx, code, options...)
	if err != nil {
		return nil, &upstreamError{"it did not take the code back: " + tokenReason(err), nil}
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return nil, &upstreamError{"it gave no ID token; is the client set up for OpenID Connect?", nil}
	}
	id, err := d.Verifier(&oidc.Config{ClientID: p.OIDC.ClientID, Now: s.cfg.Now}).Verify(ctx, raw)
	if err != nil {
		return nil, &upstreamError{"its ID token is not good: " + verifyReason(err), nil}
	}
	if id.Nonce != f.Nonce {
		return nil, &upstreamError{"its ID token is not the answer to this question (nonce)", nil}
	}
	if id.AccessTokenHash != "" && id.VerifyAccessToken(tokens.AccessToken) != nil {
		return nil, &upstreamError{"its ID token does not go with its access token", nil}
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return nil, &upstreamError{"the claims of its ID token cannot be read", nil}
	}
	if at, ok := claims["auth_time"].(float64); ok && f.Again && s.now().Unix()-int64(at) > int64(freshTime.Seconds()) {
		return nil, &upstreamError{"it did not ask you to sign in again", nil}
	}
	if err := s.addUserinfo(ctx, d, p, tokens, id.Subject, claims); err != nil {
		return nil, err
	}
	return readClaims(p, id, claims, raw)
}

// addUserinfo adds the claims of the userinfo endpoint that the ID token
// lacks.
func (s *Service) addUserinfo(
	ctx context.Context, d *discovery, p resource.IdentityProvider, tokens *oauth2.Token,
	subject string, claims map[string]any,
) error {
	missing := claims["email"] == nil || p.OIDC.GroupsClaim != "" && claims[p.OIDC.GroupsClaim] == nil
	if !missing || d.metadata.Userinfo == "" {
		return nil
	}
	info, err := d.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	if err != nil {
		return &upstreamError{"it does not say who this is: " + outbound.Reason(err), nil}
	}
	if info.Subject != subject {
		return &upstreamError{"its userinfo endpoint speaks of somebody else", nil}
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil {
		return &upstreamError{"its userinfo cannot be read", nil}
	}
	maps.Copy(more, claims)
	maps.Copy(claims, more)
	return nil
}

func readClaims(
	p resource.IdentityProvider, id *oidc.IDToken, claims map[string]any, raw string,
) (*providerClaims, error) {
	out := &providerClaims{subject: id.Subject, all: claims, raw: raw}
	if p.OIDC.ByObjectID() {
		if out.subject, _ = claims["oid"].(string); out.subject == "" {
			return nil, &upstreamError{"its ID token has no oid, which its people are known by", nil}
		}
	}
	if out.subject == "" || len(out.subject) > 2048 || !readable(out.subject) {
		return nil, &upstreamError{"its ID token has no subject that can be kept", nil}
	}
	out.email, _ = claims["email"].(string)
	if len(out.email) > 254 || !readable(out.email) {
		out.email = ""
	}
	switch v := claims["email_verified"].(type) { // a string with some providers
	case bool:
		out.emailVerified = v
	case string:
		out.emailVerified = v == "true"
	}
	out.name, _ = claims["name"].(string)
	out.groups = groupClaims(claims, p.OIDC.GroupsClaim)
	return out, nil
}

// groupClaims reads the groups of a claim, which is a list or a single group.
func groupClaims(claims map[string]any, name string) (all []string) {
	if name == "" {
		return nil
	}
	values, ok := claims[name].([]any)
	if !ok {
		values = []any{claims[name]}
	}
	for _, v := range values {
		if g, ok := v.(string); ok && g != "" && len(g) <= maxGroup && len(all) < maxGroups {
			all = append(all, g)
		}
	}
	return all
}

// tokenReason describes why a code was refused, in the provider's own words if
// it has any.
func tokenReason(err error) string {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return outbound.Reason(err)
	}
	switch refused.ErrorCode {
	case "invalid_client", "unauthorized_client":
		return "it does not know this client, or the client secret is wrong (" + refused.ErrorCode + ")"
	case "invalid_grant":
		return "the code is not good, or no longer (invalid_grant)"
	case "":
		if refused.Response != nil {
			return fmt.Sprintf("the answer was %d", refused.Response.StatusCode)
		}
		return "the answer cannot be read"
	}
	return shortText(refused.ErrorCode + " " + refused.ErrorDescription)
}

func verifyReason(err error) string {
	_, expired := errors.AsType[*oidc.TokenExpiredError](err)
	switch text := err.Error(); {
	case expired:
		return "it has expired"
	case strings.Contains(text, "audience"):
		return "it is for another client"
	case strings.Contains(text, "issued by a different provider"):
		return "it is of another issuer"
	case strings.Contains(text, "signature"), strings.Contains(text, "keys"):
		return "its signature cannot be verified"
	}
	return "it is malformed"
}

// shortText sanitizes and shortens a text from elsewhere.
func shortText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return strings.TrimSpace(s)
}

// claimText returns a claim as text.
func claimText(v any) string {
	if s, ok := v.(string); ok {
		return shortText(s)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return shortText(string(b))
}
