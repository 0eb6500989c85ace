package signin

import (
	"cmp"
	"context"
	"strings"
	"time"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
)

// A Status is what `auth status` prints.
type Status struct {
	API      string `json:"api" yaml:"api"`
	Issuer   string `json:"issuer" yaml:"issuer"`
	Identity string `json:"identity" yaml:"identity"`
	Name     string `json:"name,omitempty" yaml:"name,omitempty"` // of the identity, if the server was asked
	Email    string `json:"email,omitempty" yaml:"email,omitempty"`
	Actor    string `json:"actor,omitempty" yaml:"actor,omitempty"`       // who the token's issuer knows as the identity
	Provider string `json:"provider,omitempty" yaml:"provider,omitempty"` // the identity provider that vouched for them

	// ProviderPath is what people call the provider.
	ProviderPath string `json:"providerPath,omitempty" yaml:"providerPath,omitempty"`

	Expiry  string `json:"expiry" yaml:"expiry"`
	Expired bool   `json:"expired" yaml:"expired"`
	Kept    string `json:"kept" yaml:"kept"`
	Renews  string `json:"renews" yaml:"renews"`
	Session string `json:"session,omitempty" yaml:"session,omitempty"` // what the server says of it, if it was asked
	Ended   bool   `json:"ended" yaml:"ended"`
}

// KeptNowhere is where the token is that is exchanged for at every command.
const KeptNowhere = "nowhere"

// Self returns the uid of the identity that commands act as.
func (a *Agent) Self(ctx context.Context) (string, error) {
	token, err := a.TokenFor(ctx, "")
	if err != nil {
		return "", err
	}
	c, ok := holdfast.ReadClaims(token)
	if !ok || c.Subject == "" {
		return "", problem.New(problem.ExitUnauthenticated, "the token does not say who you are")
	}
	return c.Subject, nil
}

// UsesSession reports whether commands act in the session of the server, not with a token
// or as an identity that the settings name.
func (a *Agent) UsesSession() bool {
	api, err := a.Server()
	if err != nil {
		return false
	}
	token, _, err := a.givenToken()
	if err != nil || token != "" {
		return false
	}
	_, other, err := a.actor(api.Text)
	return err == nil && other == ""
}

// callerName returns what people call an identity that has just signed in, or its uid if the server does not tell.
func (a *Agent) callerName(ctx context.Context, uid string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if !a.UsesSession() { // the server would be asked by somebody else
		return uid
	}
	got, err := accesspb.NewAccessServiceClient(a).LookupNames(ctx, &accesspb.LookupNamesRequest{Uids: []string{uid}})
	if err != nil || len(got.GetNames()) != 1 {
		return uid
	}
	return Title(got.GetNames()[0])
}

// Title returns what people read of a name: for somebody in a group, the path too.
func Title(n *accesspb.ResourceName) string {
	title := cmp.Or(n.GetDisplayName(), n.GetName())
	if strings.Contains(n.GetPath(), "/") && n.GetDisplayName() != "" {
		return title + " (" + n.GetPath() + ")"
	}
	if strings.Contains(n.GetPath(), "/") {
		return n.GetPath()
	}
	return title
}

// Status reads the token that the next command would begin with, and asks nobody.
func (a *Agent) Status() (st Status, err error) {
	_, issuer, s, err := a.target()
	if err != nil {
		return st, err
	}
	st.API, st.Issuer = s.audience, issuer
	token, origin, err := a.givenToken()
	if err != nil {
		return st, err
	}
	st.Kept = origin
	identity, err := a.Value("identity")
	if err != nil {
		return st, err
	}
	switch {
	case token != "":
	case identity.Text != "" && identity.Text != s.Identity:
		st.Identity, st.Kept, st.Renews = identity.Text, KeptNowhere,
			"by an exchange at every command, because of "+identity.Origin
		return st, nil
	default:
		t, err := s.vault().read(s.audience)
		if err != nil {
			return st, err
		}
		token, st.Kept, st.Renews = t.Access, s.vault().location(s.audience), s.renews(t)
	}
	if token == "" && st.Renews == "" {
		return st, noSession(st.API)
	}
	st.describe(token, time.Now())
	return st, nil
}

// describe fills in the claims of the token.
func (st *Status) describe(token string, now time.Time) {
	c, ok := holdfast.ReadClaims(token)
	if !ok {
		st.Identity = "unknown: the token is not one of the server's"
		return
	}
	st.Identity, st.Email = c.Subject, c.Email
	st.Provider, _, _ = strings.Cut(c.Voucher, "#")
	if c.Actor.Subject != "" {
		st.Actor = c.Actor.Subject + " at " + c.Actor.Issuer
	}
	st.Expiry, st.Expired = output.ShortTime(c.Expires()), !c.Expires().After(now)
}

// renews says how the token is renewed, or "" if it is not.
func (s *signIn) renews(t tokens) string {
	switch {
	case t.Refresh != "":
		return "with a refresh token"
	case s.proves() && s.IdentityTokenFile != "":
		return "by exchanging the token in " + s.IdentityTokenFile
	case s.proves():
		return "by exchanging the token of the platform it runs on"
	case s.DevFile != "":
		return "from " + s.DevFile
	}
	return ""
}
