package login

import (
	"errors"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/factor"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// scriptFlow returns the flow that a script request names.
func (s *Service) scriptFlow(r *http.Request, in site.ScriptRequest) (*flow, error) {
	f := s.loadFlow(r, in.Flow)
	if f == nil {
		return nil, site.ScriptFailure(http.StatusBadRequest, "This sign-in is over. Start again.", nil)
	}
	if !s.factors.Passkeys() {
		return nil, site.ScriptFailure(http.StatusBadRequest, "Passkeys cannot be used at this address.", nil)
	}
	return f, nil
}

// passkeyStart begins a WebAuthn authentication ceremony. If a password was right, the
// passkey must belong to its account. Otherwise any passkey is accepted.
func (s *Service) passkeyStart(w http.ResponseWriter, r *http.Request, in site.ScriptRequest) (any, error) {
	f, err := s.scriptFlow(r, in)
	if err != nil {
		return nil, err
	}
	var owner *resource.Account
	if f.Account != "" {
		var a resource.Account
		a, err = s.accounts.Account(r.Context(), f.Account)
		owner = &a
	}
	var options factor.Options
	if err == nil {
		options, f.WebAuthn, err = s.factors.BeginLogin(owner)
	}
	if err != nil {
		return nil, site.ScriptFailure(http.StatusInternalServerError, "The passkey cannot be used now.", err)
	}
	s.saveFlow(w, r, f)
	return options, nil
}

// passkey finishes a WebAuthn authentication ceremony and signs in.
func (s *Service) passkey(w http.ResponseWriter, r *http.Request, in site.ScriptRequest) (any, error) {
	f, err := s.scriptFlow(r, in)
	if err != nil {
		return nil, err
	}
	// Passkeys have their own counters, because wrong passwords must not delay passkeys.
	key := "passkeys " + input.Network(r)
	if wait := s.site.Acquire(key, site.PerAddress); wait > 0 {
		s.site.Refuse(r, site.RefusalAt(resource.Account{}, resource.ByPasskey, resource.RefusedLimit))
		site.RetryAfter(w, wait)
		return nil, site.ScriptFailure(http.StatusTooManyRequests, site.TooMany(wait), nil)
	}
	var proved func(resource.Account) bool
	if f.Account != "" {
		proved = f.provesPassword
	}
	a, err := s.factors.VerifyPasskey(r.Context(), f.WebAuthn, in.Credential, proved)
	s.site.Count("passkey", err)
	if errors.Is(err, fault.Unauthenticated) {
		s.site.Refuse(r, site.RefusalAt(a, resource.ByPasskey, resource.RefusedPasskey))
		return nil, site.ScriptFailure(http.StatusUnauthorized, factor.WrongPasskey, nil)
	}
	if err != nil {
		return nil, site.ScriptFailure(http.StatusInternalServerError, "The passkey cannot be checked now.", err)
	}
	s.site.Release(key)
	if f.Account != "" {
		f.Factor = resource.ByPasskey
	} else {
		f.Method = resource.ByPasskey
	}
	answer := &headerRecorder{header: w.Header()} // records the redirect, which the script of the page follows
	err = s.finishLocalSignIn(answer, r, f, a)
	if err != nil || answer.status != http.StatusSeeOther {
		return nil, site.ScriptFailure(http.StatusForbidden, "You were not signed in. Try another way.", err)
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
