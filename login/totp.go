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
	totpSkew   = 1 // periods that a clock may be off
	qrSize     = 200
	totpCookie = "hf_totp"
)

// matchTOTP returns the period whose one-time password a code is, newer than the last
// that was used, or 0.
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

// verifyTOTP tells whether a code is a one-time password of an account that has
// not been used.
func (s *Service) verifyTOTP(ctx context.Context, a resource.Account, code string) (bool, error) {
	secret, err := s.cfg.Key.Open("one-time passwords", a.TOTP)
	if err != nil {
		return false, err
	}
	step := matchTOTP(string(secret), trimCode(code), a.TOTPStep, s.cfg.Now())
	if step == 0 {
		return false, nil
	}
	return s.store.UseTOTP(ctx, a.UID, step)
}

// totp takes the one-time password of somebody whose password was right.
func (s *Service) totp(w http.ResponseWriter, r *http.Request) {
	f, a, ok := s.requirePasswordProof(w, r)
	if !ok {
		return
	}
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

// requirePasswordProof returns the account of somebody whose password was right, and who has
// yet to bring a second factor. Who is not as far is led back.
func (s *Service) requirePasswordProof(w http.ResponseWriter, r *http.Request) (f *flow, a resource.Account, ok bool) {
	if f = s.requestFlow(w, r); f == nil {
		return nil, a, false
	}
	err := error(nil)
	if f.Account != "" {
		a, err = s.store.Account(r.Context(), f.Account)
	}
	if f.Account == "" || err != nil || !f.provesPassword(a) {
		s.redirect(w, r, "/signin?flow="+f.ID)
		return f, a, false
	}
	return f, a, true
}

// totpStart shows a new secret to somebody signed in who proves to be there. It
// counts once they have shown that they can use it; until then it is in a cookie.
func (s *Service) totpStart(w http.ResponseWriter, r *http.Request) {
	n, a, ok := s.requireAccount(w, r)
	if !ok {
		return
	}
	if err := s.verifyCurrentPassword(r, a, "app", s.field(w, r, "current")); err != nil {
		s.showAccountError(w, r, n, err)
		return
	}
	org, err := s.store.Group(r.Context(), a.UID.Root())
	var key *otp.Key
	if err == nil {
		key, err = totp.Generate(totp.GenerateOpts{Issuer: "Holdfast " + s.origin.Hostname(), AccountName: accountLabel(a, org), SecretSize: 20})
	}
	if err != nil {
		s.fail(w, r, "One-time passwords cannot be set up", err)
		return
	}
	http.SetCookie(w, s.cookie(totpCookie, base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal("totp "+n.ID, []byte(key.String()))), flowLife))
	s.totpPage(w, r, http.StatusOK, n, key, nil)
}

func (s *Service) totpPage(w http.ResponseWriter, r *http.Request, status int, n resource.Session, key *otp.Key, wrong map[string]string) {
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

// grouped writes a secret so that one can type it.
func grouped(secret string) string {
	var parts []string
	for len(secret) > 4 {
		parts, secret = append(parts, secret[:4]), secret[4:]
	}
	return strings.Join(append(parts, secret), " ")
}

// totpFinish turns one-time passwords on for who has typed one.
func (s *Service) totpFinish(w http.ResponseWriter, r *http.Request) {
	n, a, ok := s.requireAccount(w, r)
	if !ok {
		return
	}
	var plain []byte
	c, err := r.Cookie(s.cookieName(totpCookie))
	if err == nil {
		sealed, _ := base64.RawURLEncoding.DecodeString(c.Value)
		plain, err = s.cfg.Key.Open("totp "+n.ID, sealed)
	}
	var key *otp.Key
	if err == nil {
		key, err = otp.NewKeyFromURL(string(plain))
	}
	if err != nil {
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
		s.totpPage(w, r, http.StatusBadRequest, n, key, map[string]string{"code": "This code is not right. Codes change every 30 seconds."})
		return
	}
	attempt.release()
	_, err = s.store.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error {
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
