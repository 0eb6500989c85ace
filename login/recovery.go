package login

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast/resource"
)

const (
	recoveryCodes = 10
	recoveryLen   = 10 // letters of 5 bits
)

// newRecoveryCodes makes the codes of an account, as they are shown.
func newRecoveryCodes() (all []string) {
	for range recoveryCodes {
		text := rand.Text()
		all = append(all, text[:recoveryLen/2]+"-"+text[recoveryLen/2:recoveryLen])
	}
	return all
}

// readRecoveryCode is a code as people type it. There is no 0, 1 or 8 in one, so
// who types them means the letters that look like them.
func readRecoveryCode(text string) string {
	return strings.Map(func(r rune) rune {
		switch r = upper(r); {
		case r >= 'A' && r <= 'Z', r >= '2' && r <= '7':
			return r
		case r == '0':
			return 'O'
		case r == '1':
			return 'I'
		case r == '8':
			return 'B'
		}
		return -1
	}, text)
}

// recoveryDigest is what is kept of a code. It is made with the installation's
// key: somebody who has only the database cannot try out all codes there are.
func (s *Service) recoveryDigest(account resource.UID, code string) []byte {
	m := hmac.New(sha256.New, s.cfg.Key.Derive("recovery codes"))
	m.Write([]byte(string(account) + " " + readRecoveryCode(code)))
	return m.Sum(nil)
}

// recovery takes a recovery code of somebody whose password was right.
func (s *Service) recovery(w http.ResponseWriter, r *http.Request) {
	f, a, ok := s.requirePasswordProof(w, r)
	if !ok {
		return
	}
	refuse := func(status int, why string) {
		p := s.factorPage(a)
		p.Wrong = map[string]string{"recovery": why}
		s.show(w, r, status, "factor", f, p)
	}
	attempt, wait := s.acquireAttempt(r, "recovery "+string(a.UID), s.knownTo(r, a.UID))
	if wait > 0 {
		retryAfter(w, wait)
		refuse(http.StatusTooManyRequests, tooMany(wait))
		return
	}
	good, err := s.store.UseRecoveryCode(r.Context(), a.UID, s.recoveryDigest(a.UID, s.field(w, r, "recovery")))
	switch {
	case err != nil:
		s.fail(w, r, "This sign-in cannot go on", err)
	case !good:
		refuse(http.StatusUnauthorized, "This recovery code is not right, or was used before.")
	default:
		attempt.release()
		s.log.InfoContext(r.Context(), "a recovery code was used", "account", a.UID, "left", a.RecoveryCodes-1)
		s.finishLocalSignIn(w, r, f, a)
	}
}

// recoveryRenew gives somebody who proves to be there recovery codes. Those they
// had are void.
func (s *Service) recoveryRenew(w http.ResponseWriter, r *http.Request) {
	n, a, ok := s.requireAccount(w, r)
	if !ok {
		return
	}
	if !hasFactor(a) {
		s.redirect(w, r, "/account")
		return
	}
	if err := s.verifyCurrentPassword(r, a, "recovery", s.field(w, r, "current")); err != nil {
		s.showAccountError(w, r, n, err)
		return
	}
	s.showRecovery(w, r, a, "")
}

// showRecovery gives an account recovery codes and shows them, which it can do
// only now.
func (s *Service) showRecovery(w http.ResponseWriter, r *http.Request, a resource.Account, notice string) {
	codes := newRecoveryCodes()
	var digests [][]byte
	for _, c := range codes {
		digests = append(digests, s.recoveryDigest(a.UID, c))
	}
	if err := s.store.SetRecoveryCodes(r.Context(), a.UID, digests); err != nil {
		s.fail(w, r, "Recovery codes cannot be made", err)
		return
	}
	s.show(w, r, http.StatusOK, "recovery", nil, &recoveryPage{Email: a.Email, Codes: codes, Notice: notice})
}

// hasFactor tells whether an account has something that recovery codes stand in
// for.
func hasFactor(a resource.Account) bool { return len(a.TOTP) > 0 || len(a.Passkeys) > 0 }
