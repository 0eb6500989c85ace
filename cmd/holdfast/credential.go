package main

import (
	"cmp"
	"context"
	"net/url"
	"os"
	"strings"

	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
)

// A credential is the token to show to a server, and the way to get another.
type credential struct {
	token string
	renew func(ctx context.Context, old string) (string, error) // nil: there is none
}

// credential finds what to show to a server: a token that is given, that of an
// identity which the settings name, or that of the session. None is "".
func (a *app) credential(ctx context.Context, api string) (credential, error) {
	token, _, err := a.givenToken()
	if err != nil || token != "" {
		return credential{token: token}, err
	}
	s, err := a.signIn(api)
	if err != nil {
		return credential{}, err
	}
	identity, err := a.value("identity")
	if err != nil {
		return credential{}, err
	}
	renew := s.renew
	if identity.value != "" && identity.value != s.Identity {
		return a.assumed(ctx, s.audience, identity.value)
	}
	token, err = s.token(ctx)
	return credential{token, renew}, err
}

// assumed is the credential of an identity that the settings name. Nothing of it
// is kept, and no session is touched: a pipeline leaves nothing behind.
func (a *app) assumed(ctx context.Context, audience, identity string) (credential, error) {
	issuer, err := a.issuer()
	if err != nil {
		return credential{}, err
	}
	again := func(ctx context.Context, _ string) (string, error) {
		own, err := a.workloadToken(ctx, "", want{issuer, identity})
		if err != nil {
			return "", err
		}
		answer, err := a.exchange(ctx, issuer, own, &oidcpb.ExchangeRequest{Aud: []string{audience}, Identity: identity})
		return answer.GetToken(), err
	}
	token, err := again(ctx, "")
	return credential{token, again}, err
}

// givenToken is the token that a flag, variable or setting gives, and which.
func (a *app) givenToken() (token, origin string, err error) {
	file, err := a.value("token_file")
	if err != nil {
		return "", "", err
	}
	fromEnv := os.Getenv("HOLDFAST_TOKEN")
	switch {
	case a.flags.tokenFile == "" && fromEnv != "":
		token, origin = strings.TrimSpace(fromEnv), "HOLDFAST_TOKEN"
	case file.value != "":
		text, err := os.ReadFile(file.value)
		if err != nil {
			return "", "", usage("%s: %v", file.origin, err)
		}
		token, origin = strings.TrimSpace(string(text)), file.origin
	default:
		return "", "", nil
	}
	if !isToken(token) {
		return "", "", usage("%s: is not a token", origin)
	}
	return token, origin, nil
}

// tokenOrigin tells where the token for a server comes from, "" if there is
// none. It asks nobody for one.
func (a *app) tokenOrigin(api string) (string, error) {
	_, origin, err := a.givenToken()
	if err != nil || origin != "" {
		return origin, err
	}
	s, err := a.signIn(api)
	if err != nil {
		return "", err
	}
	identity, err := a.value("identity")
	if err != nil || (identity.value != "" && identity.value != s.Identity) {
		return identity.origin, err
	}
	t, err := s.vault().read(s.audience)
	if err != nil || t == (tokens{}) {
		return "", err
	}
	return "the session at " + s.audience, nil
}

// issuer is the address of the token issuer.
func (a *app) issuer() (string, error) {
	api, err := a.server()
	if err != nil {
		return "", err
	}
	issuer, err := a.value("issuer")
	return audienceOf(cmp.Or(issuer.value, api.value)), err
}

// registry is the host of the registry, which is also what its tokens are for.
func (a *app) registry() (string, error) {
	api, err := a.server()
	if err != nil {
		return "", err
	}
	registry, err := a.value("registry")
	return cmp.Or(registry.value, hostOf(audienceOf(api.value))), err
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}
