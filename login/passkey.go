package login

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
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
func accountLabel(a resource.Account, org resource.Group) string {
	return a.Email + " (" + org.Name + ")"
}

// WebAuthnID implements webauthn.User.
func (u passkeyUser) WebAuthnID() []byte { return digest(string(u.UID)) }

// WebAuthnName implements webauthn.User.
func (u passkeyUser) WebAuthnName() string {
	if u.org == "" {
		return u.Email
	}
	return accountLabel(u.Account, resource.Group{Name: u.org})
}

// WebAuthnDisplayName implements webauthn.User.
func (u passkeyUser) WebAuthnDisplayName() string {
	if u.Account.Name != "" {
		return u.Account.Name
	}
	return u.Email
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

// writeScriptError writes an error for the script of a page.
func writeScriptError(w http.ResponseWriter, status int, text string) {
	writeScript(w, status, map[string]string{"problem": text})
}

func writeScript(w http.ResponseWriter, status int, v any) {
	secureHeaders(w, "")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has gone
}

// A scriptRequest is a request of the script of a page.
type scriptRequest struct {
	Flow       string          `json:"flow"`
	CSRF       string          `json:"csrf"`
	Name       string          `json:"name"`
	Current    string          `json:"current"` // current password
	Credential json.RawMessage `json:"credential"`
}

// readScript reads a scriptRequest. It accepts only JSON, which another site
// cannot have a browser send without a preflight request.
func readScript(w http.ResponseWriter, r *http.Request) (in scriptRequest, ok bool) {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" {
		writeScriptError(w, http.StatusUnsupportedMediaType, "The request is not JSON.")
		return in, false
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxForm)).Decode(&in); err != nil {
		writeScriptError(w, http.StatusBadRequest, "The request cannot be read.")
		return in, false
	}
	return in, true
}

// scriptFlow reads a scriptRequest and its flow. If that fails it writes the
// error and returns a nil flow.
func (s *Service) scriptFlow(w http.ResponseWriter, r *http.Request) (in scriptRequest, f *flow) {
	in, ok := readScript(w, r)
	if !ok {
		return in, nil
	}
	if f = s.loadFlow(r, in.Flow); f == nil {
		writeScriptError(w, http.StatusBadRequest, "This sign-in is over. Start again.")
	} else if s.webauthn == nil {
		writeScriptError(w, http.StatusBadRequest, "Passkeys cannot be used at this address.")
		return in, nil
	}
	return in, f
}

// passkeyStart begins a WebAuthn authentication ceremony: with a passkey of
// the account whose password was right, or with any.
func (s *Service) passkeyStart(w http.ResponseWriter, r *http.Request) {
	_, f := s.scriptFlow(w, r)
	if f == nil {
		return
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
		s.logError(r, err)
		writeScriptError(w, http.StatusInternalServerError, "The passkey cannot be asked now.")
		return
	}
	s.saveFlow(w, r, f)
	writeScript(w, http.StatusOK, map[string]any{"publicKey": options.Response})
}

const wrongPasskey = "This passkey does not sign in here."

// passkey finishes an authentication ceremony and signs in.
func (s *Service) passkey(w http.ResponseWriter, r *http.Request) {
	in, f := s.scriptFlow(w, r)
	if f == nil {
		return
	}
	key := "passkeys " + network(r) // separate from passwords, whose guesses must not delay passkeys
	if wait := s.limits.acquire(key, perAddress); wait > 0 {
		retryAfter(w, wait)
		writeScriptError(w, http.StatusTooManyRequests, tooMany(wait))
		return
	}
	a, err := s.verifyPasskey(r, f, in.Credential)
	if errors.Is(err, fault.Unauthenticated) {
		writeScriptError(w, http.StatusUnauthorized, wrongPasskey)
		return
	}
	if err != nil {
		s.logError(r, err)
		writeScriptError(w, http.StatusInternalServerError, "The passkey cannot be checked now.")
		return
	}
	s.limits.release(key)
	answer := &headerRecorder{header: w.Header()} // the script navigates to where a form would be redirected
	s.finishLocalSignIn(answer, r, f, a)
	if answer.status != http.StatusSeeOther {
		writeScriptError(w, http.StatusForbidden, "You were not signed in. Try another way.")
		return
	}
	location := w.Header().Get("Location")
	w.Header().Del("Location")
	writeScript(w, http.StatusOK, map[string]string{"location": location})
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
func (s *Service) registerStart(w http.ResponseWriter, r *http.Request) {
	a, in, n, ok := s.scriptAccount(w, r)
	if !ok {
		return
	}
	if err := s.verifyCurrentPassword(r, a, "passkey", in.Current); err != nil {
		f := s.report(r, err)
		text := plainText(f)
		if len(f.Fields) > 0 {
			text = "This is not your password."
		}
		writeScriptError(w, f.Code.HTTPStatus(), text)
		return
	}
	var exclude []protocol.CredentialDescriptor
	for _, c := range (passkeyUser{Account: a}).WebAuthnCredentials() {
		exclude = append(exclude, c.Descriptor())
	}
	org, err := s.store.Group(r.Context(), a.UID.Root())
	var options *protocol.CredentialCreation
	var ceremony *webauthn.SessionData
	if err == nil {
		user := passkeyUser{a, org.Name}
		options, ceremony, err = s.webauthn.BeginRegistration(user, webauthn.WithExclusions(exclude))
	}
	var b []byte
	if err == nil {
		b, err = json.Marshal(registration{s.cfg.Now().Add(flowLife).Unix(), *ceremony})
	}
	if err != nil {
		s.logError(r, err)
		writeScriptError(w, http.StatusInternalServerError, "A passkey cannot be asked for now.")
		return
	}
	http.SetCookie(w, s.sealedCookie(passkeyCookie, "passkey "+n.ID, b, flowLife))
	writeScript(w, http.StatusOK, map[string]any{"publicKey": options.Response})
}

// register finishes a registration ceremony.
func (s *Service) register(w http.ResponseWriter, r *http.Request) {
	a, in, n, ok := s.scriptAccount(w, r)
	if !ok {
		return
	}
	ceremony, err := s.registrationCeremony(r, n)
	if err == nil {
		err = s.addPasskey(r, a, in, ceremony)
	}
	if err != nil {
		f := s.report(r, err)
		writeScriptError(w, f.Code.HTTPStatus(), plainText(f))
		return
	}
	http.SetCookie(w, s.cookie(passkeyCookie, "", 0))
	writeScript(w, http.StatusOK, map[string]string{"location": "/account"})
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
	name := shortText(in.Name)
	if name == "" {
		name = "Passkey of " + s.now().Format("2006-01-02")
	}
	return s.accounts.AddPasskey(r.Context(), a.UID, resource.Passkey{ID: made.ID, Name: name, Detail: detail})
}

// scriptAccount reads a scriptRequest of a browser that is signed in to an
// account here.
func (s *Service) scriptAccount(
	w http.ResponseWriter, r *http.Request,
) (a resource.Account, in scriptRequest, n resource.Session, ok bool) {
	if in, ok = readScript(w, r); !ok {
		return a, in, n, false
	}
	n, ok = s.browser(r)
	if !ok || !s.sameCSRF(n, in.CSRF) {
		writeScriptError(w, http.StatusForbidden, "You are no longer signed in. Load the page again.")
		return a, in, n, false
	}
	a, err := s.accounts.AccountOf(r.Context(), n.Identity)
	if err != nil || s.webauthn == nil {
		writeScriptError(w, http.StatusBadRequest, "Passkeys are for accounts that are kept here.")
		return a, in, n, false
	}
	return a, in, n, true
}
