package provider

import (
	"context"
	"net/url"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
)

const (
	maxCode      = 4096             // longest code in bytes
	codeRemember = 15 * time.Minute // time for which a used code is remembered
)

// Accept checks an authorization response with the query parameters q, and returns the
// claims of the provider. own reports whether the response has arrived at the separate
// redirect URI of the provider. A response at a URI that the provider does not use is
// refused. Accept returns an *Error if the provider fails. Any other error means that the database is
// unavailable or the client secret cannot be opened.
func (c *Client) Accept(
	ctx context.Context, p resource.IdentityProvider, asked Request, q url.Values, own bool,
) (*Claims, error) {
	d, err := c.discover(ctx, p.OIDC.Issuer, false)
	if err != nil {
		return nil, err
	}
	redirectURI := c.redirectURI(d, p)
	switch shared := redirectURI == c.url(SharedRedirect); {
	case own && shared:
		return nil, &Error{"it responded at its own redirect URI, not at the shared one", nil}
	case !own && !shared:
		return nil, &Error{"it responded at the shared redirect URI, not at its own", nil}
	}
	if err := c.checkResponse(ctx, p, q); err != nil {
		return nil, err
	}
	code := q.Get("code")
	first, err := c.accounts.UseOnce(ctx, signindb.Digest("code "+code), c.cfg.Now().Add(codeRemember))
	if err != nil {
		return nil, err
	}
	if !first { // we have sent the code to another provider, which could now present it to us
		return nil, &Error{"its code was already used in another response", nil}
	}
	return c.redeem(ctx, p, asked, code, redirectURI)
}

// checkResponse checks the parameters of an authorization response. An issuer whose
// metadata announces the parameter iss must send it (RFC 9207). No parameter may occur twice
// (RFC 6749, 3.1), because another program in between may look at the other value. The error
// is an *Error.
func (c *Client) checkResponse(ctx context.Context, p resource.IdentityProvider, q url.Values) error {
	for _, name := range []string{"state", "code", "iss", "error"} {
		if len(q[name]) > 1 {
			return &Error{"its response has the parameter " + name + " twice", nil}
		}
	}
	iss, code := q.Get("iss"), q.Get("code")
	if iss != "" && iss != p.OIDC.Issuer {
		return &Error{"another issuer responded in its place", nil}
	}
	if why := q.Get("error"); why != "" {
		return &Error{"it responded with " + input.Short(why+" "+q.Get("error_description")), nil}
	}
	if d, err := c.discover(ctx, p.OIDC.Issuer, false); err == nil && d.metadata.SendsIssuer && iss == "" {
		return &Error{"its response lacks the parameter iss, which its metadata announces", nil}
	}
	if code == "" || len(code) > maxCode {
		return &Error{"it responded without a code", nil}
	}
	return nil
}
