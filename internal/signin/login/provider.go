package login

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"golang.org/x/oauth2"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
)

// chooseProvider sends the browser to a provider.
func (s *Service) chooseProvider(w http.ResponseWriter, r *http.Request, f *flow) error {
	uid, err := resource.ParseUID("provider", s.field(w, r, "provider"))
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
	d, err := s.upstream.discover(r.Context(), p.OIDC.Issuer, false)
	if err != nil {
		return s.showProviderError(w, r, f, p, err)
	}
	cfg, err := s.oauthConfig(d, p)
	if err != nil {
		return err
	}
	f.Account, f.WebAuthn = "", nil
	f.UpstreamState, f.Nonce, f.Verifier = f.ID+"."+newID(), newID(), oauth2.GenerateVerifier()
	options := []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("nonce", f.Nonce)}
	if f.Again { // a provider would otherwise answer with a session of its own
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	if usesPKCE(d, p) {
		options = append(options, oauth2.S256ChallengeOption(f.Verifier))
	}
	if !s.saveFlow(w, r, f) {
		return titled(cannotBegin, fault.Field("request", "is too long"))
	}
	return s.redirect(w, r, cfg.AuthCodeURL(f.UpstreamState, options...))
}

// showProviderError shows why a provider cannot be used, beside the other ways
// to sign in.
func (s *Service) showProviderError(
	w http.ResponseWriter, r *http.Request, f *flow, p resource.IdentityProvider, err error,
) error {
	failure, ok := errors.AsType[*upstreamError](err)
	if !ok {
		return err
	}
	if s.mayLog(r) {
		s.log.WarnContext(r.Context(), "a provider failed",
			"provider", p.UID, "err", failure.text, "cause", failure.cause)
	}
	page := &signInPage{}
	page.Problem = "The provider " + p.Name + " cannot be used now: " + failure.text + "."
	f.UpstreamState, f.Nonce, f.Verifier, f.Provider = "", "", "", ""
	s.saveFlow(w, r, f)
	if f.Purpose == forTrial {
		return s.problem(w, r, http.StatusBadGateway, "The provider did not pass", page.Problem)
	}
	return s.signInPage(w, r, http.StatusBadGateway, f, page)
}

const maxCode = 4096

// callback accepts the authorization response of a provider: once, in the
// browser that was sent there, and only from that provider.
func (s *Service) callback(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	f := s.flowForState(r, q.Get("state"))
	own := r.PathValue("provider")
	if f == nil || own != "" && own != lastSegment(f.Provider) {
		return s.problem(w, r, http.StatusBadRequest, "This answer was not asked for",
			"It belongs to another sign-in, to another browser, or came too late. "+
				"Start again from the program that sent you here.")
	}
	first, err := s.accounts.UseOnce(r.Context(), digest("leg "+f.UpstreamState), s.cfg.Now().Add(flowLife))
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
	claims, err := s.acceptResponse(r.Context(), p, f, q, own != "")
	s.count("provider", err)
	f.Method = resource.ByProvider
	if err != nil {
		s.refused(r, denials.Refusal{Group: p.UID.Parent(), Subject: p.UID, Activity: resource.Activity{
			Method: f.Method, Provider: p.UID, Reason: resource.RefusedProvider,
		}})
		return s.showProviderError(w, r, f, p, err)
	}
	if f.Purpose == forTrial {
		return s.showTrial(w, r, f, p, claims)
	}
	_, err = s.finishSignIn(w, r, f, arrivalFromClaims(p, claims), claims.raw)
	return err
}

// acceptResponse returns what a provider says in an authorization response. A
// response at the provider's own address is always accepted there, because the
// version before this one asks for it. Its error is an *upstreamError, or an
// outage.
func (s *Service) acceptResponse(
	ctx context.Context, p resource.IdentityProvider, f *flow, q url.Values, own bool,
) (*providerClaims, error) {
	redirectURI := s.ownRedirectURI(p.UID)
	if !own {
		d, err := s.upstream.discover(ctx, p.OIDC.Issuer, false)
		if err != nil {
			return nil, err
		}
		if redirectURI = s.redirectURI(d, p); redirectURI != s.at(SharedRedirect) {
			return nil, &upstreamError{"it answered at the address of the other providers, not at its own", nil}
		}
	}
	if err := s.checkResponse(ctx, p, q); err != nil {
		return nil, err
	}
	code := q.Get("code")
	first, err := s.accounts.UseOnce(ctx, digest("code "+code), s.cfg.Now().Add(flowLife))
	if err != nil {
		return nil, err
	}
	if !first { // it was sent to another provider, which could now send it back to us
		return nil, &upstreamError{"its code has come with another answer before", nil}
	}
	return s.redeem(ctx, p, f, code, redirectURI)
}

// checkResponse checks the parameters of an authorization response. An issuer
// that announces to send iss must do so (RFC 9207). Its error is an
// *upstreamError.
func (s *Service) checkResponse(ctx context.Context, p resource.IdentityProvider, q url.Values) error {
	iss, code := q.Get("iss"), q.Get("code")
	if iss != "" && iss != p.OIDC.Issuer {
		return &upstreamError{"another issuer answered in its place", nil}
	}
	if why := q.Get("error"); why != "" {
		return &upstreamError{"it answered " + shortText(why+" "+q.Get("error_description")), nil}
	}
	if d, err := s.upstream.discover(ctx, p.OIDC.Issuer, false); err == nil && d.metadata.SendsIssuer && iss == "" {
		return &upstreamError{"it did not say that it answered (iss), as it promises to", nil}
	}
	if code == "" || len(code) > maxCode {
		return &upstreamError{"it answered without a code", nil}
	}
	return nil
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

func arrivalFromClaims(p resource.IdentityProvider, claims *providerClaims) resource.SignIn {
	return resource.SignIn{
		Issuer: p.OIDC.Issuer, Subject: claims.subject, Realm: p.Realm, Voucher: p.Voucher(), Trusted: p.Trusted,
		Name: claims.name, Email: claims.email, EmailVerified: claims.emailVerified, Groups: claims.groups,
		UpdateRoles: true, Register: true,
	}
}

// showTrial shows the claims that a provider sends and the roles they would
// give. Nobody is signed in.
func (s *Service) showTrial(
	w http.ResponseWriter, r *http.Request, f *flow, p resource.IdentityProvider, claims *providerClaims,
) error {
	page := &trialPage{Provider: p.Name, Redirect: s.at(r.URL.Path), Verified: claims.emailVerified, Groups: claims.groups}
	for _, name := range slices.Sorted(maps.Keys(claims.all)) {
		page.Claims = append(page.Claims, Claim{shortText(name), claimText(claims.all[name])})
	}
	roles, err := s.store.RolesFor(r.Context(), p, claims.groups)
	if err != nil {
		return titled("The trial cannot go on", err)
	}
	page.Roles = roles
	if claims.email == "" {
		page.Warnings = append(page.Warnings, "The provider tells no e-mail address: ask for the scope email.")
	} else if !claims.emailVerified {
		page.Warnings = append(page.Warnings,
			"The provider does not say that the e-mail address is verified: invites to it will be refused.")
	}
	if c := p.OIDC.GroupsClaim; c != "" && claims.all[c] == nil {
		page.Warnings = append(page.Warnings, "There is no claim "+shortText(c)+", which groups are read from.")
	}
	s.deleteFlow(w, f)
	return s.show(w, r, http.StatusOK, "trial", nil, page)
}
