package provider

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
)

const (
	maxGroups = 1000 // greatest number of groups of a person
	maxGroup  = 256  // longest name of a group in bytes
)

// Claims are the claims of a provider about a person.
type Claims struct {
	Subject       string
	Email         string
	EmailVerified bool
	Name          string
	Groups        []string
	All           map[string]any // all claims, by name
	Raw           string         // the encoded ID token
}

// redeem exchanges an authorization code for the claims of the provider. redirectURI
// is the address at which the code has arrived. A failure of the provider is an
// *Error.
func (c *Client) redeem(
	ctx context.Context, p resource.IdentityProvider, asked Request, code, redirectURI string,
) (*Claims, error) {
	d, err := c.discover(ctx, p.OIDC.Issuer, false)
	if err != nil {
		return nil, err
	}
	cfg, err := c.oauthConfig(d, p)
	if err != nil {
		return nil, err
	}
	cfg.RedirectURL = redirectURI
	var options []oauth2.AuthCodeOption
	if usesPKCE(d, p) {
		options = append(options, oauth2.VerifierOption(asked.Verifier))
	}
	ctx = c.context(ctx)
	tokens, err := cfg.Exchange(ctx, code, options...)
	if err != nil {
		return nil, &Error{"it refused the code: " + tokenReason(err), nil}
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return nil, &Error{"it sent no ID token; check that the client is set up for OpenID Connect", nil}
	}
	id, err := d.Verifier(&oidc.Config{ClientID: p.OIDC.ClientID, Now: c.cfg.Now}).Verify(ctx, raw)
	if err != nil {
		return nil, &Error{"its ID token is not valid: " + verifyReason(err), nil}
	}
	if id.Nonce != asked.Nonce {
		return nil, &Error{"its ID token belongs to another request (nonce)", nil}
	}
	if id.AccessTokenHash != "" && id.VerifyAccessToken(tokens.AccessToken) != nil {
		return nil, &Error{"its ID token does not match its access token", nil}
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return nil, &Error{"the claims of its ID token cannot be read", nil}
	}
	signedIn, ok := claims["auth_time"].(float64)
	if ok && asked.MaxAge > 0 && c.cfg.Now().Unix()-int64(signedIn) > int64(asked.MaxAge.Seconds()) {
		return nil, &Error{"it did not ask you to sign in again", nil}
	}
	if err := c.addUserinfo(ctx, d, p, tokens, id.Subject, claims); err != nil {
		return nil, err
	}
	return readClaims(p, id, claims, raw)
}

// addUserinfo adds claims from the userinfo endpoint if the ID token lacks the e-mail
// address or the groups.
func (c *Client) addUserinfo(
	ctx context.Context, d *discovery, p resource.IdentityProvider, tokens *oauth2.Token,
	subject string, claims map[string]any,
) error {
	missing := claims["email"] == nil || p.OIDC.GroupsClaim != "" && claims[p.OIDC.GroupsClaim] == nil
	if !missing || d.metadata.Userinfo == "" {
		return nil
	}
	info, err := d.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	if err != nil {
		return &Error{"its userinfo endpoint failed: " + outbound.Reason(err), nil}
	}
	if info.Subject != subject {
		return &Error{"its userinfo endpoint describes another person", nil}
	}
	added := map[string]any{}
	if err := info.Claims(&added); err != nil {
		return &Error{"the response of its userinfo endpoint cannot be read", nil}
	}
	maps.Copy(added, claims) // claims of the ID token take precedence
	maps.Copy(claims, added)
	return nil
}

// readClaims returns the claims of an ID token, without claims that cannot be stored.
func readClaims(
	p resource.IdentityProvider, id *oidc.IDToken, claims map[string]any, raw string,
) (*Claims, error) {
	out := &Claims{Subject: id.Subject, All: claims, Raw: raw}
	if p.OIDC.ByObjectID() {
		if out.Subject, _ = claims["oid"].(string); out.Subject == "" {
			return nil, &Error{"its ID token lacks the claim oid, which identifies people of this provider", nil}
		}
	}
	if out.Subject == "" || len(out.Subject) > 2048 || !input.Readable(out.Subject) {
		return nil, &Error{"its ID token has no subject, or one that is too long or contains invalid characters", nil}
	}
	out.Email, _ = claims["email"].(string)
	if len(out.Email) > 254 || !input.Readable(out.Email) {
		out.Email = ""
	}
	switch v := claims["email_verified"].(type) { // some providers send a string
	case bool:
		out.EmailVerified = v
	case string:
		out.EmailVerified = v == "true"
	}
	out.Name, _ = claims["name"].(string)
	out.Groups = groupClaims(claims, p.OIDC.GroupsClaim)
	return out, nil
}

// groupClaims returns the groups in a claim, which is a list or a single group.
func groupClaims(claims map[string]any, name string) (groups []string) {
	if name == "" {
		return nil
	}
	values, ok := claims[name].([]any)
	if !ok {
		values = []any{claims[name]}
	}
	for _, v := range values {
		if g, ok := v.(string); ok && g != "" && len(g) <= maxGroup && len(groups) < maxGroups {
			groups = append(groups, g)
		}
	}
	return groups
}

// Text returns the value of a claim in the form that people see.
func Text(v any) string {
	if s, ok := v.(string); ok {
		return input.Short(s)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return input.Short(string(b))
}
