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
)

// clientID is the name this program has at the issuer.
const clientID = "holdfast"

// A Person is how a person wants to sign in.
type Person struct {
	audience     string
	organization string // name
	provider     string // uid
	invite       string // code
	headless     bool   // the browser is on another machine, and the address can be carried over
	device       bool   // or only a short code can
}

// Given tells whether the flags are about a person.
func (w Person) Given() bool {
	return w.organization != "" || w.provider != "" || w.invite != "" || w.headless || w.device
}

func (w *Person) Register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.organization, "organization", "", "`NAME` of the organization whose identity provider to use")
	f.StringVar(&w.provider, "provider", "", "`UID` of the identity provider to use")
	f.StringVar(&w.invite, "invite", "", "`CODE` of an invite to redeem; - is standard input")
	f.BoolVar(&w.headless, "headless", false, "print an address to open in a browser anywhere, and wait")
	f.BoolVar(&w.device, "device", false, "print a short code to enter in a browser anywhere, and wait")
	cmd.MarkFlagsMutuallyExclusive("organization", "provider")
	cmd.MarkFlagsMutuallyExclusive("headless", "device", "identity")
	cmd.MarkFlagsMutuallyExclusive("invite", "device", "identity")
	cmd.MarkFlagsMutuallyExclusive("identity", "organization")
	cmd.MarkFlagsMutuallyExclusive("identity", "provider")
	cmd.MarkFlagsMutuallyExclusive("device", "organization")
	cmd.MarkFlagsMutuallyExclusive("device", "provider")
}

// query is what every way of signing in tells the issuer.
func (w Person) query() url.Values {
	q := url.Values{"audience": {w.audience}, "create_refresh_token": {"true"}}
	if idp := cmp.Or(w.provider, w.organization); idp != "" {
		q.Set("idp_id", idp)
	} else {
		q.Set("client_id", clientID)
	}
	if w.invite != "" {
		q.Set("invite", w.invite)
	}
	return q
}

// SignInPerson signs a person in, and keeps the session.
func (a *Agent) SignInPerson(ctx context.Context, w Person) error {
	_, issuer, s, err := a.target()
	if err != nil {
		return err
	}
	w.audience = s.audience
	if w.invite, err = a.ReadSecret(w.invite); err != nil {
		return err
	}
	if err := a.checkWish(ctx, issuer, w); err != nil {
		return err
	}
	way := a.signInHere
	switch {
	case w.headless:
		way = a.signInHeadless
	case w.device:
		way = a.signInDevice
	}
	t, err := way(ctx, issuer, w)
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
	a.Note("signed in to %s as %s", s.audience, cmp.Or(c.Email, c.Subject))
	a.warnOverruled(s)
	return nil
}

// warnOverruled tells what commands will use instead of a new session.
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

// replaceSession begins a session. The one before it, which nothing here would
// know of any more, is ended at the issuer.
func (a *Agent) replaceSession(ctx context.Context, s *signIn, next session, t tokens) error {
	if err := a.revoke(ctx, s); err != nil {
		a.Warn("the session before this one could not be ended: " + err.Error())
	}
	return s.begin(ctx, next, t)
}

// checkWish asks the issuer about an organization before a browser is opened.
func (a *Agent) checkWish(ctx context.Context, issuer string, w Person) error {
	if w.provider != "" {
		if err := settings.CheckUID(w.provider); err != nil {
			return problem.Usage("--provider: %v", err)
		}
	}
	if w.organization == "" {
		return nil
	}
	var known bool
	q := url.Values{"name": {w.organization}}
	if err := a.askIssuer(ctx, http.MethodGet, issuer+"/orgcheck?"+q.Encode(), nil, &known); err != nil {
		return err
	}
	if !known {
		return problem.New(problem.ExitNotFound, "there is no organization %s that signs people in", w.organization)
	}
	return nil
}

// An oauthError is how the issuer's OAuth endpoints refuse (RFC 6749, 5.2).
type oauthError struct {
	Code        string `json:"error"`
	Description string `json:"error_description"`
}

func (e *oauthError) Error() string { return cmp.Or(e.Description, e.Code) }

// maxIssuerAnswer is more than the longest tokens.
const maxIssuerAnswer = 1 << 20

// askIssuer sends a form, or nothing, to one of the issuer's HTTP endpoints and
// reads its JSON. A refusal is an oauthError. Errors do not quote the address,
// which can hold a secret.
func (a *Agent) askIssuer(ctx context.Context, method, address string, form url.Values, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return errors.New("the issuer's address is not one")
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "holdfast/"+ClientVersion())
	security, err := a.tls()
	if err != nil {
		return err
	}
	resp, err := transmit(security, req)
	if err != nil {
		return problem.New(problem.ExitUnreachable, "cannot reach %s: %v", req.URL.Host, err)
	}
	defer func() { _ = resp.Body.Close() }() // what was read is all there is to know
	body := json.NewDecoder(io.LimitReader(resp.Body, maxIssuerAnswer))
	if resp.StatusCode == http.StatusOK {
		if body.Decode(answer) != nil { // the error may quote a token
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

// transmit sends a request, and follows no redirect: tokens go to no other address,
// and errors do not quote one.
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

// grant gets tokens from the issuer's token endpoint. The client is named as it
// was at the start.
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
