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
	recoveryCodes = 10 // number of codes per account
	recoveryLen   = 10 // number of letters per code, each with 5 bits
)

// newRecoveryCodes returns new recovery codes in the form that people see.
func newRecoveryCodes() (codes []string) {
	for range recoveryCodes {
		text := rand.Text()
		codes = append(codes, text[:recoveryLen/2]+"-"+text[recoveryLen/2:recoveryLen])
	}
	return codes
}

// readRecoveryCode normalizes a code that a person has typed. Codes contain no 0, 1
// or 8, so it replaces these digits by the letters that look like them.
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

// recoveryDigest returns the digest under which a code is stored. It is keyed with the
// key of the installation, so that an attacker with only the database cannot find
// codes by trying all of them.
func (c *Checker) recoveryDigest(account resource.UID, code string) []byte {
	m := hmac.New(sha256.New, c.key.Derive("recovery codes"))
	m.Write([]byte(string(account) + " " + readRecoveryCode(code)))
	return m.Sum(nil)
}

// UseRecoveryCode reports whether a code is a valid recovery code of an account, and
// voids it.
func (c *Checker) UseRecoveryCode(ctx context.Context, a resource.Account, code string) (bool, error) {
	return c.accounts.UseRecoveryCode(ctx, a.UID, c.recoveryDigest(a.UID, code))
}

// RenewRecoveryCodes replaces the recovery codes of an account and returns the new
// ones, which cannot be read again.
func (c *Checker) RenewRecoveryCodes(ctx context.Context, a resource.Account) ([]string, error) {
	codes := newRecoveryCodes()
	var digests [][]byte
	for _, code := range codes {
		digests = append(digests, c.recoveryDigest(a.UID, code))
	}
	return codes, c.accounts.SetRecoveryCodes(ctx, a.UID, digests)
}
