package login

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// newWebAuthn returns the WebAuthn relying party, or nil if our address is an
// IP address: browsers bind passkeys to domain names.
func newWebAuthn(origin *url.URL) (*webauthn.WebAuthn, error) {
	if net.ParseIP(origin.Hostname()) != nil {
		return nil, nil
	}
	return webauthn.New(&webauthn.Config{
		RPID: origin.Hostname(), RPDisplayName: "Holdfast",
		RPOrigins: []string{origin.Scheme + "://" + origin.Host},
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, UserVerification: protocol.VerificationRequired,
		},
	})
}

// A passkeyUser is an account as a webauthn.User. org is the name of its
// organization, which is shown when a passkey is created.
type passkeyUser struct {
	resource.Account
	org string
}

// accountLabel returns the name of an account for authenticators. It has the
// organization, because one address can have accounts in several.
func accountLabel(a resource.Account, org string) string { return a.Email + " (" + org + ")" }

// WebAuthnID implements webauthn.User.
func (u passkeyUser) WebAuthnID() []byte { return digest(string(u.UID)) }

// WebAuthnName implements webauthn.User.
func (u passkeyUser) WebAuthnName() string {
	if u.org == "" {
		return u.Email
	}
	return accountLabel(u.Account, u.org)
}

// WebAuthnDisplayName implements webauthn.User.
func (u passkeyUser) WebAuthnDisplayName() string {
	return cmp.Or(u.Account.Name, u.Email)
}

// WebAuthnCredentials implements webauthn.User.
func (u passkeyUser) WebAuthnCredentials() (all []webauthn.Credential) {
	for _, p := range u.Passkeys {
		var c webauthn.Credential
		if json.Unmarshal(p.Detail, &c) == nil {
			all = append(all, c)
		}
	}
	return all
}

// A scriptError is an error that the script of a page shows. Its cause is
// logged, if there is one.
type scriptError struct {
	status int
	text   string
	cause  error
}

func (e *scriptError) Error() string { return e.text }

// A scriptRequest is a request of the script of a page.
type scriptRequest struct {
	Flow       string          `json:"flow"`
	CSRF       string          `json:"csrf"`
	Name       string          `json:"name"`
	Current    string          `json:"current"`  // current password
	Required   string          `json:"required"` // whether the password is enough from then on, for the first passkey
	Credential json.RawMessage `json:"credential"`
}

// handleScript serves the script of a page: it writes the answer of h, or its
// error. It accepts only JSON, which another site cannot have a browser send
// without a preflight request.
func (s *Service) handleScript(
	h func(http.ResponseWriter, *http.Request, scriptRequest) (any, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in scriptRequest
		var answer any
		var err error
		if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" {
			err = &scriptError{http.StatusUnsupportedMediaType, "The request is not JSON.", nil}
		} else if json.NewDecoder(http.MaxBytesReader(w, r.Body, maxForm)).Decode(&in) != nil {
			err = &scriptError{http.StatusBadRequest, "The request cannot be read.", nil}
		} else {
			answer, err = h(w, r, in)
		}
		status := http.StatusOK
		if e, ok := errors.AsType[*scriptError](err); ok {
			if e.cause != nil {
				s.logError(r, e.cause)
			}
			status, answer = e.status, map[string]string{"problem": e.text}
		} else if err != nil {
			f := s.report(r, err)
			status, answer = f.Code.HTTPStatus(), map[string]string{"problem": plainText(f)}
		}
		secureHeaders(w, "")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // fails only if the client has gone
	}
}

// scriptFlow returns the flow that a scriptRequest names.
func (s *Service) scriptFlow(r *http.Request, in scriptRequest) (*flow, error) {
	f := s.loadFlow(r, in.Flow)
	if f == nil {
		return nil, &scriptError{http.StatusBadRequest, "This sign-in is over. Start again.", nil}
	}
	if s.webauthn == nil {
		return nil, &scriptError{http.StatusBadRequest, "Passkeys cannot be used at this address.", nil}
	}
	return f, nil
}

// passkeyStart begins a WebAuthn authentication ceremony: with a passkey of
// the account whose password was right, or with any.
func (s *Service) passkeyStart(w http.ResponseWriter, r *http.Request, in scriptRequest) (any, error) {
	f, err := s.scriptFlow(r, in)
	if err != nil {
		return nil, err
	}
	required := webauthn.WithUserVerification(protocol.VerificationRequired)
	options, ceremony, err := s.webauthn.BeginDiscoverableLogin(required)
	if f.Account != "" {
		var a resource.Account
		if a, err = s.accounts.Account(r.Context(), f.Account); err == nil {
			preferred := webauthn.WithUserVerification(protocol.VerificationPreferred)
			options, ceremony, err = s.webauthn.BeginLogin(passkeyUser{Account: a}, preferred)
		}
	}
	if err == nil {
		f.WebAuthn, err = json.Marshal(ceremony)
	}
	if err != nil {
		return nil, &scriptError{http.StatusInternalServerError, "The passkey cannot be asked now.", err}
	}
	s.saveFlow(w, r, f)
	return map[string]any{"publicKey": options.Response}, nil
}

const wrongPasskey = "This passkey does not sign in here."

// passkey finishes an authentication ceremony and signs in.
func (s *Service) passkey(w http.ResponseWriter, r *http.Request, in scriptRequest) (any, error) {
	f, err := s.scriptFlow(r, in)
	if err != nil {
		return nil, err
	}
	key := "passkeys " + network(r) // separate from passwords, whose guesses must not delay passkeys
	if wait := s.limits.acquire(key, perAddress); wait > 0 {
		s.refused(r, refusalAt(resource.Account{}, resource.ByPasskey, resource.RefusedLimit))
		retryAfter(w, wait)
		return nil, &scriptError{http.StatusTooManyRequests, tooMany(wait), nil}
	}
	a, err := s.verifyPasskey(r, f, in.Credential)
	s.count("passkey", err)
	if errors.Is(err, fault.Unauthenticated) {
		s.refused(r, refusalAt(a, resource.ByPasskey, resource.RefusedPasskey))
		return nil, &scriptError{http.StatusUnauthorized, wrongPasskey, nil}
	}
	if err != nil {
		return nil, &scriptError{http.StatusInternalServerError, "The passkey cannot be checked now.", err}
	}
	s.limits.release(key)
	if f.Account != "" {
		f.Factor = resource.ByPasskey
	} else {
		f.Method = resource.ByPasskey
	}
	answer := &headerRecorder{header: w.Header()} // the script navigates to where a form would be redirected
	err = s.finishLocalSignIn(answer, r, f, a)
	if err != nil || answer.status != http.StatusSeeOther {
		return nil, &scriptError{http.StatusForbidden, "You were not signed in. Try another way.", err}
	}
	location := w.Header().Get("Location")
	w.Header().Del("Location")
	return map[string]string{"location": location}, nil
}

// A headerRecorder is an http.ResponseWriter that discards the body.
type headerRecorder struct {
	header http.Header
	status int
}

func (c *headerRecorder) Header() http.Header         { return c.header }
func (c *headerRecorder) Write(b []byte) (int, error) { return len(b), nil }
func (c *headerRecorder) WriteHeader(status int)      { c.status = status }

// verifyPasskey returns the account of a passkey that has answered the
// challenge of a flow. It returns fault.Unauthenticated if the answer is not
// valid.
func (s *Service) verifyPasskey(r *http.Request, f *flow, credential []byte) (a resource.Account, _ error) {
	wrong := func(err error) error {
		return &fault.Error{Code: fault.Unauthenticated, Message: "Unauthenticated: " + wrongPasskey, Cause: err}
	}
	var ceremony webauthn.SessionData
	if len(f.WebAuthn) == 0 || json.Unmarshal(f.WebAuthn, &ceremony) != nil {
		return a, wrong(nil)
	}
	first, err := s.accounts.UseOnce(r.Context(), digest("passkey "+ceremony.Challenge), s.cfg.Now().Add(flowLife))
	if err != nil {
		return a, err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(credential)
	if err != nil || !first {
		return a, wrong(err)
	}
	if a, err = s.accounts.AccountWithPasskey(r.Context(), parsed.RawID); errors.Is(err, fault.NotFound) {
		return a, wrong(err)
	} else if err != nil {
		return a, err
	}
	var used *webauthn.Credential
	if f.Account != "" {
		if !f.provesPassword(a) {
			return a, wrong(nil)
		}
		used, err = s.webauthn.ValidateLogin(passkeyUser{Account: a}, ceremony, parsed)
	} else {
		find := func(_, handle []byte) (webauthn.User, error) {
			if !bytes.Equal(handle, passkeyUser{Account: a}.WebAuthnID()) {
				return nil, errors.New("the passkey is of another account")
			}
			return passkeyUser{Account: a}, nil
		}
		used, err = s.webauthn.ValidateDiscoverableLogin(find, ceremony, parsed)
	}
	if err != nil || used.Authenticator.CloneWarning {
		return a, wrong(err)
	}
	detail, err := json.Marshal(used)
	if err != nil {
		return a, err
	}
	return a, s.accounts.UsePasskey(r.Context(), used.ID, detail)
}

const passkeyCookie = "hf_passkey"

// A registration is a ceremony that registers a new passkey. It is sealed for
// its session and expires, so that a password typed once does not allow adding
// passkeys forever.
type registration struct {
	Expires  int64                // in seconds
	Ceremony webauthn.SessionData `json:"Question"`
}

// registerStart begins a registration ceremony, after the password was
// checked: whoever adds a passkey can sign in with it later.
func (s *Service) registerStart(w http.ResponseWriter, r *http.Request, in scriptRequest) (any, error) {
	a, n, err := s.scriptAccount(r, in)
	if err != nil {
		return nil, err
	}
	err = s.verifyCurrentPassword(r, a, "passkey", in.Current)
	if f := fault.From(err); err != nil && len(f.Fields) > 0 {
		return nil, &scriptError{f.Code.HTTPStatus(), "This is not your password.", nil}
	}
	if err != nil {
		return nil, err
	}
	var exclude []protocol.CredentialDescriptor
	for _, c := range (passkeyUser{Account: a}).WebAuthnCredentials() {
		exclude = append(exclude, c.Descriptor())
	}
	org, err := s.organizationName(r.Context(), a.UID)
	var options *protocol.CredentialCreation
	var ceremony *webauthn.SessionData
	if err == nil {
		options, ceremony, err = s.webauthn.BeginRegistration(passkeyUser{a, org}, webauthn.WithExclusions(exclude))
	}
	var b []byte
	if err == nil {
		b, err = json.Marshal(registration{s.cfg.Now().Add(flowLife).Unix(), *ceremony})
	}
	if err != nil {
		return nil, &scriptError{http.StatusInternalServerError, "A passkey cannot be asked for now.", err}
	}
	http.SetCookie(w, s.sealedCookie(passkeyCookie, "passkey "+n.ID, b, flowLife))
	return map[string]any{"publicKey": options.Response}, nil
}

// register finishes a registration ceremony.
func (s *Service) register(w http.ResponseWriter, r *http.Request, in scriptRequest) (any, error) {
	a, n, err := s.scriptAccount(r, in)
	if err != nil {
		return nil, err
	}
	ceremony, err := s.registrationCeremony(r, n)
	if err != nil {
		return nil, err
	}
	r = r.WithContext(actingAs(r.Context(), n))
	if len(a.Passkeys) == 0 { // it has no effect before there is one
		if err := s.setPasswordAlone(r, a, in.Required == requireEither); err != nil {
			return nil, err
		}
	}
	if err := s.addPasskey(r, a, in, ceremony); err != nil {
		return nil, err
	}
	s.logChange(r, "a passkey was added", a)
	http.SetCookie(w, s.cookie(passkeyCookie, "", 0))
	return map[string]string{"location": "/account?added=passkey"}, nil
}

// registrationCeremony returns the ceremony that was begun in a session, once.
func (s *Service) registrationCeremony(r *http.Request, n resource.Session) (q webauthn.SessionData, _ error) {
	over := fault.New(fault.FailedPrecondition,
		"Precondition failed: the question to the passkey is over; try again")
	var reg registration
	b, ok := s.openCookie(r, passkeyCookie, "passkey "+n.ID)
	if !ok || json.Unmarshal(b, &reg) != nil || s.cfg.Now().Unix() >= reg.Expires {
		return q, over
	}
	q = reg.Ceremony
	first, err := s.accounts.UseOnce(r.Context(), digest("passkey "+q.Challenge), s.cfg.Now().Add(flowLife))
	if err == nil && !first {
		err = over
	}
	return q, err
}

func (s *Service) addPasskey(
	r *http.Request, a resource.Account, in scriptRequest, ceremony webauthn.SessionData,
) error {
	invalid := func(why string, err error) error {
		return &fault.Error{Code: fault.InvalidArgument, Message: "Invalid argument: the passkey " + why, Cause: err}
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(in.Credential)
	if err != nil {
		return invalid("cannot be read", err)
	}
	made, err := s.webauthn.CreateCredential(passkeyUser{Account: a}, ceremony, parsed)
	if err != nil {
		return invalid("did not prove itself", err)
	}
	detail, err := json.Marshal(made)
	if err != nil {
		return err
	}
	name := cmp.Or(shortText(in.Name), "Passkey of "+s.now().Format(time.DateOnly))
	return s.accounts.AddPasskey(r.Context(), a.UID, resource.Passkey{ID: made.ID, Name: name, Detail: detail})
}

// scriptAccount returns the account here that the browser of a scriptRequest is
// signed in to, and its session.
func (s *Service) scriptAccount(
	r *http.Request, in scriptRequest,
) (a resource.Account, n resource.Session, err error) {
	n, ok := s.browser(r)
	if !ok || !s.sameCSRF(n, in.CSRF) {
		return a, n, &scriptError{http.StatusForbidden, "You are no longer signed in. Load the page again.", nil}
	}
	if a, err = s.accounts.AccountOf(r.Context(), n.Identity); err != nil || s.webauthn == nil {
		return a, n, &scriptError{http.StatusBadRequest, "Passkeys are for accounts that are kept here.", nil}
	}
	return a, n, nil
}
