package login

import (
	"crypto/rand"
	"errors"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/provider"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// chooseProvider sends the browser to a provider.
func (s *Service) chooseProvider(w http.ResponseWriter, r *http.Request, f *flow) error {
	uid, err := resource.ParseUID("provider", input.Field(w, r, "provider"))
	if err != nil {
		return err
	}
	f.Provider = uid
	return s.redirectToProvider(w, r, f)
}

// redirectToProvider sends an authorization request to the provider of the
// flow, with a state that only this browser has the cookie of, a nonce that
// the ID token must repeat, and a PKCE challenge that the code is bound to.
func (s *Service) redirectToProvider(w http.ResponseWriter, r *http.Request, f *flow) error {
	p, err := s.store.Provider(r.Context(), f.Provider)
	if errors.Is(err, fault.NotFound) || err == nil && p.Disabled && f.Purpose != forTrial {
		err = fault.New(fault.NotFound, "Not found: there is no such provider, or it is not in use")
	}
	if err != nil {
		return err
	}
	f.UpstreamState, f.Nonce, f.Verifier = f.ID+"."+rand.Text(), rand.Text(), provider.NewVerifier()
	address, err := s.providers.AuthCodeURL(r.Context(), p, f.providerRequest())
	if err != nil {
		return s.showProviderError(w, r, f, p, err)
	}
	f.Account, f.WebAuthn = "", nil
	if !s.saveFlow(w, r, f) {
		return site.Titled(cannotBegin, fault.Field("request", "is too long"))
	}
	return site.Redirect(w, r, address)
}

// providerRequest returns what an authorization request of the flow and its
// response have in common.
func (f *flow) providerRequest() provider.Request {
	q := provider.Request{State: f.UpstreamState, Nonce: f.Nonce, Verifier: f.Verifier}
	if f.Again {
		q.MaxAge = site.FreshTime
	}
	return q
}

// showProviderError shows why a provider cannot be used, beside the other ways
// to sign in.
func (s *Service) showProviderError(
	w http.ResponseWriter, r *http.Request, f *flow, p resource.IdentityProvider, err error,
) error {
	failure, ok := errors.AsType[*provider.Error](err)
	if !ok {
		return err
	}
	if s.site.MayLog(r) {
		s.log.WarnContext(r.Context(), "a provider failed",
			"provider", p.UID, "err", failure.Error(), "cause", failure.Unwrap())
	}
	page := &signInPage{}
	page.Problem = "The provider " + p.Name + " cannot be used now: " + failure.Error() + "."
	f.UpstreamState, f.Nonce, f.Verifier, f.Provider = "", "", "", ""
	s.saveFlow(w, r, f)
	if f.Purpose == forTrial {
		return s.site.Problem(w, r, http.StatusBadGateway, "The provider did not pass", page.Problem)
	}
	return s.signInPage(w, r, http.StatusBadGateway, f, page)
}

// callback accepts the authorization response of a provider: once, in the
// browser that was sent there, and only from that provider.
func (s *Service) callback(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	f := s.flowForState(r, q.Get("state"))
	own := r.PathValue("provider")
	if f == nil || own != "" && own != provider.LastSegment(f.Provider) {
		return s.site.Problem(w, r, http.StatusBadRequest, "This answer was not asked for",
			"It belongs to another sign-in, to another browser, or came too late. "+
				"Start again from the program that sent you here.")
	}
	first, err := s.accounts.UseOnce(r.Context(), signindb.Digest("leg "+f.UpstreamState), s.cfg.Now().Add(flowLife))
	if err == nil && !first {
		err = fault.New(fault.PermissionDenied, "Permission denied: this answer of the provider was used before")
	}
	if err != nil {
		return err
	}
	p, err := s.store.Provider(r.Context(), f.Provider)
	if err != nil {
		return err
	}
	claims, err := s.providers.Accept(r.Context(), p, f.providerRequest(), q, own != "")
	s.site.Count("provider", err)
	f.Method = resource.ByProvider
	if err != nil {
		s.site.Refuse(r, denials.Refusal{Group: p.UID.Parent(), Subject: p.UID, Activity: resource.Activity{
			Method: f.Method, Provider: p.UID, Reason: resource.RefusedProvider,
		}})
		return s.showProviderError(w, r, f, p, err)
	}
	if f.Purpose == forTrial {
		return s.showTrial(w, r, f, p, claims)
	}
	_, err = s.finishSignIn(w, r, f, arrivalFromClaims(p, claims), claims.Raw)
	return err
}

// flowForState returns the flow whose authorization request had that state.
func (s *Service) flowForState(r *http.Request, state string) *flow {
	if len(state) != 53 { // two ids and a dot
		return nil
	}
	f := s.loadFlow(r, state[:26])
	if f == nil || f.UpstreamState != state || f.Provider == "" {
		return nil
	}
	return f
}

func arrivalFromClaims(p resource.IdentityProvider, claims *provider.Claims) resource.SignIn {
	return resource.SignIn{
		Issuer: p.OIDC.Issuer, Subject: claims.Subject, Realm: p.Realm, Voucher: p.Voucher(), Trusted: p.Trusted,
		Name: claims.Name, Email: claims.Email, EmailVerified: claims.EmailVerified, Groups: claims.Groups,
		UpdateRoles: true, Register: true,
	}
}
