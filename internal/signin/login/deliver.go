package login

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

const codeLife = time.Minute // validity of an authorization code

// deliver delivers tokens to the waiting program. It does so once per flow.
func (s *Service) deliver(w http.ResponseWriter, r *http.Request, f *flow, n resource.Session, raw string) error {
	first, err := s.accounts.UseOnce(r.Context(), signindb.Digest("flow "+f.ID), s.cfg.Now().Add(flowLife))
	if err == nil && !first {
		err = fault.New(fault.PermissionDenied, "Permission denied: this sign-in was already finished")
	}
	if err != nil {
		return err
	}
	if err := s.recordConsent(r, resource.ProgramAllowed, f, n); err != nil {
		return err
	}
	switch f.Purpose {
	case forCommand:
		err = s.deliverToCommand(w, r, f, n, raw)
	case forHeadless:
		err = s.deliverToHeadless(w, r, f, n)
	case forDevice:
		err = s.deliverToDevice(w, r, f, n)
	}
	if err != nil {
		return s.refuse(w, r, f, err)
	}
	return nil
}

// issuedTokens are the tokens for a program, and the request to which they belong.
type issuedTokens struct {
	Token     sts.Token
	Refresh   string
	Session   string
	Redirect  string
	Challenge string
	Client    string
}

// issue starts a session for a program and issues its tokens. If the flow requests another
// identity, issue exchanges the ID token raw for a token of that identity.
func (s *Service) issue(
	ctx context.Context, f *flow, n resource.Session, program, address, raw string,
) (out issuedTokens, err error) {
	if f.Identity != "" && f.Identity != string(n.Identity) {
		if raw == "" {
			return out, fault.New(fault.PermissionDenied,
				"Permission denied: to assume another identity, sign in with an identity provider")
		}
		asked := sts.Request{TokenParams: s.tokenParams(f), Bearer: raw, Identity: f.Identity}
		out.Token, err = s.sts.Exchange(ctx, asked)
		return out, err
	}
	id, refresh, err := s.sts.StartSession(ctx, resource.Session{
		Identity: n.Identity, Act: n.Act, Email: n.Email, Voucher: n.Voucher, Home: n.Home,
		Agent: program, Address: address,
	}, s.tokenParams(f))
	if err != nil {
		return out, err
	}
	if out.Token, err = s.sts.Issue(ctx, id, s.tokenParams(f)); err != nil {
		return out, err
	}
	out.Session = id
	if f.Refresh {
		out.Refresh = refresh.Text
	}
	return out, nil
}

func (s *Service) deliverToCommand(
	w http.ResponseWriter, r *http.Request, f *flow, n resource.Session, raw string,
) error {
	out, err := s.issue(r.Context(), f, n, cmp.Or(f.Client, unnamedProgram), input.Remote(r), raw)
	if err != nil {
		return err
	}
	answer := url.Values{}
	if f.Challenge == "" {
		answer.Set("token", out.Token.Text)
		if out.Refresh != "" {
			answer.Set("refresh_token", out.Refresh)
		}
	} else {
		code := rand.Text() + rand.Text()
		out.Redirect, out.Challenge, out.Client = f.Redirect, f.Challenge, f.Client
		if err := s.storeSealed(r.Context(), "code "+code, out, codeLife); err != nil {
			return err
		}
		answer.Set("code", code)
	}
	s.deleteFlow(w, f)
	return s.redirectToCommand(w, r, f, answer)
}

// unnamedProgram is the name of programs that send no client_id.
const unnamedProgram = "a command"

// redirectToCommand redirects the browser to the program that waits on the same computer. It
// replaces parameters with the same names in the address of the program, because programs
// read the first value.
func (s *Service) redirectToCommand(w http.ResponseWriter, r *http.Request, f *flow, answer url.Values) error {
	u, ok := input.Loopback(f.Redirect)
	if !ok {
		return s.site.Problem(w, r, http.StatusBadRequest, "This sign-in cannot go on", "It leads to another host.")
	}
	q := u.Query()
	for _, name := range []string{"token", "refresh_token", "error", "status_code", "code", "state"} {
		q.Del(name)
	}
	if f.State != "" {
		answer.Set("state", f.State)
	}
	maps.Copy(q, answer)
	u.RawQuery = q.Encode()
	return site.Redirect(w, r, u.String())
}

// refuse ends a sign-in with an error. It reports the error to the program that waits on the
// same computer or, if there is none, to the person. It returns nil.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, f *flow, err error) error {
	reported := s.site.Report(r, err)
	s.deleteFlow(w, f)
	if f.Redirect == "" {
		return s.site.Problem(w, r, reported.Code.HTTPStatus(), "You were not signed in", site.PlainText(reported))
	}
	status := strconv.Itoa(reported.Code.HTTPStatus())
	return s.redirectToCommand(w, r, f, url.Values{"error": {reported.Message}, "status_code": {status}})
}

// done ends a flow and shows that the program is signed in.
func (s *Service) done(w http.ResponseWriter, r *http.Request, f *flow, text string) error {
	s.deleteFlow(w, f)
	return s.show(w, r, http.StatusOK, "done", nil, &site.DonePage{Purpose: f.Purpose, Text: text, Welcome: f.welcome()})
}

// tokenParams returns the parameters of the token that a flow requests.
func (s *Service) tokenParams(f *flow) sts.TokenParams {
	if len(f.Audience) == 0 {
		return sts.TokenParams{Audience: []string{s.cfg.BaseURL}, Scopes: f.Scopes}
	}
	return sts.TokenParams{Audience: f.Audience, Scopes: f.Scopes}
}

// checkTokenParams checks the parameters of the token before the person signs in. It returns
// fault.InvalidArgument if they are not allowed.
func (s *Service) checkTokenParams(f *flow) error { return s.sts.Check(s.tokenParams(f)) }

// storeSealed stores an encrypted value under a code for the duration life.
func (s *Service) storeSealed(ctx context.Context, code string, v any, life time.Duration) error {
	sealed, err := s.seal(v)
	if err != nil {
		return err
	}
	return s.accounts.PutHandoff(ctx, signindb.Digest(code), sealed, s.cfg.Now().Add(life))
}

// seal encrypts a value for unseal.
func (s *Service) seal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return s.cfg.Key.Seal("hand-off", b), nil
}

func (s *Service) unseal(sealed []byte, v any) error {
	b, err := s.cfg.Key.Open("hand-off", sealed)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
