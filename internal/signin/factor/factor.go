// Package factor checks and registers the credentials of accounts other than
// passwords: one-time passwords of authenticator apps, recovery codes, and passkeys.
package factor

import (
	"net/url"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
)

// ceremonyLife is the time in which an authenticator must respond to a challenge.
const ceremonyLife = 15 * time.Minute

// A Checker checks and registers factors. It is safe for concurrent use.
type Checker struct {
	accounts *signindb.Store
	key      secret.Key
	origin   *url.URL
	now      func() time.Time
	webauthn *webauthn.WebAuthn // nil if browsers do not support passkeys at this address
}

// New returns a checker for the pages at origin. key seals the secrets of
// one-time passwords and derives the digests of recovery codes.
func New(accounts *signindb.Store, origin *url.URL, key secret.Key, now func() time.Time) (*Checker, error) {
	w, err := newWebAuthn(origin)
	if err != nil {
		return nil, err
	}
	return &Checker{accounts, key, origin, now, w}, nil
}

// Passkeys reports whether browsers support passkeys at our address.
func (c *Checker) Passkeys() bool { return c.webauthn != nil }

// Has reports whether an account has a second factor. Recovery codes can replace a
// second factor and do not count as one.
func Has(a resource.Account) bool { return len(a.TOTP) > 0 || len(a.Passkeys) > 0 }

// accountLabel returns the name of an account for authenticators. It contains the organization, because one e-mail
// address can have accounts in several organizations.
func accountLabel(a resource.Account, org string) string { return a.Email + " (" + org + ")" }
