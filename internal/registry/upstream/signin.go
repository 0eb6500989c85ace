package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream/challenge"
)

// tokenKey identifies a token by the key of the registry's settings and by the scope.
type tokenKey struct{ registry, scope string }

// A grant is an Authorization header that a registry accepts, and the time at which it expires.
type grant struct {
	header string
	until  time.Time
}

const (
	tokenMargin  = 10 * time.Second // a token is not used any more this long before it expires
	longestToken = time.Hour        // longest time for which a token is used, whatever the realm says
)

func (c *Client) cached(r Registry, scope string) string {
	g, ok := c.tokens.Get(tokenKey{r.Key, scope})
	if !ok || !c.now().Before(g.until) {
		return ""
	}
	return g.header
}

func (c *Client) keep(r Registry, scope, header string, life time.Duration) {
	life = min(max(life-tokenMargin, life/2), longestToken)
	c.tokens.Add(tokenKey{r.Key, scope}, grant{header, c.now().Add(life)})
}

// authenticate gets and caches the credentials that a challenge asks for.
func (c *Client) authenticate(ctx context.Context, r Registry, header, scope string) error {
	asks := challenge.Parse(header)
	refused := func(reason string) error { return &Error{Status: http.StatusUnauthorized, Reason: reason} }
	user, password := "", ""
	if r.SignIn != nil {
		var err error
		if user, password, err = r.SignIn(ctx); err != nil {
			return &Error{Reason: "its credentials cannot be used", Cause: err}
		}
	}
	if asks.Scheme == "basic" && user != "" {
		req := &http.Request{Header: http.Header{}}
		req.SetBasicAuth(user, password)
		c.keep(r, scope, req.Header.Get("Authorization"), longestToken)
		return nil
	}
	realm, ok := asks.Realm()
	if !ok {
		return refused("it asks for credentials")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, asks.Address(realm, scope), nil)
	if err != nil {
		return refused("it names no address for tokens")
	}
	if user != "" {
		if !trusts(r, realm) {
			return refused("it wants its password to be sent to another host than the upstream names")
		}
		req.SetBasicAuth(user, password)
	}
	return c.fetchToken(req, r, scope)
}

// tokenTimeout limits a request for a token.
const tokenTimeout = 10 * time.Second

// fetchToken requests a token from a realm. It does not follow redirects.
func (c *Client) fetchToken(req *http.Request, r Registry, scope string) error {
	ctx, cancel := context.WithTimeout(req.Context(), tokenTimeout)
	defer cancel()
	resp, err := c.http.Do(req.WithContext(ctx))
	if err != nil {
		return &Error{Reason: outbound.Reason(err), Cause: err}
	}
	defer discard(resp)
	if resp.StatusCode != http.StatusOK {
		e := c.refusal(resp)
		e.Cause = errors.Join(errors.New("it gives no token"), e.Cause)
		if e.Status == http.StatusNotFound { // the realm does not exist; the image may exist
			e.Status, e.Reason = 0, "it gives no token"
		}
		return e
	}
	t, err := challenge.ReadToken(resp.Body, maxToken)
	if err != nil {
		return &Error{Reason: "it gives no token", Cause: err}
	}
	c.keep(r, scope, "Bearer "+t.Text, t.Life)
	return nil
}

// trusts reports whether the password may be sent to a realm. The realm must be on the host of the registry, or be
// the realm in the settings.
func trusts(r Registry, realm *url.URL) bool {
	address, err := url.Parse(r.Address)
	if err != nil {
		return false
	}
	if realm.Scheme == address.Scheme && realm.Host == address.Host {
		return true
	}
	named, err := url.Parse(r.Realm)
	return r.Realm != "" && err == nil &&
		realm.Scheme == named.Scheme && realm.Host == named.Host && realm.Path == named.Path
}
