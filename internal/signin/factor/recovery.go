package factor

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"unicode"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
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
func (c *Checker) recoveryDigest(account resource.UID, code string) []byte {
	m := hmac.New(sha256.New, c.key.Derive("recovery codes"))
	m.Write([]byte(string(account) + " " + readRecoveryCode(code)))
	return m.Sum(nil)
}

// UseRecoveryCode reports whether a code is a recovery code of an account, and
// voids it.
func (c *Checker) UseRecoveryCode(ctx context.Context, a resource.Account, code string) (bool, error) {
	return c.accounts.UseRecoveryCode(ctx, a.UID, c.recoveryDigest(a.UID, code))
}

// RenewRecoveryCodes gives an account new recovery codes, voids the old ones,
// and returns the new ones, which cannot be read again.
func (c *Checker) RenewRecoveryCodes(ctx context.Context, a resource.Account) ([]string, error) {
	codes := newRecoveryCodes()
	var digests [][]byte
	for _, code := range codes {
		digests = append(digests, c.recoveryDigest(a.UID, code))
	}
	return codes, c.accounts.SetRecoveryCodes(ctx, a.UID, digests)
}
