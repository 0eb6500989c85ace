// Package provider is an OpenID Connect client of the identity providers of
// organizations. It sends people there to sign in, reads the claims that come
// back, and tests whether a provider is set up correctly.
package provider

import (
	"cmp"
	"context"
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
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
)

const (
	discoveryLife    = 10 * time.Minute
	maxCachedIssuers = 1000
	maxResponse      = 1 << 20 // largest response in bytes
)

// A Client is a client of identity providers. It is safe for concurrent use.
type Client struct {
	cfg      Config
	client   *http.Client
	accounts *signindb.Store // remembers codes that were used
	cache    *lru.Cache[string, *discovery]
}

// Config configures a Client.
type Config struct {
	Issuer string       // our own address, and the base of redirect URIs
	Key    secret.Key   // opens client secrets
	Client *http.Client // client for addresses that tenants choose; nil is outbound.Client
	Now    func() time.Time
}

// A discovery is the discovery document of an issuer.
type discovery struct {
	*oidc.Provider
	fetched  time.Time
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

// New returns a client. accounts remembers the codes that were used.
func New(accounts *signindb.Store, cfg Config) *Client {
	limited := *cmp.Or(cfg.Client, outbound.Client(outbound.Config{}))
	limited.Transport = limitTransport{cmp.Or(limited.Transport, http.DefaultTransport)}
	cache, _ := lru.New[string, *discovery](maxCachedIssuers) // lru.New fails only for a size of 0
	return &Client{cfg: cfg, client: &limited, accounts: accounts, cache: cache}
}

// A limitTransport limits the size of responses, because the OAuth and OpenID
// libraries read them completely.
type limitTransport struct{ next http.RoundTripper }

func (l limitTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxResponse)
	}
	return resp, err
}

// context returns ctx with the HTTP client for the OAuth and OpenID libraries.
func (c *Client) context(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, c.client)
}

// discover returns the discovery document of an issuer. It uses the cache unless
// refresh is true. Its error is an *Error.
func (c *Client) discover(ctx context.Context, issuer string, refresh bool) (*discovery, error) {
	d, ok := c.cache.Get(issuer)
	if ok && !refresh && c.cfg.Now().Sub(d.fetched) < discoveryLife {
		return d, nil
	}
	// The keys are fetched later with this context, so it must outlive the request.
	p, err := oidc.NewProvider(c.context(context.WithoutCancel(ctx)), issuer)
	if err != nil {
		return nil, &Error{"its discovery document at " + issuer +
			"/.well-known/openid-configuration cannot be used: " + discoveryReason(err), err}
	}
	d = &discovery{Provider: p, fetched: c.cfg.Now()}
	if err := p.Claims(&d.metadata); err != nil {
		return nil, &Error{"its discovery document has fields of the wrong type", err}
	}
	if d.metadata.Authorization == "" || d.metadata.Token == "" {
		return nil, &Error{"its discovery document has no authorization_endpoint or no token_endpoint", nil}
	}
	for _, e := range []string{d.metadata.Authorization, d.metadata.Token} {
		if u, err := url.Parse(e); err != nil || u.Scheme != "https" && !input.IsLoopbackHost(u.Hostname()) {
			return nil, &Error{"its discovery document names an endpoint without https", nil}
		}
	}
	c.cache.Add(issuer, d)
	return d, nil
}

// oauthConfig returns the configuration of our OAuth client at a provider.
func (c *Client) oauthConfig(d *discovery, p resource.IdentityProvider) (*oauth2.Config, error) {
	clientSecret := ""
	if sealed := p.OIDC.ClientSecret.Sealed; len(sealed) > 0 {
		plain, err := c.cfg.Key.Open(secret.ForClientSecrets, sealed)
		if err != nil {
			return nil, err
		}
		clientSecret = string(plain)
	}
	if plain := p.OIDC.ClientSecret.Plain; plain != "" { // then the provider is tested before it is created
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
		RedirectURL: c.redirectURI(d, p), Scopes: scopes,
	}, nil
}

// url returns the public address of one of our paths.
func (c *Client) url(path string) string { return strings.TrimSuffix(c.cfg.Issuer, "/") + path }

// SharedRedirect is the path of the redirect URI that providers share. It is known
// before a provider is created here, so that our client can be registered at the
// provider first.
const SharedRedirect = "/oauth/callback"

// redirectURI returns the redirect URI of a provider. It is the shared URI or a
// separate one, at which responses of other providers are not accepted. d may be nil
// if the provider cannot be reached.
func (c *Client) redirectURI(d *discovery, p resource.IdentityProvider) string {
	if sharesRedirect(d, p) {
		return c.url(SharedRedirect)
	}
	return c.ownRedirectURI(p.UID)
}

// ownRedirectURI returns the separate redirect URI of a provider.
func (c *Client) ownRedirectURI(provider resource.UID) string {
	return c.url(SharedRedirect + "/" + LastSegment(provider))
}

// sharesRedirect reports whether a provider uses the shared redirect URI. There, a
// malicious provider can pass off the response of an honest provider as its own, so
// that we send it the code of the honest provider (RFC 9700, 4.4). If our client at
// the honest provider has a secret, the attacker cannot use the code, because we
// accept no code twice. A client without a secret uses the shared URI only if its
// issuer identifies itself in responses (RFC 9207), because then a response cannot be
// attributed to another provider.
func sharesRedirect(d *discovery, p resource.IdentityProvider) bool {
	return p.SharedRedirect && (!p.OIDC.ClientSecret.Empty() || d == nil || d.metadata.SendsIssuer)
}

// LastSegment returns the last segment of a UID. A separate redirect URI ends with it.
func LastSegment(uid resource.UID) string {
	text := string(uid)
	return text[strings.LastIndexByte(text, '/')+1:]
}

// usesPKCE reports whether to use PKCE with a provider. It is used whenever possible,
// because a stolen or injected code is useless without the verifier.
func usesPKCE(d *discovery, p resource.IdentityProvider) bool {
	return p.OIDC.PKCE || p.OIDC.ClientSecret.Empty() || slices.Contains(d.metadata.Challenges, "S256")
}

// A Request holds the values that an authorization request and its response share.
type Request struct {
	State    string
	Nonce    string        // must be in the ID token
	Verifier string        // PKCE code verifier
	MaxAge   time.Duration // if not 0, the person must sign in at the provider, at most this long before the response
}

// NewVerifier returns a new PKCE code verifier.
func NewVerifier() string { return oauth2.GenerateVerifier() }

// AuthCodeURL returns the address of an authorization request to p. It returns an
// *Error if the provider fails. Any other error means that the client secret cannot be
// opened.
func (c *Client) AuthCodeURL(ctx context.Context, p resource.IdentityProvider, q Request) (string, error) {
	d, err := c.discover(ctx, p.OIDC.Issuer, false)
	if err != nil {
		return "", err
	}
	cfg, err := c.oauthConfig(d, p)
	if err != nil {
		return "", err
	}
	options := []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("nonce", q.Nonce)}
	if q.MaxAge > 0 { // otherwise a provider that has a session of the person does not ask them to sign in
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	if usesPKCE(d, p) {
		options = append(options, oauth2.S256ChallengeOption(q.Verifier))
	}
	return cfg.AuthCodeURL(q.State, options...), nil
}
