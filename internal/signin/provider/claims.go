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
	maxGroups = 1000
	maxGroup  = 256
)

// Claims are the claims of a provider about a person.
type Claims struct {
	Subject       string
	Email         string
	EmailVerified bool
	Name          string
	Groups        []string
	All           map[string]any
	Raw           string // the encoded ID token
}

// redeem exchanges an authorization code, which has arrived at redirectURI, for
// the claims of the provider. Its error may be shown to people.
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
		return nil, &Error{"it did not take the code back: " + tokenReason(err), nil}
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return nil, &Error{"it gave no ID token; is the client set up for OpenID Connect?", nil}
	}
	id, err := d.Verifier(&oidc.Config{ClientID: p.OIDC.ClientID, Now: c.cfg.Now}).Verify(ctx, raw)
	if err != nil {
		return nil, &Error{"its ID token is not good: " + verifyReason(err), nil}
	}
	if id.Nonce != asked.Nonce {
		return nil, &Error{"its ID token is not the answer to this question (nonce)", nil}
	}
	if id.AccessTokenHash != "" && id.VerifyAccessToken(tokens.AccessToken) != nil {
		return nil, &Error{"its ID token does not go with its access token", nil}
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return nil, &Error{"the claims of its ID token cannot be read", nil}
	}
	if at, ok := claims["auth_time"].(float64); ok && asked.MaxAge > 0 && c.cfg.Now().Unix()-int64(at) > int64(asked.MaxAge.Seconds()) {
		return nil, &Error{"it did not ask you to sign in again", nil}
	}
	if err := c.addUserinfo(ctx, d, p, tokens, id.Subject, claims); err != nil {
		return nil, err
	}
	return readClaims(p, id, claims, raw)
}

// addUserinfo adds the claims of the userinfo endpoint that the ID token
// lacks.
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
		return &Error{"it does not say who this is: " + outbound.Reason(err), nil}
	}
	if info.Subject != subject {
		return &Error{"its userinfo endpoint speaks of somebody else", nil}
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil {
		return &Error{"its userinfo cannot be read", nil}
	}
	maps.Copy(more, claims)
	maps.Copy(claims, more)
	return nil
}

func readClaims(
	p resource.IdentityProvider, id *oidc.IDToken, claims map[string]any, raw string,
) (*Claims, error) {
	out := &Claims{Subject: id.Subject, All: claims, Raw: raw}
	if p.OIDC.ByObjectID() {
		if out.Subject, _ = claims["oid"].(string); out.Subject == "" {
			return nil, &Error{"its ID token has no oid, which its people are known by", nil}
		}
	}
	if out.Subject == "" || len(out.Subject) > 2048 || !input.Readable(out.Subject) {
		return nil, &Error{"its ID token has no subject that can be kept", nil}
	}
	out.Email, _ = claims["email"].(string)
	if len(out.Email) > 254 || !input.Readable(out.Email) {
		out.Email = ""
	}
	switch v := claims["email_verified"].(type) { // a string with some providers
	case bool:
		out.EmailVerified = v
	case string:
		out.EmailVerified = v == "true"
	}
	out.Name, _ = claims["name"].(string)
	out.Groups = groupClaims(claims, p.OIDC.GroupsClaim)
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

// Text returns the value of a claim as it is shown to people.
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
