package login

import (
	"bytes"
	"encoding/base64"
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

// newWebAuthn returns what speaks the protocol of passkeys, or nil where browsers
// do not: they bind passkeys to names, not to addresses.
func newWebAuthn(origin *url.URL) (*webauthn.WebAuthn, error) {
	if net.ParseIP(origin.Hostname()) != nil {
		return nil, nil
	}
	return webauthn.New(&webauthn.Config{
		RPID: origin.Hostname(), RPDisplayName: "Holdfast", RPOrigins: []string{origin.Scheme + "://" + origin.Host},
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, UserVerification: protocol.VerificationRequired,
		},
	})
}

// passkeyUser is an account as the library wants it. org is the name of its
// organization, which a device is told of a new passkey.
type passkeyUser struct {
	resource.Account
	org string
}

// accountLabel is what devices and apps call an account: one address can have
// accounts in several organizations.
func accountLabel(a resource.Account, org resource.Group) string {
	return a.Email + " (" + org.Name + ")"
}

// WebAuthnID names the account to the device.
func (u passkeyUser) WebAuthnID() []byte { return digest(string(u.UID)) }

// WebAuthnName is what the device shows.
func (u passkeyUser) WebAuthnName() string {
	if u.org == "" {
		return u.Email
	}
	return accountLabel(u.Account, resource.Group{Name: u.org})
}

// WebAuthnDisplayName is what the device shows, too.
func (u passkeyUser) WebAuthnDisplayName() string {
	if u.Account.Name != "" {
		return u.Account.Name
	}
	return u.Email
}

// WebAuthnCredentials are the account's passkeys.
func (u passkeyUser) WebAuthnCredentials() (all []webauthn.Credential) {
	for _, p := range u.Passkeys {
		var c webauthn.Credential
		if json.Unmarshal(p.Detail, &c) == nil {
			all = append(all, c)
		}
	}
	return all
}

// writeScriptError answers the script of the page.
func writeScriptError(w http.ResponseWriter, status int, text string) {
	writeScript(w, status, map[string]string{"problem": text})
}

func writeScript(w http.ResponseWriter, status int, v any) {
	secureHeaders(w, "")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a browser that went away has no use for the error
}

// scriptRequest is what the script of the page sends.
type scriptRequest struct {
	Flow       string          `json:"flow"`
	CSRF       string          `json:"csrf"`
	Name       string          `json:"name"`
	Current    string          `json:"current"` // password
	Credential json.RawMessage `json:"credential"`
}

// readScript reads a request of the script. JSON is no form, so that no other
// site can have a browser send it without being asked about.
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

func (s *Service) scriptFlow(w http.ResponseWriter, r *http.Request, id string) *flow {
	f := s.loadFlow(r, id)
	if f == nil {
		writeScriptError(w, http.StatusBadRequest, "This sign-in is over. Start again.")
	} else if s.webauthn == nil {
		writeScriptError(w, http.StatusBadRequest, "Passkeys cannot be used at this address.")
		return nil
	}
	return f
}

// passkeyStart asks a passkey to prove itself: one of the account whose password
// was right, or any.
func (s *Service) passkeyStart(w http.ResponseWriter, r *http.Request) {
	in, ok := readScript(w, r)
	if !ok {
		return
	}
	f := s.scriptFlow(w, r, in.Flow)
	if f == nil {
		return
	}
	options, ceremony, err := s.webauthn.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if f.Account != "" {
		var a resource.Account
		if a, err = s.store.Account(r.Context(), f.Account); err == nil {
			options, ceremony, err = s.webauthn.BeginLogin(passkeyUser{Account: a}, webauthn.WithUserVerification(protocol.VerificationPreferred))
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

// passkey takes a passkey's proof, once.
func (s *Service) passkey(w http.ResponseWriter, r *http.Request) {
	in, ok := readScript(w, r)
	if !ok {
		return
	}
	f := s.scriptFlow(w, r, in.Flow)
	if f == nil {
		return
	}
	key := "passkeys " + network(remote(r)) // nobody guesses a passkey: its owner must not wait for who guesses passwords
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
	answer := &headerRecorder{header: w.Header()} // the script goes where a form would have been sent
	s.finishLocalSignIn(answer, r, f, a)
	if answer.status != http.StatusSeeOther {
		writeScriptError(w, http.StatusForbidden, "You were not signed in. Try another way.")
		return
	}
	location := w.Header().Get("Location")
	w.Header().Del("Location")
	writeScript(w, http.StatusOK, map[string]string{"location": location})
}

// headerRecorder is an answer whose body is not sent.
type headerRecorder struct {
	header http.Header
	status int
}

func (c *headerRecorder) Header() http.Header         { return c.header }
func (c *headerRecorder) Write(b []byte) (int, error) { return len(b), nil }
func (c *headerRecorder) WriteHeader(status int)      { c.status = status }

// verifyPasskey returns the account of a passkey that has answered the question
// of a flow. It returns fault.Unauthenticated for any other answer.
func (s *Service) verifyPasskey(r *http.Request, f *flow, credential []byte) (a resource.Account, _ error) {
	wrong := func(err error) error {
		return &fault.Error{Code: fault.Unauthenticated, Message: "Unauthenticated: " + wrongPasskey, Cause: err}
	}
	var ceremony webauthn.SessionData
	if len(f.WebAuthn) == 0 || json.Unmarshal(f.WebAuthn, &ceremony) != nil {
		return a, wrong(nil)
	}
	first, err := s.store.Spend(r.Context(), digest("passkey "+ceremony.Challenge), s.cfg.Now().Add(flowLife))
	if err != nil {
		return a, err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(credential)
	if err != nil || !first {
		return a, wrong(err)
	}
	if a, err = s.store.AccountWithPasskey(r.Context(), parsed.RawID); errors.Is(err, fault.NotFound) {
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
	return a, s.store.UsePasskey(r.Context(), used.ID, detail)
}

const passkeyCookie = "hf_passkey"

// A registration is the question to a device for a new passkey. It is sealed for
// the session that it was asked in, and ends: whoever has typed the password once
// cannot add passkeys ever after.
type registration struct {
	Expires  int64 // in seconds
	Ceremony webauthn.SessionData
}

// registerStart asks a device for a new passkey, for who proves to be there:
// whoever adds one can come back with it.
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
		writeScriptError(w, statusOf(f), text)
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
		options, ceremony, err = s.webauthn.BeginRegistration(passkeyUser{a, org.Name}, webauthn.WithExclusions(exclude))
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
	value := base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal("passkey "+n.ID, b))
	http.SetCookie(w, s.cookie(passkeyCookie, value, flowLife))
	writeScript(w, http.StatusOK, map[string]any{"publicKey": options.Response})
}

// register takes a new passkey.
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
		writeScriptError(w, statusOf(f), plainText(f))
		return
	}
	http.SetCookie(w, s.cookie(passkeyCookie, "", 0))
	writeScript(w, http.StatusOK, map[string]string{"location": "/account"})
}

// registrationCeremony returns the question that was asked in a session, once.
func (s *Service) registrationCeremony(r *http.Request, n resource.Session) (q webauthn.SessionData, _ error) {
	over := fault.New(fault.FailedPrecondition, "Precondition failed: the question to the passkey is over; try again")
	c, err := r.Cookie(s.cookieName(passkeyCookie))
	if err != nil {
		return q, over
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return q, over
	}
	var reg registration
	b, err := s.cfg.Key.Open("passkey "+n.ID, sealed)
	if err != nil || json.Unmarshal(b, &reg) != nil || s.cfg.Now().Unix() >= reg.Expires {
		return q, over
	}
	q = reg.Ceremony
	first, err := s.store.Spend(r.Context(), digest("passkey "+q.Challenge), s.cfg.Now().Add(flowLife))
	if err == nil && !first {
		err = over
	}
	return q, err
}

func (s *Service) addPasskey(r *http.Request, a resource.Account, in scriptRequest, ceremony webauthn.SessionData) error {
	parsed, err := protocol.ParseCredentialCreationResponseBytes(in.Credential)
	if err != nil {
		return &fault.Error{Code: fault.InvalidArgument, Message: "Invalid argument: the passkey cannot be read", Cause: err}
	}
	made, err := s.webauthn.CreateCredential(passkeyUser{Account: a}, ceremony, parsed)
	if err != nil {
		return &fault.Error{Code: fault.InvalidArgument, Message: "Invalid argument: the passkey did not prove itself", Cause: err}
	}
	detail, err := json.Marshal(made)
	if err != nil {
		return err
	}
	name := shortText(in.Name)
	if name == "" {
		name = "Passkey of " + s.now().Format("2006-01-02")
	}
	return s.store.AddPasskey(r.Context(), a.UID, resource.Passkey{ID: made.ID, Name: name, Detail: detail})
}

// scriptAccount returns the account of the browser that a script runs in.
func (s *Service) scriptAccount(w http.ResponseWriter, r *http.Request) (a resource.Account, in scriptRequest, n resource.Session, ok bool) {
	if in, ok = readScript(w, r); !ok {
		return a, in, n, false
	}
	n, ok = s.browser(r)
	if !ok || !s.sameCSRF(n, in.CSRF) {
		writeScriptError(w, http.StatusForbidden, "You are no longer signed in. Load the page again.")
		return a, in, n, false
	}
	a, err := s.store.AccountOf(r.Context(), n.Identity)
	if err != nil || s.webauthn == nil {
		writeScriptError(w, http.StatusBadRequest, "Passkeys are for accounts that are kept here.")
		return a, in, n, false
	}
	return a, in, n, true
}
