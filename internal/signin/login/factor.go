package login

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"html/template"
	"image/png"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
)

const (
	totpPeriod = 30 * time.Second
	totpSkew   = 1 // periods that a clock may differ
	qrSize     = 240
	totpCookie = "hf_totp"
)

// matchTOTP returns the period whose one-time password is code, if it is later
// than the last that was used, or 0.
func matchTOTP(secret, code string, last int64, now time.Time) int64 {
	for skew := -totpSkew; skew <= totpSkew; skew++ {
		at := now.Add(time.Duration(skew) * totpPeriod)
		step := at.Unix() / int64(totpPeriod.Seconds())
		want, err := totp.GenerateCode(secret, at)
		if err == nil && step > last && subtle.ConstantTimeCompare([]byte(want), []byte(code)) == 1 {
			return step
		}
	}
	return 0
}

func trimCode(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), " ", "") }

// verifyTOTP reports whether a code is a one-time password of an account, and
// marks it as used.
func (s *Service) verifyTOTP(ctx context.Context, a resource.Account, code string) (bool, error) {
	secret, err := s.cfg.Key.Open(secret.ForOneTimePasswords, a.TOTP)
	if err != nil {
		return false, err
	}
	step := matchTOTP(string(secret), trimCode(code), a.TOTPStep, s.cfg.Now())
	if step == 0 {
		return false, nil
	}
	return s.accounts.UseTOTP(ctx, a.UID, step)
}

// totp accepts a one-time password as the second factor.
func (s *Service) totp(w http.ResponseWriter, r *http.Request, f *flow, a resource.Account) error {
	if len(a.TOTP) == 0 {
		return s.redirect(w, r, "/signin?flow="+f.ID)
	}
	return s.acceptFactor(w, r, f, a, factor{
		name: "totp", field: "code",
		wrong:  "This code is not right, or was used before. Codes change every 30 seconds.",
		verify: func(code string) (bool, error) { return s.verifyTOTP(r.Context(), a, code) },
	})
}

// A factor is a code that a person can enter as the second factor.
type factor struct {
	name, field, wrong string
	verify             func(code string) (bool, error)
}

// acceptFactor signs in if the code in a form is right.
func (s *Service) acceptFactor(w http.ResponseWriter, r *http.Request, f *flow, a resource.Account, by factor) error {
	refuse := func(status int, why string) error {
		p := s.factorPage(a)
		p.Frame = wrong(by.field, why)
		return s.show(w, r, status, "factor", f, p)
	}
	attempt, wait := s.acquireAttempt(r, by.name+" "+string(a.UID), s.knownTo(r, a.UID))
	if wait > 0 {
		s.refused(r, refusalAt(a, by.name, resource.RefusedLimit))
		retryAfter(w, wait)
		return refuse(http.StatusTooManyRequests, tooMany(wait))
	}
	right, err := by.verify(s.field(w, r, by.field))
	if err != nil {
		s.count(by.name, err)
		return err
	}
	if !right {
		s.count(by.name, errWrong)
		s.refused(r, refusalAt(a, by.name, resource.RefusedCode))
		return refuse(http.StatusUnauthorized, by.wrong)
	}
	s.count(by.name, nil)
	attempt.release()
	f.Factor = by.name
	return s.finishLocalSignIn(w, r, f, a)
}

// withPassword calls next with the account whose password was right in the flow
// of a request. Without one it redirects to the sign-in page.
func (s *Service) withPassword(
	next func(http.ResponseWriter, *http.Request, *flow, resource.Account) error,
) http.HandlerFunc {
	return s.withFlow(func(w http.ResponseWriter, r *http.Request, f *flow) error {
		if f.Account != "" {
			if a, err := s.accounts.Account(r.Context(), f.Account); err == nil && f.provesPassword(a) {
				return next(w, r, f, a)
			}
		}
		return s.redirect(w, r, "/signin?flow="+f.ID)
	})
}

// totpStart shows a new secret after the password was checked. The secret is
// kept in a cookie, and is used only once the person has entered a code of it.
func (s *Service) totpStart(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	if err := s.verifyCurrentPassword(r, a, "app", s.field(w, r, "current")); err != nil {
		return err
	}
	org, err := s.organizationName(r.Context(), a.UID)
	var key *otp.Key
	if err == nil {
		key, err = totp.Generate(totp.GenerateOpts{
			Issuer: "Holdfast " + s.origin.Hostname(), AccountName: accountLabel(a, org), SecretSize: 20,
		})
	}
	if err != nil {
		return titled("One-time passwords cannot be set up", err)
	}
	http.SetCookie(w, s.sealedCookie(totpCookie, "totp "+n.ID, []byte(key.String()), flowLife))
	return s.totpPage(w, r, http.StatusOK, n, key, Frame{})
}

func (s *Service) totpPage(
	w http.ResponseWriter, r *http.Request, status int, n resource.Session, key *otp.Key, frame Frame,
) error {
	var b bytes.Buffer
	img, err := key.Image(qrSize, qrSize)
	if err == nil {
		err = png.Encode(&b, img)
	}
	if err != nil {
		return titled("One-time passwords cannot be set up", err)
	}
	frame.CSRF = s.csrf(n.ID)
	return s.show(w, r, status, "totp", nil, &totpPage{
		Frame: frame, Secret: grouped(key.Secret()), Link: template.URL(key.String()),
		QR: template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())),
	})
}

// grouped splits a secret into groups of four letters, which are easier to
// type.
func grouped(secret string) string {
	var parts []string
	for part := range slices.Chunk([]byte(secret), 4) {
		parts = append(parts, string(part))
	}
	return strings.Join(parts, " ")
}

// totpFinish enables one-time passwords for a person who has entered one.
func (s *Service) totpFinish(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	plain, ok := s.openCookie(r, totpCookie, "totp "+n.ID)
	key, err := otp.NewKeyFromURL(string(plain))
	if !ok || err != nil {
		return s.redirect(w, r, "/account")
	}
	attempt, wait := s.acquireAttempt(r, "new totp "+string(a.UID), nil)
	if wait > 0 {
		retryAfter(w, wait)
		return s.totpPage(w, r, http.StatusTooManyRequests, n, key, wrong("code", tooMany(wait)))
	}
	step := matchTOTP(key.Secret(), trimCode(s.field(w, r, "code")), 0, s.cfg.Now())
	if step == 0 {
		return s.totpPage(w, r, http.StatusBadRequest, n, key,
			wrong("code", "This code is not right. Codes change every 30 seconds."))
	}
	attempt.release()
	_, err = s.accounts.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error {
		a.TOTP, a.TOTPStep = s.cfg.Key.Seal(secret.ForOneTimePasswords, []byte(key.Secret())), step
		return nil
	}, resource.AppAdded)
	if err != nil {
		return titled("One-time passwords cannot be set up", err)
	}
	s.logChange(r, "an authenticator app was added", a)
	http.SetCookie(w, s.cookie(totpCookie, "", 0))
	if a.RecoveryCodes == 0 {
		return s.showRecovery(w, r, a, "The authenticator app is set up.")
	}
	return s.redirect(w, r, "/account")
}

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
	s.logChange(r, "recovery codes were made", a)
	return s.show(w, r, http.StatusOK, "recovery", nil, &recoveryPage{
		Email: a.Email, Codes: codes, Notice: notice, Download: s.recoveryFile(a.Email, codes),
	})
}

// recoveryFile returns recovery codes as a file inside an address, so that they
// can be downloaded without a script and without the server keeping them.
func (s *Service) recoveryFile(email string, codes []string) template.URL {
	text := "Recovery codes of " + email + " on " + s.origin.Host + "\n" +
		"Each signs you in once, after your password.\n\n" + strings.Join(codes, "\n") + "\n"
	return template.URL("data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(text)))
}

// hasFactor reports whether an account has a second factor, which recovery
// codes can replace.
func hasFactor(a resource.Account) bool { return len(a.TOTP) > 0 || len(a.Passkeys) > 0 }
