package login

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

var (
	plainWord     = regexp.MustCompile(`^[\x21-\x7e]{1,256}$`)
	challengeForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
)

// begin starts a sign-in. Programs open its address in the browser. The query contains
// no secrets. begin redirects to the sign-in page or to the provider, and changes
// nothing in the database.
func (s *Service) begin(w http.ResponseWriter, r *http.Request) error {
	f, err := s.newFlow(r)
	if err != nil {
		return site.Titled(cannotBegin, err)
	}
	return s.start(w, r, f)
}

// start stores a new flow and redirects the browser.
func (s *Service) start(w http.ResponseWriter, r *http.Request, f *flow) error {
	f.ID, f.Expires = rand.Text(), s.cfg.Now().Add(flowLife).Unix()
	if f.Provider != "" && (f.Purpose == forTrial || !s.hasSessionOf(r, f)) {
		return s.redirectToProvider(w, r, f)
	}
	f.Provider = ""
	if !s.saveFlow(w, r, f) {
		return site.Titled(cannotBegin, fault.Field("request", "is too long"))
	}
	return site.Redirect(w, r, "/signin?flow="+f.ID)
}

// hasSessionOf reports whether the session of the browser was started with the provider of
// the flow, and is enough for the flow.
func (s *Service) hasSessionOf(r *http.Request, f *flow) bool {
	n, ok := s.site.Session(r)
	return ok && n.Act != nil && f.Identity == "" && n.Voucher.Provider() == f.Provider && !s.mustSignInAgain(r, f, n)
}

// newFlow returns a flow with the parameters of a sign-in. It returns
// fault.InvalidArgument if a parameter is not valid.
func (s *Service) newFlow(r *http.Request) (*flow, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fault.Field("query", "is malformed")
	}
	f := &flow{
		Purpose: forBrowser, Client: q.Get("client_id"), Identity: q.Get("identity"), Invite: q.Get("invite"),
		Refresh: q.Get("create_refresh_token") == "true", RegisteredOnly: q.Get("skip_registration") == "true",
	}
	var bad []fault.Violation
	wrong := func(name, problem string) {
		bad = append(bad, fault.Violation{Subject: name, Description: problem})
	}
	s.readTarget(f, q, wrong)
	if f.Client != "" && q.Get("idp_id") != "" {
		wrong("client_id", "cannot be combined with idp_id")
	}
	if f.Client != "" && !plainWord.MatchString(f.Client) {
		wrong("client_id", "must be 1 to 256 plain characters")
	}
	if f.Identity != "" {
		if _, err := resource.ParseUID("identity", f.Identity); err != nil {
			wrong("identity", "is not a uid")
		}
	}
	f.Audience = splitAudience(strings.Join(q["audience"], ","))
	if f.Scopes, err = s.scopes(r, q["scope"]); err != nil {
		wrong("scope", "is not the uid or the name of a group")
	}
	if len(bad) > 0 {
		return nil, fault.Fields(bad)
	}
	if err := s.checkTokenParams(f); err != nil {
		return nil, err
	}
	if id := q.Get("idp_id"); id != "" {
		if err := s.readProvider(r, f, id); err != nil {
			return nil, err
		}
	}
	if q.Get("trial") == "true" && f.Provider != "" {
		f.Purpose, f.Redirect = forTrial, ""
	}
	return f, nil
}

// splitAudience returns the audiences in a comma-separated list.
func splitAudience(list string) (audiences []string) {
	for aud := range strings.SplitSeq(list, ",") {
		if aud = strings.TrimSpace(aud); aud != "" {
			audiences = append(audiences, aud)
		}
	}
	return audiences
}

// readTarget reads the parameters that say where the tokens are delivered. It calls wrong
// for each parameter that is not valid.
func (s *Service) readTarget(f *flow, q url.Values, wrong func(name, problem string)) {
	redirect, code := q.Get("redirect"), q.Get("headless_code")
	switch {
	case redirect != "" && code != "":
		wrong("headless_code", "cannot be combined with redirect")
	case redirect != "":
		f.Purpose, f.Redirect = forCommand, redirect
		if _, ok := input.Loopback(redirect); !ok {
			wrong("redirect", "must be an http address of this computer, because tokens are not delivered to another host")
		}
		if exit := q.Get("exit"); exit != "" && exit != "redirect" {
			wrong("exit", "must be redirect")
		}
	case code != "":
		f.Purpose, f.Headless = forHeadless, code
		if b, err := base64.RawURLEncoding.DecodeString(code); err != nil || len(b) != 32 {
			wrong("headless_code", "must be an X25519 public key in unpadded base64url")
		}
	case q.Get("exit") != "":
		wrong("redirect", "is required")
	}
	f.State, f.Challenge = q.Get("state"), q.Get("code_challenge")
	if f.Challenge != "" && (q.Get("code_challenge_method") != "S256" || !challengeForm.MatchString(f.Challenge)) {
		wrong("code_challenge", "must be a SHA-256 in unpadded base64url, with code_challenge_method=S256")
	}
	if len(f.State) > 512 || len(f.Invite) > 1024 || len(q["scope"]) > 16 {
		wrong("request", "is too long")
	}
}

// readProvider sets the provider of a flow. id is the UID of the provider, or the name of
// an organization with one provider.
func (s *Service) readProvider(r *http.Request, f *flow, id string) error {
	if uid, err := resource.ParseUID("idp_id", id); err == nil {
		p, err := s.store.Provider(r.Context(), uid)
		if errors.Is(err, fault.NotFound) || err == nil && p.Disabled && r.URL.Query().Get("trial") != "true" {
			return fault.New(fault.NotFound, "Not found: there is no such provider, or it is disabled")
		}
		f.Provider, f.Organization = uid, uid.Root()
		return err
	}
	org, err := s.store.Organization(r.Context(), strings.ToLower(id))
	if errors.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, "Not found: there is no organization with that name")
	}
	if err != nil {
		return err
	}
	f.Organization = org.UID
	providers, err := s.store.ProvidersFor(r.Context(), org.UID)
	if err == nil && len(providers) == 1 {
		f.Provider = providers[0].UID
	}
	return err
}

// scopes returns the UIDs of the groups that a program names in its scope parameter. Each name is the UID of a group or
// the name of an organization, escaped twice.
func (s *Service) scopes(r *http.Request, names []string) (uids []string, _ error) {
	for _, name := range names {
		name, err := url.QueryUnescape(name)
		if err != nil {
			return nil, err
		}
		if name == "" || name == "/" {
			continue
		}
		uid, err := resource.ParseUID("scope", name)
		if err != nil {
			org, err := s.store.Organization(r.Context(), name)
			if err != nil {
				return nil, err
			}
			uid = org.UID
		}
		uids = append(uids, string(uid))
	}
	return uids, nil
}

// orgcheck reports to programs whether there is an organization with a name.
func (s *Service) orgcheck(w http.ResponseWriter, r *http.Request) {
	site.SecureHeaders(w, "")
	w.Header().Set("Content-Type", "application/json")
	name := r.URL.Query().Get("name")
	_, err := s.store.Organization(r.Context(), strings.ToLower(name))
	if name == "" {
		err = fault.Field("name", "is required")
	}
	if err != nil && !errors.Is(err, fault.NotFound) {
		f := s.site.Report(r, err)
		w.WriteHeader(f.Code.HTTPStatus())
		_ = json.NewEncoder(w).Encode(map[string]any{"code": int(f.Code), "message": f.Message})
		return
	}
	_ = json.NewEncoder(w).Encode(err == nil)
}
