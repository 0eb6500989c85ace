package selfservice

import (
	"encoding/base64"
	"html/template"
	"net/http"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/factor"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

const (
	totpCookie = "hf_totp"
	setupLife  = 15 * time.Minute // time in which a person must finish setting up a factor
)

// totpStart checks the password and shows a new secret for one-time passwords. The
// secret stays in a cookie until the person has entered a one-time password from it.
func (s *Service) totpStart(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	if err := s.verifyCurrentPassword(r, a, "app", input.Field(w, r, "current")); err != nil {
		return err
	}
	org, err := s.admin.OrganizationName(r.Context(), a.UID)
	var key factor.TOTPSecret
	if err == nil {
		key, err = s.factors.NewTOTP(a, org)
	}
	if err != nil {
		return site.Titled("One-time passwords cannot be set up", err)
	}
	http.SetCookie(w, s.site.SealedCookie(totpCookie, "totp "+n.ID, []byte(key.URL()), setupLife))
	return s.totpPage(w, r, http.StatusOK, n, key, site.Frame{})
}

func (s *Service) totpPage(
	w http.ResponseWriter, r *http.Request, status int, n resource.Session, key factor.TOTPSecret, frame site.Frame,
) error {
	qr, err := key.QR()
	if err != nil {
		return site.Titled("One-time passwords cannot be set up", err)
	}
	frame.CSRF = s.site.CSRF(n.ID)
	return s.site.Show(w, r, status, "totp", &totpPage{
		Frame: frame, Secret: key.Text(), Link: template.URL(key.URL()),
		QR: template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(qr)),
	})
}

// totpFinish stores the secret of totpStart if the person has entered a one-time password
// from it.
func (s *Service) totpFinish(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	plain, ok := s.site.OpenCookie(r, totpCookie, "totp "+n.ID)
	key, err := factor.ParseTOTP(string(plain))
	if !ok || err != nil {
		return site.Redirect(w, r, "/account")
	}
	attempt, wait := s.site.AcquireAttempt(r, "new totp "+string(a.UID), nil)
	if wait > 0 {
		site.RetryAfter(w, wait)
		return s.totpPage(w, r, http.StatusTooManyRequests, n, key, site.Wrong("code", site.TooMany(wait)))
	}
	right, err := s.factors.EnableTOTP(r.Context(), a, key, input.Field(w, r, "code"))
	if !right {
		return s.totpPage(w, r, http.StatusBadRequest, n, key,
			site.Wrong("code", "This code is not right. Codes change every 30 seconds."))
	}
	attempt.Release()
	if err != nil {
		return site.Titled("One-time passwords cannot be set up", err)
	}
	s.admin.LogChange(r.Context(), "an authenticator app was added", a)
	http.SetCookie(w, s.site.Cookie(totpCookie, "", 0))
	if a.RecoveryCodes == 0 {
		return s.showRecovery(w, r, a, "The authenticator app is set up.")
	}
	return site.Redirect(w, r, "/account")
}

// totpRemove checks the password and removes the secret for one-time passwords.
func (s *Service) totpRemove(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	if err := s.verifyCurrentPassword(r, a, "totp", input.Field(w, r, "current")); err != nil {
		return err
	}
	_, err := s.accounts.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error {
		a.TOTP, a.TOTPStep = nil, 0
		return nil
	}, resource.AppRemoved)
	if err != nil {
		return err
	}
	s.admin.LogChange(r.Context(), "an authenticator app was removed", a)
	return s.accountNotice(w, r, n, "One-time passwords are off.")
}
