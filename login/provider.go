package login

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"golang.org/x/oauth2"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// chooseProvider sends the browser to a provider.
func (s *Service) chooseProvider(w http.ResponseWriter, r *http.Request) {
	f := s.flowOf(w, r)
	if f == nil {
		return
	}
	uid, err := resource.ParseUID("provider", s.field(w, r, "provider"))
	if err != nil {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	f.Provider = uid
	s.askProvider(w, r, f)
}

// askProvider begins the question to the flow's provider: with a state that only
// this browser has the cookie of, a nonce that its answer must repeat, and a
// challenge that its code is bound to.
func (s *Service) askProvider(w http.ResponseWriter, r *http.Request, f *flow) {
	p, err := s.store.Provider(r.Context(), f.Provider)
	if errors.Is(err, fault.NotFound) || err == nil && p.Disabled && f.Purpose != forTrial {
		err = fault.New(fault.NotFound, "Not found: there is no such provider, or it is not in use")
	}
	if err != nil {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	d, err := s.upstream.discover(r.Context(), p.OIDC.Issuer, false)
	if err != nil {
		s.providerProblem(w, r, f, p, err)
		return
	}
	cfg, err := s.config(d, p)
	if err != nil {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	f.Account, f.WebAuthn = "", nil
	f.Leg, f.Nonce, f.Verifier = f.ID+"."+newID(), newID(), oauth2.GenerateVerifier()
	options := []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("nonce", f.Nonce)}
	if proves(d, p) {
		options = append(options, oauth2.S256ChallengeOption(f.Verifier))
	}
	if !s.keep(w, r, f) {
		s.fail(w, r, "This sign-in cannot begin", fault.Field("request", "is too long"))
		return
	}
	secureHeaders(w, "")
	http.Redirect(w, r, cfg.AuthCodeURL(f.Leg, options...), http.StatusSeeOther)
}

// providerProblem shows what is wrong with a provider, beside the other ways to
// sign in.
func (s *Service) providerProblem(w http.ResponseWriter, r *http.Request, f *flow, p resource.IdentityProvider, err error) {
	var told *upstreamError
	if !errors.As(err, &told) {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	s.log.WarnContext(r.Context(), "a provider failed", "provider", p.UID, "err", told.text, "cause", told.cause)
	page := &signInPage{}
	page.Problem = "The provider " + p.Name + " cannot be used now: " + told.text + "."
	f.Leg, f.Nonce, f.Verifier, f.Provider = "", "", "", ""
	s.keep(w, r, f)
	if f.Purpose == forTrial {
		s.problem(w, r, http.StatusBadGateway, "The provider did not pass", page.Problem)
		return
	}
	s.signInPage(w, r, http.StatusBadGateway, f, page)
}

const maxCode = 4096

// callback takes a provider's answer. It is taken once, in the browser that the
// question was asked in, from the provider that was asked.
func (s *Service) callback(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := s.openLeg(r, q.Get("state"))
	if f == nil || lastSegment(f.Provider) != r.PathValue("provider") {
		s.problem(w, r, http.StatusBadRequest, "This answer was not asked for",
			"It belongs to another sign-in, to another browser, or came too late. Start again from the program that sent you here.")
		return
	}
	first, err := s.accounts.Spend(r.Context(), digest("leg "+f.Leg), s.cfg.Now().Add(flowLife))
	if err == nil && !first {
		err = fault.New(fault.PermissionDenied, "Permission denied: this answer of the provider was used before")
	}
	if err != nil {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	p, err := s.store.Provider(r.Context(), f.Provider)
	if err != nil {
		s.fail(w, r, "This sign-in cannot go on", err)
		return
	}
	if iss := q.Get("iss"); iss != "" && iss != p.OIDC.Issuer { // RFC 9207
		err = &upstreamError{"another issuer answered in its place", nil}
	} else if why := q.Get("error"); why != "" {
		err = &upstreamError{"it answered " + shortText(why+" "+q.Get("error_description")), nil}
	} else if d, derr := s.upstream.discover(r.Context(), p.OIDC.Issuer, false); derr == nil && d.about.NamesItself && iss == "" {
		err = &upstreamError{"it did not say that it answered (iss), as it promises to", nil}
	} else if code := q.Get("code"); code == "" || len(code) > maxCode {
		err = &upstreamError{"it answered without a code", nil}
	}
	if err != nil {
		s.providerProblem(w, r, f, p, err)
		return
	}
	who, err := s.redeem(r.Context(), p, f, q.Get("code"))
	if err != nil {
		s.providerProblem(w, r, f, p, err)
		return
	}
	if f.Purpose == forTrial {
		s.showTrial(w, r, f, p, who)
		return
	}
	s.arrive(w, r, f, arrivalOf(p, who), who.raw)
}

// openLeg returns the flow whose question has that state.
func (s *Service) openLeg(r *http.Request, state string) *flow {
	if len(state) != 53 { // two ids and a dot
		return nil
	}
	f := s.open(r, state[:26])
	if f == nil || f.Leg != state || f.Provider == "" {
		return nil
	}
	return f
}

func arrivalOf(p resource.IdentityProvider, who *said) resource.Arrival {
	return resource.Arrival{
		Issuer: p.OIDC.Issuer, Subject: who.subject, Name: who.name, Email: who.email, EmailVerified: who.emailVerified,
		Realm: p.Realm, Voucher: p.Voucher(), Trusted: p.Trusted, SignIn: true, Groups: who.groups, Register: true,
	}
}

// showTrial shows what a provider says, and what would come of it. Nobody is
// signed in.
func (s *Service) showTrial(w http.ResponseWriter, r *http.Request, f *flow, p resource.IdentityProvider, who *said) {
	page := &trialPage{Provider: p.Name, Verified: who.emailVerified, Groups: who.groups}
	for _, name := range slices.Sorted(maps.Keys(who.all)) {
		page.Claims = append(page.Claims, Claim{shortText(name), text(who.all[name])})
	}
	roles, err := s.store.RolesFor(r.Context(), p, who.groups)
	if err != nil {
		s.fail(w, r, "The trial cannot go on", err)
		return
	}
	page.Roles = roles
	if who.email == "" {
		page.Warnings = append(page.Warnings, "The provider tells no e-mail address: ask for the scope email.")
	} else if !who.emailVerified {
		page.Warnings = append(page.Warnings, "The provider does not say that the e-mail address is verified: invites to it will be refused.")
	}
	if c := p.OIDC.GroupsClaim; c != "" && who.all[c] == nil {
		page.Warnings = append(page.Warnings, "There is no claim "+shortText(c)+", which groups are read from.")
	}
	s.drop(w, f)
	s.show(w, r, http.StatusOK, "trial", nil, page)
}
