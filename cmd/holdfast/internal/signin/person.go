package signin

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
)

// clientID is the client ID of this program at the issuer.
const clientID = "holdfast"

// A Person contains the flags for the sign-in of a person.
type Person struct {
	audience     string
	organization string // name of the organization
	provider     string // UID of the identity provider
	invite       string // code of the invite
	headless     bool   // whether the browser is on another machine, to which the person can copy the address
	device       bool   // whether the person can only copy a short code to the browser
}

// Given reports whether any of the flags is given.
func (p Person) Given() bool {
	return p.organization != "" || p.provider != "" || p.invite != "" || p.headless || p.device
}

// Register adds the flags to a command. The command must have the flag --identity.
func (p *Person) Register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.organization, "organization", "", "`NAME` of the organization to sign in to")
	f.StringVar(&p.provider, "provider", "", "`UID` of the identity provider")
	f.StringVar(&p.invite, "invite", "", "`CODE` of an invite to redeem; - is standard input")
	f.BoolVar(&p.headless, "headless", false, "print an address to open in a browser on any machine, and wait")
	f.BoolVar(&p.device, "device", false, "print a code to enter in a browser on any machine, and wait")
	cmd.MarkFlagsMutuallyExclusive("organization", "provider")
	cmd.MarkFlagsMutuallyExclusive("headless", "device", "identity")
	cmd.MarkFlagsMutuallyExclusive("invite", "device", "identity")
	cmd.MarkFlagsMutuallyExclusive("identity", "organization")
	cmd.MarkFlagsMutuallyExclusive("identity", "provider")
	cmd.MarkFlagsMutuallyExclusive("device", "organization")
	cmd.MarkFlagsMutuallyExclusive("device", "provider")
}

// query returns the parameters that all ways of signing in share.
func (p Person) query() url.Values {
	q := url.Values{"audience": {p.audience}, "create_refresh_token": {"true"}}
	if idp := cmp.Or(p.provider, p.organization); idp != "" {
		q.Set("idp_id", idp)
	} else {
		q.Set("client_id", clientID)
	}
	if p.invite != "" {
		q.Set("invite", p.invite)
	}
	return q
}

// SignInPerson signs a person in and stores the session.
func (a *Agent) SignInPerson(ctx context.Context, p Person) error {
	_, issuer, s, err := a.target()
	if err != nil {
		return err
	}
	if err := a.allow(s.audience, issuer); err != nil {
		return err
	}
	p.audience = s.audience
	if p.invite, err = a.ReadSecret(p.invite); err != nil {
		return err
	}
	if err := a.checkPerson(ctx, issuer, p); err != nil {
		return err
	}
	way := a.signInHere
	switch {
	case p.headless:
		way = a.signInHeadless
	case p.device:
		way = a.signInDevice
	}
	t, err := way(ctx, issuer, p)
	if err != nil {
		return err
	}
	if !holdfast.Serves(t.Access, s.audience, time.Now()) {
		return fmt.Errorf("the token of %s is not for %s", issuer, s.audience)
	}
	if err := a.replaceSession(ctx, s, session{Issuer: issuer}, t); err != nil {
		return err
	}
	c, _ := holdfast.ReadClaims(t.Access)
	name := a.callerName(ctx, c.Subject)
	switch {
	case c.Email != "" && name != c.Subject:
		name += " (" + c.Email + ")"
	case c.Email != "":
		name = c.Email
	}
	a.Note("signed in to %s as %s", s.audience, name)
	a.warnOverruled(s)
	return nil
}

// warnOverruled prints a warning if commands will not use the new session.
func (a *Agent) warnOverruled(s *signIn) {
	_, origin, err := a.givenToken()
	if err == nil && origin != "" {
		a.Warn("as long as " + origin + " is set, commands use that token and not this session")
		return
	}
	if set, err := a.Value("identity"); err == nil && set.Text != "" && set.Text != s.Identity {
		a.Warn("as long as " + set.Origin + " is set, commands act as that identity and not in this session")
	}
}

// replaceSession begins a session. It ends the previous session at the issuer, because
// its tokens are lost here.
func (a *Agent) replaceSession(ctx context.Context, s *signIn, next session, t tokens) error {
	if err := a.revoke(ctx, s); err != nil {
		a.Warn("the session before this one could not be ended: " + err.Error())
	}
	return s.begin(ctx, next, t)
}

// checkPerson asks the issuer whether the organization exists. It runs before a browser
// is opened.
func (a *Agent) checkPerson(ctx context.Context, issuer string, p Person) error {
	if p.provider != "" {
		if err := settings.CheckUID(p.provider); err != nil {
			return problem.Usage("--provider: %v", err)
		}
	}
	if p.organization == "" {
		return nil
	}
	var known bool
	q := url.Values{"name": {p.organization}}
	if err := a.askIssuer(ctx, http.MethodGet, issuer+"/orgcheck?"+q.Encode(), nil, &known); err != nil {
		return err
	}
	if !known {
		return problem.New(problem.ExitNotFound, "there is no organization %s that signs people in", p.organization)
	}
	return nil
}

// An oauthError is an error response of the issuer's OAuth endpoints (RFC 6749, section
// 5.2).
type oauthError struct {
	Code        string `json:"error"`
	Description string `json:"error_description"`
}

func (e *oauthError) Error() string { return cmp.Or(e.Description, e.Code) }

// maxIssuerAnswer is the largest answer, in bytes. Tokens are much smaller.
const maxIssuerAnswer = 1 << 20

// askIssuer sends a form, or no body, to an HTTP endpoint of the issuer and decodes its
// JSON answer. A refusal is an oauthError. Errors do not quote the address, because it
// can contain a secret.
func (a *Agent) askIssuer(ctx context.Context, method, address string, form url.Values, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return errors.New("the issuer's address is invalid")
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "holdfast/"+buildinfo.Version())
	security, err := a.tls()
	if err != nil {
		return err
	}
	resp, err := transmit(security, req)
	if err != nil {
		return problem.New(problem.ExitUnreachable, "cannot reach %s: %v", req.URL.Host, err)
	}
	defer func() { _ = resp.Body.Close() }() // an error of Close does not matter, because the body was read
	body := json.NewDecoder(io.LimitReader(resp.Body, maxIssuerAnswer))
	if resp.StatusCode == http.StatusOK {
		if body.Decode(answer) != nil { // the error is not returned, because it may quote a token
			return fmt.Errorf("the answer of %s is not JSON", req.URL.Host)
		}
		return nil
	}
	var refused oauthError
	if body.Decode(&refused) != nil || refused.Code == "" {
		return fmt.Errorf("%s answers %s", req.URL.Host, resp.Status)
	}
	return &refused
}

// transmit sends a request. It follows no redirects, because tokens must not be sent to
// another address. Its errors do not quote the address.
func transmit(security *tls.Config, req *http.Request) (*http.Response, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = security
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	return resp, err
}

// grant gets tokens from the issuer's token endpoint. form contains the client_id with
// which the sign-in started.
func (a *Agent) grant(ctx context.Context, issuer string, form url.Values) (tokens, error) {
	var answer struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
	if err := a.askIssuer(ctx, http.MethodPost, issuer+"/oauth/token", form, &answer); err != nil {
		return tokens{}, err
	}
	if !holdfast.IsToken(answer.Access) || (answer.Refresh != "" && !holdfast.IsToken(answer.Refresh)) {
		return tokens{}, fmt.Errorf("the answer of %s has no token", issuer)
	}
	return tokens{Access: answer.Access, Refresh: answer.Refresh}, nil
}
