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
	maxCode      = 4096
	codeRemember = 15 * time.Minute // how long a code cannot be used again
)

// Accept returns what a provider says in an authorization response. A
// response at the provider's own address is always accepted there, because the
// version before this one asks for it. Its error is an *Error, or an
// outage.
func (c *Client) Accept(
	ctx context.Context, p resource.IdentityProvider, asked Request, q url.Values, own bool,
) (*Claims, error) {
	redirectURI := c.ownRedirectURI(p.UID)
	if !own {
		d, err := c.discover(ctx, p.OIDC.Issuer, false)
		if err != nil {
			return nil, err
		}
		if redirectURI = c.redirectURI(d, p); redirectURI != c.at(SharedRedirect) {
			return nil, &Error{"it answered at the address of the other providers, not at its own", nil}
		}
	}
	if err := c.checkResponse(ctx, p, q); err != nil {
		return nil, err
	}
	code := q.Get("code")
	first, err := c.accounts.UseOnce(ctx, signindb.Digest("code "+code), c.cfg.Now().Add(codeRemember))
	if err != nil {
		return nil, err
	}
	if !first { // it was sent to another provider, which could now send it back to us
		return nil, &Error{"its code has come with another answer before", nil}
	}
	return c.redeem(ctx, p, asked, code, redirectURI)
}

// checkResponse checks the parameters of an authorization response. An issuer
// that announces to send iss must do so (RFC 9207). Its error is an
// *Error.
func (c *Client) checkResponse(ctx context.Context, p resource.IdentityProvider, q url.Values) error {
	iss, code := q.Get("iss"), q.Get("code")
	if iss != "" && iss != p.OIDC.Issuer {
		return &Error{"another issuer answered in its place", nil}
	}
	if why := q.Get("error"); why != "" {
		return &Error{"it answered " + input.Short(why+" "+q.Get("error_description")), nil}
	}
	if d, err := c.discover(ctx, p.OIDC.Issuer, false); err == nil && d.metadata.SendsIssuer && iss == "" {
		return &Error{"it did not say that it answered (iss), as it promises to", nil}
	}
	if code == "" || len(code) > maxCode {
		return &Error{"it answered without a code", nil}
	}
	return nil
}
