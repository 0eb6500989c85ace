package selfservice

import (
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// verifyCurrentPassword checks the current password before a change of credentials,
// because somebody else may use a browser that was left open. If the password is
// wrong, it returns fault.InvalidArgument for the field of the page. If there were too
// many attempts, it returns fault.ResourceExhausted.
func (s *Service) verifyCurrentPassword(r *http.Request, a resource.Account, field, current string) error {
	// This counter is separate from the counter of the sign-in page.
	attempt, wait := s.site.AcquireAttempt(r, "inside "+string(a.UID), nil)
	if wait > 0 {
		s.site.Refuse(r, site.RefusalAt(a, resource.ByPassword, resource.RefusedLimit))
		return fault.New(fault.ResourceExhausted, "Resource exhausted: %s", site.TooMany(wait))
	}
	ok, err := s.hashes.Verify(r.Context(), a.Password, current)
	if err == nil && !ok && a.Password != "" {
		s.site.Refuse(r, site.RefusalAt(a, resource.ByPassword, resource.RefusedPassword))
		return fault.Field(field, "is not your password")
	}
	if err == nil {
		attempt.Release()
	}
	return err
}

// changePassword sets a new password and ends all other sessions of the person.
func (s *Service) changePassword(w http.ResponseWriter, r *http.Request, n resource.Session, a resource.Account) error {
	if err := s.verifyCurrentPassword(r, a, "current", input.Field(w, r, "current")); err != nil {
		return err
	}
	hash, err := s.admin.HashPassword(r.Context(), input.Field(w, r, "password"), a.Email)
	if err != nil {
		return err
	}
	_, err = s.accounts.UpdateAccount(r.Context(), a.UID, func(a *resource.Account) error {
		a.Password = hash
		return nil
	}, resource.PasswordChanged)
	if err == nil {
		s.admin.LogChange(r.Context(), "a password was changed", a)
		_, err = s.store.EndSessions(r.Context(), n.Identity, n.ID)
	}
	if err != nil {
		return err
	}
	return s.accountNotice(w, r, n, "Your password is changed. Other sessions have ended.")
}
