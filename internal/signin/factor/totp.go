package factor

import (
	"bytes"
	"context"
	"crypto/subtle"
	"image/png"
	"slices"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
)

const (
	totpPeriod = 30 * time.Second
	totpSkew   = 1   // number of periods by which a clock may differ
	qrSize     = 240 // width and height in pixels
)

// matchTOTP returns the period whose one-time password is code. It returns 0 if there is no such period, or if the
// period is not later than last, the last period that was used.
func matchTOTP(secret, code string, last int64, now time.Time) int64 {
	for skew := -totpSkew; skew <= totpSkew; skew++ {
		asOf := now.Add(time.Duration(skew) * totpPeriod)
		step := asOf.Unix() / int64(totpPeriod.Seconds())
		want, err := totp.GenerateCode(secret, asOf)
		if err == nil && step > last && subtle.ConstantTimeCompare([]byte(want), []byte(code)) == 1 {
			return step
		}
	}
	return 0
}

func trimCode(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), " ", "") }

// VerifyTOTP reports whether a code is a valid one-time password of an account, and
// marks it as used. Each one-time password is valid once.
func (c *Checker) VerifyTOTP(ctx context.Context, a resource.Account, code string) (bool, error) {
	secret, err := c.key.Open(secret.ForOneTimePasswords, a.TOTP)
	if err != nil {
		return false, err
	}
	step := matchTOTP(string(secret), trimCode(code), a.TOTPStep, c.now())
	if step == 0 {
		return false, nil
	}
	return c.accounts.UseTOTP(ctx, a.UID, step)
}

// A TOTPSecret is the secret from which an authenticator app computes one-time
// passwords.
type TOTPSecret struct{ key *otp.Key }

// NewTOTP returns a new secret for an account. org is the name of its organization,
// which the authenticator app shows.
func (c *Checker) NewTOTP(a resource.Account, org string) (TOTPSecret, error) {
	key, err := totp.Generate(totp.GenerateOpts{
		Issuer: "Holdfast " + c.origin.Hostname(), AccountName: accountLabel(a, org), SecretSize: 20,
	})
	return TOTPSecret{key}, err
}

// ParseTOTP returns the secret with that otpauth URL.
func ParseTOTP(address string) (TOTPSecret, error) {
	key, err := otp.NewKeyFromURL(address)
	return TOTPSecret{key}, err
}

// URL returns the otpauth URL of the secret.
func (t TOTPSecret) URL() string { return t.key.String() }

// Text returns the secret in groups of four letters, which are easier to type.
func (t TOTPSecret) Text() string {
	var parts []string
	for part := range slices.Chunk([]byte(t.key.Secret()), 4) {
		parts = append(parts, string(part))
	}
	return strings.Join(parts, " ")
}

// QR returns the URL of the secret as a QR code in PNG.
func (t TOTPSecret) QR() ([]byte, error) {
	img, err := t.key.Image(qrSize, qrSize)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = png.Encode(&b, img)
	return b.Bytes(), err
}

// EnableTOTP stores the secret t in an account if code is a one-time password of t, and reports whether it did.
func (c *Checker) EnableTOTP(ctx context.Context, a resource.Account, t TOTPSecret, code string) (bool, error) {
	step := matchTOTP(t.key.Secret(), trimCode(code), 0, c.now())
	if step == 0 {
		return false, nil
	}
	_, err := c.accounts.UpdateAccount(ctx, a.UID, func(a *resource.Account) error {
		a.TOTP, a.TOTPStep = c.key.Seal(secret.ForOneTimePasswords, []byte(t.key.Secret())), step
		return nil
	}, resource.AppAdded)
	return true, err
}
