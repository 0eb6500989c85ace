package login

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"html/template"
	"image/png"
	"net/http"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/totp"

	"github.com/holdfast-dev/holdfast/resource"
)

const (
	totpPeriod = 30 * time.Second
	totpSkew   = 1 // periods that a clock may differ
	qrSize     = 200
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
	secret, err := s.cfg.Key.Open("one-time passwords", a.TOTP)
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
func (s *Service) totp(w http.ResponseWriter, r *http.Request, f *flow, a resource.Account) {
	if len(a.TOTP) == 0 {
		s.redirect(w, r, "/signin?flow="+f.ID)
		return
	}
	refuse := func(status int, why string) {
		p := s.factorPage(a)
		p.Wrong = map[string]string{"code": why}
		s.show(w, r, status, "factor", f, p)
	}
	attempt, wait := s.acquireAttempt(r, "totp "+string(a.UID), s.knownTo(r, a.UID))
	if wait > 0 {
		retryAfter(w, wait)
		refuse(http.StatusTooManyRequests, tooMany(wait))
		return
	}
	right, err := s.verifyTOTP(r.Context(), a, s.field(w, r, "code"))
	switch {
	case err != nil:
		s.fail(w, r, "This sign-in cannot go on", err)
	case !right:
		refuse(http.StatusUnauthorized, "This code is not right, or was used before. Codes change every 30 seconds.")
	default:
		attempt.release()
		s.finishLocalSignIn(w, r, f, a)
	}
}

// withPassword calls next with the account whose password was right in the flow
// of a request. Without one it redirects to the sign-in page.
func (s *Service) withPassword(
	next func(http.ResponseWriter, *http.Request, *flow, resource.Account),
) http.HandlerFunc {
	return s.withFlow(func(w http.ResponseWriter, r *http.Request, f *flow) {
		if f.Account != "" {
			if a, err := s.accounts.Account(r.Context(), f.Account); err == nil && f.provesPassword(a) {
				next(w, r, f, a)
				return
			}
		}
		s.redirect(w, r, "/signin?flow="+f.ID)
	})
}

// totpStart shows a new secret after the password was checked. The secret is
// kept in a cookie, and is used only once the person has entered a code of it.
func (s *Service) totpStart(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) {
	if err := s.verifyCurrentPassword(r, a, "app", s.field(w, r, "current")); err != nil {
		s.showAccountError(w, r, n, err)
		return
	}
	org, err := s.store.Group(r.Context(), a.UID.Root())
	var key *otp.Key
	if err == nil {
		key, err = totp.Generate(totp.GenerateOpts{
			Issuer: "Holdfast " + s.origin.Hostname(), AccountName: accountLabel(a, org), SecretSize: 20,
		})
	}
	if err != nil {
		s.fail(w, r, "One-time passwords cannot be set up", err)
		return
	}
	http.SetCookie(w, s.sealedCookie(totpCookie, "totp "+n.ID, []byte(key.String()), flowLife))
	s.totpPage(w, r, http.StatusOK, n, key, nil)
}

func (s *Service) totpPage(
	w http.ResponseWriter, r *http.Request, status int, n resource.Session, key *otp.Key, wrong map[string]string,
) {
	var b bytes.Buffer
	img, err := key.Image(qrSize, qrSize)
	if err == nil {
		err = png.Encode(&b, img)
	}
	if err != nil {
		s.fail(w, r, "One-time passwords cannot be set up", err)
		return
	}
	p := &totpPage{
		Secret: grouped(key.Secret()), Link: template.URL(key.String()),
		QR: template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())),
	}
	p.CSRF, p.Wrong = s.csrf(n.ID), wrong
	s.show(w, r, status, "totp", nil, p)
}

// grouped splits a secret into groups of four letters, which are easier to
// type.
func grouped(secret string) string {
	var parts []string
	for len(secret) > 4 {
		parts, secret = append(parts, secret[:4]), secret[4:]
	}
	return strings.Join(append(parts, secret), " ")
}

// totpFinish enables one-time passwords for a person who has entered one.
func (s *Service) totpFinish(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) {
	plain, ok := s.openCookie(r, totpCookie, "totp "+n.ID)
	key, err := otp.NewKeyFromURL(string(plain))
	if !ok || err != nil {
		s.redirect(w, r, "/account")
		return
	}
	attempt, wait := s.acquireAttempt(r, "new totp "+string(a.UID), nil)
	if wait > 0 {
		retryAfter(w, wait)
		s.totpPage(w, r, http.StatusTooManyRequests, n, key, map[string]string{"code": tooMany(wait)})
		return
	}
	step := matchTOTP(key.Secret(), trimCode(s.field(w, r, "code")), 0, s.cfg.Now())
	if step == 0 {
		s.totpPage(w, r, http.StatusBadRequest, n, key, map[string]string{
			"code": "This code is not right. Codes change every 30 seconds.",
		})
		return
	}
	attempt.release()
	_, err = s.accounts.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error {
		a.TOTP, a.TOTPStep = s.cfg.Key.Seal("one-time passwords", []byte(key.Secret())), step
		return nil
	})
	if err != nil {
		s.fail(w, r, "One-time passwords cannot be set up", err)
		return
	}
	http.SetCookie(w, s.cookie(totpCookie, "", 0))
	if a.RecoveryCodes == 0 {
		s.showRecovery(w, r, a, "The authenticator app is set up.")
		return
	}
	s.redirect(w, r, "/account")
}
