package login

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"unicode"

	"github.com/holdfast-dev/holdfast/resource"
)

const (
	recoveryCodes = 10
	recoveryLen   = 10 // letters, of 5 bits each
)

// newRecoveryCodes creates recovery codes in the form in which they are shown.
func newRecoveryCodes() (all []string) {
	for range recoveryCodes {
		text := rand.Text()
		all = append(all, text[:recoveryLen/2]+"-"+text[recoveryLen/2:recoveryLen])
	}
	return all
}

// readRecoveryCode normalizes a code that a person has typed. Codes have no 0,
// 1 or 8, so those are read as the letters that look like them.
func readRecoveryCode(text string) string {
	return strings.Map(func(r rune) rune {
		switch r = unicode.ToUpper(r); {
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

// recoveryDigest returns what is stored of a code. It is keyed with the
// installation's key, so that the database alone does not allow trying out all
// codes.
func (s *Service) recoveryDigest(account resource.UID, code string) []byte {
	m := hmac.New(sha256.New, s.cfg.Key.Derive("recovery codes"))
	m.Write([]byte(string(account) + " " + readRecoveryCode(code)))
	return m.Sum(nil)
}

// recovery accepts a recovery code as the second factor.
func (s *Service) recovery(w http.ResponseWriter, r *http.Request, f *flow, a resource.Account) error {
	return s.acceptFactor(w, r, f, a, factor{
		name: "recovery", field: "recovery", wrong: "This recovery code is not right, or was used before.",
		verify: func(code string) (bool, error) {
			right, err := s.accounts.UseRecoveryCode(r.Context(), a.UID, s.recoveryDigest(a.UID, code))
			if right {
				s.log.InfoContext(r.Context(), "a recovery code was used", "account", a.UID, "left", a.RecoveryCodes-1)
			}
			return right, err
		},
	})
}

// recoveryRenew creates new recovery codes after the password was checked, and
// voids the old ones.
func (s *Service) recoveryRenew(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	if !hasFactor(a) {
		return s.redirect(w, r, "/account")
	}
	if err := s.verifyCurrentPassword(r, a, "recovery", s.field(w, r, "current")); err != nil {
		return err
	}
	return s.showRecovery(w, r, a, "")
}

// showRecovery creates recovery codes for an account and shows them, which is
// possible only now.
func (s *Service) showRecovery(w http.ResponseWriter, r *http.Request, a resource.Account, notice string) error {
	codes := newRecoveryCodes()
	var digests [][]byte
	for _, c := range codes {
		digests = append(digests, s.recoveryDigest(a.UID, c))
	}
	if err := s.accounts.SetRecoveryCodes(r.Context(), a.UID, digests); err != nil {
		return titled("Recovery codes cannot be made", err)
	}
	return s.show(w, r, http.StatusOK, "recovery", nil, &recoveryPage{Email: a.Email, Codes: codes, Notice: notice})
}

// hasFactor reports whether an account has a second factor, which recovery
// codes can replace.
func hasFactor(a resource.Account) bool { return len(a.TOTP) > 0 || len(a.Passkeys) > 0 }
