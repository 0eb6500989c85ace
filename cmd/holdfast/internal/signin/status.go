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

// A Status is the output of auth status.
type Status struct {
	API      string `json:"api" yaml:"api"`
	Issuer   string `json:"issuer" yaml:"issuer"`
	Identity string `json:"identity" yaml:"identity"`
	Name     string `json:"name,omitempty" yaml:"name,omitempty"` // name of the identity, if the server was asked
	Email    string `json:"email,omitempty" yaml:"email,omitempty"`
	Actor    string `json:"actor,omitempty" yaml:"actor,omitempty"`       // subject and issuer of the original token
	Provider string `json:"provider,omitempty" yaml:"provider,omitempty"` // identity provider of the person

	// ProviderPath is the path of the provider, for people.
	ProviderPath string `json:"providerPath,omitempty" yaml:"providerPath,omitempty"`

	Expiry  string `json:"expiry" yaml:"expiry"`
	Expired bool   `json:"expired" yaml:"expired"`
	Kept    string `json:"kept" yaml:"kept"`
	Renews  string `json:"renews" yaml:"renews"`
	Session string `json:"session,omitempty" yaml:"session,omitempty"` // state of the session, if the server was asked
	Ended   bool   `json:"ended" yaml:"ended"`
}

// KeptNowhere is the value of Kept if the token is not stored, because every command
// exchanges a new one.
const KeptNowhere = "nowhere"

// Self returns the UID of the identity that commands use.
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

// UsesSession reports whether commands use the session at the server, and not a given
// token or an identity in the settings.
func (a *Agent) UsesSession() bool {
	api, err := a.Server()
	if err != nil {
		return false
	}
	token, _, err := a.givenToken()
	if err != nil || token != "" {
		return false
	}
	_, assumed, err := a.actor(api.Text)
	return err == nil && assumed == ""
}

// callerName returns the name of an identity that has just signed in, or its UID if the
// server does not return a name.
func (a *Agent) callerName(ctx context.Context, uid string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if !a.UsesSession() { // otherwise the call would be made as another identity
		return uid
	}
	got, err := accesspb.NewAccessServiceClient(a).LookupNames(ctx, &accesspb.LookupNamesRequest{Uids: []string{uid}})
	if err != nil || len(got.GetNames()) != 1 {
		return uid
	}
	return Title(got.GetNames()[0])
}

// Title returns a name for people. It contains the path if the resource is in a group.
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

// Status describes the token that the next command would use first. It makes no calls.
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

// describe sets the fields that come from the claims of the token.
func (st *Status) describe(token string, now time.Time) {
	c, ok := holdfast.ReadClaims(token)
	if !ok {
		st.Identity = "unknown: the server did not issue the token"
		return
	}
	st.Identity, st.Email = c.Subject, c.Email
	st.Provider, _, _ = strings.Cut(c.Voucher, "#")
	if c.Actor.Subject != "" {
		st.Actor = c.Actor.Subject + " at " + c.Actor.Issuer
	}
	st.Expiry, st.Expired = output.ShortTime(c.Expires()), !c.Expires().After(now)
}

// renews returns how the token is renewed, or "" if it is not.
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
