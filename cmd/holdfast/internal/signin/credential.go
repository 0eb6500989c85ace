package signin

import (
	"cmp"
	"context"
	"net/url"
	"os"
	"strings"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// A credential implements holdfast.Credential for one audience.
type credential struct {
	audience string         // audience of the tokens; if "", the API
	issuer   string         // address of the issuer; if "", the server
	vault    holdfast.Vault // stores tokens between runs; if nil, tokens are not stored
	next     func(ctx context.Context, issuer *holdfast.Issuer, before tokens) (tokens, error)
}

// Next gets the next tokens. Its error is a problem.Problem if it can add hints to the
// server's message.
func (c *credential) Next(ctx context.Context, issuer *holdfast.Issuer, before tokens) (tokens, error) {
	return c.next(ctx, issuer, before)
}

// credential returns the credential for a server: a given token, the identity in the
// settings, or the session. It returns nil if there is none.
func (a *Agent) credential(api string) (*credential, error) {
	token, _, err := a.givenToken()
	if err != nil {
		return nil, err
	}
	if token != "" {
		return &credential{next: holdfast.Token(token).Next}, nil
	}
	s, assumed, err := a.actor(api)
	if err != nil {
		return nil, err
	}
	if assumed != "" {
		return a.assumed(s.audience, assumed)
	}
	t, err := s.vault().read(s.audience)
	if err != nil || t == (tokens{}) {
		return nil, err
	}
	return s.credential(), nil
}

// actor returns the session at a server. If the settings name another identity than the
// session's, it also returns the UID of that identity.
func (a *Agent) actor(api string) (s *signIn, other string, err error) {
	if s, err = a.signIn(api); err != nil {
		return nil, "", err
	}
	identity, err := a.Value("identity")
	if err != nil || identity.Text == s.Identity {
		return s, "", err
	}
	return s, identity.Text, nil
}

// TokenFor returns a token for an audience, or for the API if audience is "". It uses the
// same credential as a call.
func (a *Agent) TokenFor(ctx context.Context, audience string) (string, error) {
	api, err := a.Server()
	if err != nil {
		return "", err
	}
	if audience = cmp.Or(audience, holdfast.Audience(api.Text)); checkAudience(audience) != nil {
		return "", checkAudience(audience)
	}
	cred, err := a.credentialFor(ctx, api.Text, audience)
	if err != nil {
		return "", err
	}
	if cred == nil {
		return "", noSession(api.Text)
	}
	c, err := a.connect(api, cred)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.token(ctx)
}

func noSession(api string) *problem.Problem {
	return problem.New(problem.ExitUnauthenticated, "there is no session at %s", api).Hint(noTokenHint)
}

// credentialFor returns the credential for an audience. If the audience is not the API,
// the credential exchanges a proof of the identity, or else a token of the API.
func (a *Agent) credentialFor(ctx context.Context, api, audience string) (*credential, error) {
	if audience == holdfast.Audience(api) {
		return a.credential(api)
	}
	given, _, err := a.givenToken()
	if err != nil {
		return nil, err
	}
	if given != "" {
		return a.workload(audience, holdfast.Workload{Proof: proven(given)})
	}
	s, assumed, err := a.actor(api)
	if err != nil {
		return nil, err
	}
	if assumed != "" {
		return a.assumed(audience, assumed)
	}
	if s.proves() {
		return s.credentialFor(audience, s.assume), nil
	}
	token, err := a.TokenFor(ctx, s.audience)
	if err != nil {
		return nil, err
	}
	exchange := func(ctx context.Context, issuer *holdfast.Issuer, _ tokens) (tokens, error) {
		return a.exchange(ctx, issuer, holdfast.Workload{Proof: proven(token)})
	}
	return s.credentialFor(audience, exchange), nil
}

// givenToken returns the token of a flag, variable or setting, and its origin.
func (a *Agent) givenToken() (token, origin string, err error) {
	file, err := a.Value("token_file")
	if err != nil {
		return "", "", err
	}
	fromEnv := os.Getenv("HOLDFAST_TOKEN")
	switch {
	case *a.Flag("token_file") == "" && fromEnv != "":
		token, origin = strings.TrimSpace(fromEnv), "HOLDFAST_TOKEN"
	case file.Text != "":
		text, err := os.ReadFile(file.Text)
		if err != nil {
			return "", "", problem.Usage("%s: %v", file.Origin, err)
		}
		token, origin = strings.TrimSpace(string(text)), file.Origin
	default:
		return "", "", nil
	}
	if !holdfast.IsToken(token) {
		return "", "", problem.Usage("%s: is not a token", origin)
	}
	return token, origin, nil
}

// TokenOrigin returns the origin of the token for a server, or "" if there is none. It
// makes no calls.
func (a *Agent) TokenOrigin(api string) (string, error) {
	_, origin, err := a.givenToken()
	if err != nil || origin != "" {
		return origin, err
	}
	s, assumed, err := a.actor(api)
	if err != nil {
		return "", err
	}
	if assumed != "" {
		identity, err := a.Value("identity")
		return identity.Origin, err
	}
	t, err := s.vault().read(s.audience)
	if err != nil || t == (tokens{}) {
		return "", err
	}
	return "the session at " + s.audience, nil
}

// Issuer returns the address of the token issuer.
func (a *Agent) Issuer() (string, error) {
	api, err := a.Server()
	if err != nil {
		return "", err
	}
	issuer, err := a.Value("issuer")
	return holdfast.Audience(cmp.Or(issuer.Text, api.Text)), err
}

// RegistryAddress returns the host of the registry. It is also the audience of the
// registry's tokens.
func (a *Agent) RegistryAddress() (string, error) {
	api, err := a.Server()
	if err != nil {
		return "", err
	}
	registry, err := a.Value("registry")
	return cmp.Or(registry.Text, hostOf(holdfast.Audience(api.Text))), err
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}
