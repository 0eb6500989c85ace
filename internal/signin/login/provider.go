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

// chooseProvider redirects the browser to the provider that the person has chosen.
func (s *Service) chooseProvider(w http.ResponseWriter, r *http.Request, f *flow) error {
	uid, err := resource.ParseUID("provider", input.Field(w, r, "provider"))
	if err != nil {
		return err
	}
	f.Provider = uid
	return s.redirectToProvider(w, r, f)
}

// redirectToProvider redirects the browser to the provider of the flow with an authorization
// request. The state belongs to the cookie of this browser, the ID token must contain the
// nonce, and the code is bound to the PKCE challenge.
func (s *Service) redirectToProvider(w http.ResponseWriter, r *http.Request, f *flow) error {
	p, err := s.store.Provider(r.Context(), f.Provider)
	if errors.Is(err, fault.NotFound) || err == nil && p.Disabled && f.Purpose != forTrial {
		err = fault.New(fault.NotFound, "Not found: there is no such provider, or it is disabled")
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

// providerRequest returns the values that the authorization request of the flow and its
// response share.
func (f *flow) providerRequest() provider.Request {
	q := provider.Request{State: f.UpstreamState, Nonce: f.Nonce, Verifier: f.Verifier}
	if f.needsCredential() {
		q.MaxAge = site.FreshTime
	}
	return q
}

// showProviderError shows the failure of a provider on the sign-in page, so that the person
// can sign in another way. It returns err itself if err is not a failure of the provider.
func (s *Service) showProviderError(
	w http.ResponseWriter, r *http.Request, f *flow, p resource.IdentityProvider, err error,
) error {
	failure, ok := errors.AsType[*provider.Error](err)
	if !ok {
		return err
	}
	if s.site.MayLog(r) {
		s.log.WarnContext(r.Context(), "identity provider failed",
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

// callback handles the authorization response of a provider. It accepts a response once, in the
// browser that was redirected to the provider, and only from that provider.
func (s *Service) callback(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	f := s.flowForState(r, q.Get("state"))
	segment := r.PathValue("provider") // "" at the shared redirect URI
	if f == nil || segment != "" && segment != provider.LastSegment(f.Provider) {
		return s.site.Problem(w, r, http.StatusBadRequest, "This response was not requested",
			"It belongs to another sign-in, to another browser, or came too late. "+
				"Start again from the program that sent you here.")
	}
	first, err := s.accounts.UseOnce(r.Context(), signindb.Digest("leg "+f.UpstreamState), s.cfg.Now().Add(flowLife))
	if err == nil && !first {
		err = fault.New(fault.PermissionDenied, "Permission denied: this response of the provider was already used")
	}
	if err != nil {
		return err
	}
	p, err := s.store.Provider(r.Context(), f.Provider)
	if err != nil {
		return err
	}
	claims, err := s.providers.Accept(r.Context(), p, f.providerRequest(), q, segment != "")
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

// flowForState returns the flow whose authorization request had that state, or nil.
func (s *Service) flowForState(r *http.Request, state string) *flow {
	if len(state) != 53 { // a state is two ids and a dot
		return nil
	}
	f := s.loadFlow(r, state[:26])
	if f == nil || f.UpstreamState != state || f.Provider == "" {
		return nil
	}
	return f
}

// arrivalFromClaims returns the sign-in data of a person about whom a provider has made the claims.
func arrivalFromClaims(p resource.IdentityProvider, claims *provider.Claims) resource.SignIn {
	return resource.SignIn{
		Issuer: p.OIDC.Issuer, Subject: claims.Subject, Realm: p.Realm, Voucher: p.Voucher(), Trusted: p.Trusted,
		Name: claims.Name, Email: claims.Email, EmailVerified: claims.EmailVerified, Groups: claims.Groups,
		UpdateRoles: true, Register: true,
	}
}
