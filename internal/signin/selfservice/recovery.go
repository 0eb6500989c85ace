package selfservice

import (
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/factor"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// recoveryRenew checks the password and replaces the recovery codes.
func (s *Service) recoveryRenew(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	if !factor.Has(a) {
		return site.Redirect(w, r, "/account")
	}
	if err := s.verifyCurrentPassword(r, a, "recovery", input.Field(w, r, "current")); err != nil {
		return err
	}
	return s.showRecovery(w, r, a, "")
}

// showRecovery replaces the recovery codes of an account and shows the new ones. They
// cannot be shown again.
func (s *Service) showRecovery(w http.ResponseWriter, r *http.Request, a resource.Account, notice string) error {
	codes, err := s.factors.RenewRecoveryCodes(r.Context(), a)
	if err != nil {
		return site.Titled("Recovery codes cannot be made", err)
	}
	s.admin.LogChange(r.Context(), "recovery codes were made", a)
	return s.site.Show(w, r, http.StatusOK, "recovery", &recoveryPage{
		Email: a.Email, Codes: codes, Notice: notice, Download: s.recoveryFile(a.Email, codes),
	})
}

// recoveryFile returns recovery codes as a data URL, so that a person can download them
// without a script and the server does not store them.
func (s *Service) recoveryFile(email string, codes []string) template.URL {
	text := "Recovery codes of " + email + " on " + s.site.Origin().Host + "\n" +
		"Each signs you in once, after your password.\n\n" + strings.Join(codes, "\n") + "\n"
	return template.URL("data:text/plain;charset=utf-8;base64," + base64.StdEncoding.EncodeToString([]byte(text)))
}
