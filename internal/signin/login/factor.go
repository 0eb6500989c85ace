package login

import (
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// errWrong is the error with which a wrong code is counted.
var errWrong = fault.New(fault.Unauthenticated, "Unauthenticated: the code is wrong")

// totp checks a one-time password as the second factor.
func (s *Service) totp(w http.ResponseWriter, r *http.Request, f *flow, a resource.Account) error {
	if len(a.TOTP) == 0 {
		return site.Redirect(w, r, "/signin?flow="+f.ID)
	}
	return s.acceptFactor(w, r, f, a, secondFactor{
		name: "totp", field: "code",
		wrong:  "This code is not right, or was used before. Codes change every 30 seconds.",
		verify: func(code string) (bool, error) { return s.factors.VerifyTOTP(r.Context(), a, code) },
	})
}

// A secondFactor is a kind of code that a person can enter as the second factor.
type secondFactor struct {
	name, field, wrong string // name for counters, field of the form, message for a wrong code
	verify             func(code string) (bool, error)
}

// acceptFactor checks the code in a form, and signs in if it is right.
func (s *Service) acceptFactor(
	w http.ResponseWriter, r *http.Request, f *flow, a resource.Account, by secondFactor,
) error {
	refuse := func(status int, problem string) error {
		p := s.factorPage(a)
		p.Frame = site.Wrong(by.field, problem)
		return s.show(w, r, status, "factor", f, p)
	}
	attempt, wait := s.site.AcquireAttempt(r, by.name+" "+string(a.UID), idsOf(s.knownTo(r, a.UID)))
	if wait > 0 {
		s.site.Refuse(r, site.RefusalAt(a, by.name, resource.RefusedLimit))
		site.RetryAfter(w, wait)
		return refuse(http.StatusTooManyRequests, site.TooMany(wait))
	}
	right, err := by.verify(input.Field(w, r, by.field))
	if err != nil {
		s.site.Count(by.name, err)
		return err
	}
	if !right {
		s.site.Count(by.name, errWrong)
		s.site.Refuse(r, site.RefusalAt(a, by.name, resource.RefusedCode))
		return refuse(http.StatusUnauthorized, by.wrong)
	}
	s.site.Count(by.name, nil)
	attempt.Release()
	f.Factor = by.name
	return s.finishLocalSignIn(w, r, f, a)
}

// withPassword returns a handler that calls next with the account whose password was right
// in the flow. If there is none, it redirects to the sign-in page.
func (s *Service) withPassword(
	next func(http.ResponseWriter, *http.Request, *flow, resource.Account) error,
) http.HandlerFunc {
	return s.withFlow(func(w http.ResponseWriter, r *http.Request, f *flow) error {
		if f.Account != "" {
			if a, err := s.accounts.Account(r.Context(), f.Account); err == nil && f.provesPassword(a) {
				return next(w, r, f, a)
			}
		}
		return site.Redirect(w, r, "/signin?flow="+f.ID)
	})
}

// recovery checks a recovery code as the second factor.
func (s *Service) recovery(w http.ResponseWriter, r *http.Request, f *flow, a resource.Account) error {
	return s.acceptFactor(w, r, f, a, secondFactor{
		name: "recovery", field: "recovery", wrong: "This recovery code is not right, or was used before.",
		verify: func(code string) (bool, error) { return s.factors.UseRecoveryCode(r.Context(), a, code) },
	})
}
