package protocol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/registry/mirror"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// LoginName is the user name for a login whose password is a token.
const LoginName = "_token"

// anonymous is the token of clients that have not logged in. Clients ask for a token even for public repos.
const anonymous = "anonymous"

// authenticate returns the context of a request, with its caller if the request has a token. It returns
// fault.Unauthenticated if the token is not valid for this registry, or if there is no token and the target cannot be
// public.
func (r *Registry) authenticate(req *http.Request, t target) (context.Context, error) {
	ctx := req.Context()
	if t.name != "" && req.Header.Get("Authorization") == "" {
		return resource.WithActor(ctx, actor(req, authz.Caller{})), nil
	}
	raw, err := r.credential(req, organizationOf(t.name))
	if err != nil {
		return nil, err
	}
	if raw == anonymous {
		return resource.WithActor(ctx, actor(req, authz.Caller{})), nil
	}
	c, err := r.issuer.Authenticate(ctx, raw, r.config.Host, r.authz)
	if err != nil {
		return nil, err
	}
	return resource.WithActor(authz.WithCaller(ctx, c), actor(req, c)), nil
}

// credential returns the token of a request. It is a bearer token or the password of the user LoginName. A workload
// sends its own token as the password; credential exchanges that token for a token of the registry. organization is the
// name of the organization of the requested repo, or "".
func (r *Registry) credential(req *http.Request, organization string) (string, error) {
	header := req.Header.Get("Authorization")
	if header == "" {
		return "", fault.New(fault.Unauthenticated, "Unauthenticated: a token is required")
	}
	if user, password, ok := req.BasicAuth(); ok {
		return r.signIn(req, user, password, organization)
	}
	raw, err := token.Bearer(req.Header.Values("Authorization"), true)
	if err != nil {
		return "", fault.New(fault.Unauthenticated,
			"Unauthenticated: the Authorization header must be Bearer and a token, or Basic")
	}
	return raw, nil
}

// signIn returns the token for a user name and a password. The user name of a workload is the UID of its identity. It
// may also be LoginName or empty; then exactly one identity of the organization must trust the password, which is a
// token of another issuer. If the password cannot be exchanged for a token, the error is fault.Unauthenticated, because
// another password may work.
func (r *Registry) signIn(req *http.Request, user, password, organization string) (raw string, err error) {
	ctx := resource.WithActor(req.Context(), actor(req, authz.Caller{}))
	if user == LoginName || user == "" {
		if r.config.AssumeIn == nil || organization == "" || !r.isForeign(password) {
			return password, nil
		}
		raw, err = r.config.AssumeIn(ctx, organization, password)
	} else {
		uid, failed := resource.ParseUID("user", user)
		if failed != nil || r.config.Assume == nil {
			return "", fault.New(fault.Unauthenticated, "Unauthenticated: log in as %s, with a token as the password, "+
				"or with the UID of an identity as the user", LoginName)
		}
		raw, err = r.config.Assume(ctx, uid, password)
	}
	if f := fault.From(err); errors.Is(err, fault.PermissionDenied) {
		message := strings.TrimPrefix(f.Message, "Permission denied: ")
		if claim := f.Metadata["claim"]; claim != "" {
			message = fmt.Sprintf("the password is not valid for this identity, or no longer: %s", message)
		}
		err = &fault.Error{Code: fault.Unauthenticated, Cause: err, Message: "Unauthenticated: " + message}
	}
	return raw, err
}

// isForeign reports whether a password is a token of another issuer.
func (r *Registry) isForeign(password string) bool {
	tok, err := issuers.Parse(password)
	return err == nil && tok.Issuer != r.issuer.Address()
}

// organizationOf returns the name of the organization of a repo.
func organizationOf(repo string) string {
	name, _, _ := strings.Cut(repo, "/")
	return name
}

// requestedOrganization returns the name of the organization of the first repo in the requested scopes, or "".
func requestedOrganization(scopes []string) string {
	parsed, err := parseScopes(scopes)
	if i := slices.IndexFunc(parsed, func(s resource.RegistryScope) bool { return s.Type == "repository" }); err == nil &&
		i >= 0 {
		return organizationOf(parsed[i].Name)
	}
	return ""
}

// locate sets the group and the repo of a target.
func (r *Registry) locate(ctx context.Context, t *target) (err error) {
	names := strings.Split(t.name, "/")
	if t.repo, t.cached = r.store.CachedRepo(names); !t.cached {
		if t.repo, t.group, err = r.store.FindRepo(ctx, names); err != nil {
			return err
		}
	}
	if t.repo != "" {
		t.group = t.repo.Parent()
	}
	t.found = t.group != "" && t.group.Depth() == len(names)-1
	return nil
}

// looksMissing runs the statements that the request for a missing target runs. So the time of a denial does not reveal
// that the target exists.
func (r *Registry) looksMissing(ctx context.Context, t target) error {
	if !t.cached {
		return nil // locate has run the statement
	}
	_, _, err := r.store.FindRepo(ctx, strings.Split(t.name, "/"))
	return err
}

// admit returns nil if the caller holds the capabilities of the endpoint on the target, and otherwise an error that
// does not reveal whether the target exists. The error is fault.Unauthenticated if a request with a token could
// succeed. admit sets t.public if the caller is allowed only because the target is public.
func (r *Registry) admit(ctx context.Context, t *target, needs []resource.Capability) error {
	if len(needs) == 0 {
		return nil
	}
	u, copied, failed := r.mirror.UpstreamOf(ctx, t.group)
	if failed != nil {
		return failed
	}
	err := r.authz.RequireAll(ctx, resource.NewCapabilities(needs...), cmp.Or(t.repo, t.group))
	switch {
	case err == nil && copied && slices.Contains(needs, resource.ManifestCreate):
		return oci.NewProblem(http.StatusForbidden, oci.Denied, "%s", mirror.ReadOnly(u))
	case err == nil && (t.found || copied && t.fetchable()):
		return nil
	case err == nil && slices.Contains(needs, resource.ManifestCreate):
		made, err := r.createGroups(ctx, t)
		if made || err != nil {
			return err
		}
		return oci.NewProblem(http.StatusForbidden, oci.Denied, "there is no group for %s: create it first", t.name)
	case err == nil: // 404 instead of a denial, so that a client that checks for existence continues with its push
		return oci.NewProblem(http.StatusNotFound, oci.NameUnknown, "there is no group for %s", t.name)
	}
	exists := t.found || copied && t.fetchable()
	if r.public(ctx, *t, needs) && exists { // reads the settings even if nothing exists, as looksMissing says
		t.public = true
		return nil
	}
	if failed := r.looksMissing(ctx, *t); failed != nil {
		return failed
	}
	return r.denial(ctx, *t, err)
}

// require returns nil if the target exists and the caller holds a capability on it, and otherwise a denial.
func (r *Registry) require(ctx context.Context, t target, want resource.Capability) error {
	if err := r.authz.Require(ctx, want, cmp.Or(t.repo, t.group)); err != nil {
		return r.denial(ctx, t, err)
	}
	return nil
}

// createGroups creates the missing groups of a target when a push begins, if the settings of the nearest existing
// group allow it and the caller may create groups and repos there. It reports whether it has created groups, and sets
// t.group.
func (r *Registry) createGroups(ctx context.Context, t *target) (bool, error) {
	begins := t.kind == "uploads" || t.kind == "manifest" && t.method == http.MethodPut
	if !begins || t.group == "" {
		return false, nil
	}
	set, err := r.store.RegistrySettings(ctx, t.group)
	if err != nil || !set.CreateGroups || set.NoCreateOnPush {
		return false, err
	}
	if r.authz.RequireAll(ctx, resource.NewCapabilities(resource.GroupsCreate, resource.RepoCreate), t.group) != nil {
		return false, nil
	}
	names := strings.Split(t.name, "/")
	missing := names[t.group.Depth() : len(names)-1]
	if err := oci.CheckGroupNames(t.group, missing); err != nil {
		return false, err
	}
	t.group, err = r.iam.EnsureGroups(ctx, t.group, missing)
	t.found = err == nil
	return t.found, err
}

// public reports whether everybody holds the capabilities on a target because its group is public.
func (r *Registry) public(ctx context.Context, t target, needs []resource.Capability) bool {
	open := []resource.Capability{resource.RepoBlobsGet, resource.ManifestList, resource.TagList,
		resource.ReferrersList}
	if slices.ContainsFunc(needs, func(c resource.Capability) bool { return !slices.Contains(open, c) }) {
		return false
	}
	set, err := r.store.RegistrySettings(ctx, t.group)
	if err != nil {
		r.config.Log.ErrorContext(ctx, "read registry settings", "err", err)
	}
	return err == nil && set.Public
}

// refusedToken records that a token or a password was refused. The identity is unknown. It does not record requests
// without a token, because they only get a challenge.
func (r *Registry) refusedToken(req *http.Request, err error) {
	if r.config.Refusals == nil || !errors.Is(err, fault.Unauthenticated) || req.Header.Get("Authorization") == "" &&
		req.PostForm == nil {
		return
	}
	r.config.Refusals.Add(denials.Refusal{Type: resource.RegistryRefused, Activity: resource.Activity{
		Reason: resource.RefusedToken, Address: resource.HostOf(req.RemoteAddr),
	}})
}

// denial counts and records a denial, and replaces the UID in it by the name that the client used. The record for the
// organization names the group or repo only if it exists. It does not contain the name in the request. If the client
// did not name the repo, there is no record, because the organization must not learn who pushes elsewhere.
func (r *Registry) denial(ctx context.Context, t target, err error) error {
	f := fault.From(err)
	if err == nil || f.Code != fault.PermissionDenied || t.unsaid {
		return err
	}
	r.config.Metrics.Denials.Add(1, f.Metadata["capability"])
	if actor := resource.ActorFrom(ctx); r.config.Refusals != nil {
		r.config.Refusals.Add(denials.Refusal{
			Type: resource.RegistryRefused, Group: t.group, Subject: t.repo, RequestID: actor.RequestID,
			Activity: resource.Activity{
				Identity: actor.Subject, Reason: resource.RefusedAccess, Capability: f.Metadata["capability"],
				Address: actor.Remote,
			},
		})
	}
	return oci.NewProblem(http.StatusForbidden, oci.Denied, "you lack %s on %s, or it does not exist",
		f.Metadata["capability"], t.name)
}

// challenge returns err. If a request with a token could succeed, it also sets the header that says where to get a
// token, and for which scope.
func (r *Registry) challenge(w http.ResponseWriter, t target, needs []resource.Capability, err error) error {
	return r.challengeFor(w, scopesOf(t, needs), "", err)
}

// challengeFor is challenge for scopes, with an error code of RFC 6750 or "".
func (r *Registry) challengeFor(w http.ResponseWriter, scopes []resource.RegistryScope, code string, err error) error {
	if fault.From(err).Code != fault.Unauthenticated {
		return err
	}
	value := fmt.Sprintf(`Bearer realm=%q,service=%q`, r.config.Realm, r.config.Host)
	if len(scopes) > 0 {
		value += fmt.Sprintf(`,scope=%q`, formatScopes(scopes))
	}
	if code != "" {
		value += fmt.Sprintf(`,error=%q`, code)
	}
	w.Header().Set("Www-Authenticate", value)
	return err
}

// scopedLife is the life of a token for scopes. Clients request a new token when it has expired.
const scopedLife = 15 * time.Minute

// serveToken exchanges a login for a token that is narrowed to the requested scopes. A client without a login gets an
// anonymous token. The token contains the requested actions that the caller may perform now. The capabilities of the
// caller are also checked for each request.
func (r *Registry) serveToken(w http.ResponseWriter, req *http.Request, _ target) error {
	raw, lasting, err := r.login(w, req)
	if err != nil {
		r.refusedToken(req, err)
		return err
	}
	scopes, err := parseScopes(req.Form["scope"])
	if err != nil {
		return err
	}
	issued := r.config.Now()
	token, until := raw, issued.Add(time.Hour)
	answer := map[string]any{"issued_at": issued.UTC().Format(time.RFC3339)}
	if raw != anonymous {
		c, err := r.issuer.Authenticate(req.Context(), raw, r.config.Host, r.authz)
		if err != nil {
			r.refusedToken(req, err)
			return err
		}
		ctx := authz.WithCaller(req.Context(), c)
		if r.config.Admit != nil {
			if err := r.config.Admit(ctx); err != nil {
				return err
			}
		}
		scopes, err = r.heldScopes(ctx, narrowScopes(c.Registry, scopes))
		if err != nil {
			return err
		}
		if token, err = r.mintScoped(ctx, c, scopes, issued); err != nil {
			r.refusedToken(req, err)
			return err
		}
		if until = issued.Add(scopedLife); c.Expires.Before(until) {
			until = c.Expires
		}
		if lasting && wantsRefreshToken(req) {
			answer["refresh_token"] = raw
		}
	}
	answer["token"], answer["access_token"], answer["scope"] = token, token, formatScopes(scopes)
	answer["expires_in"] = int(until.Sub(issued).Seconds())
	w.Header().Set("Cache-Control", "no-store")
	return writeJSON(w, req, "application/json", answer)
}

// mintScoped returns a token of a caller for scopes. All conditions that limit the token of the caller also limit the
// new token. issued is a time before the token of the caller was verified.
func (r *Registry) mintScoped(
	ctx context.Context, c authz.Caller, scopes []resource.RegistryScope, issued time.Time,
) (string, error) {
	return r.issuer.MintAdmitted(ctx, token.Claims{
		Subject: c.Identity, Audience: []string{r.config.Host}, Act: c.Act, Email: c.Email, EmailVerified: c.EmailVerified,
		Session: c.Session, Voucher: c.Voucher, Caps: c.Caps, Scopes: c.Scopes, Registry: scopes,
		Life: scopedLife, Until: c.Expires, Issued: issued,
	}, r.authz)
}

// wantsRefreshToken reports whether a client requests a refresh token, in the query or in an OAuth 2 form.
func wantsRefreshToken(req *http.Request) bool {
	return req.Form.Get("offline_token") == "true" || req.PostForm.Get("access_type") == "offline"
}

// login returns the token with which a client logs in. It is in the header or, if the request is a POST, may be in an
// OAuth 2 form. lasting is false if the token was exchanged for the password of a workload. Such a token is no
// refresh token, because the password is valid for longer. login parses the form of the request.
func (r *Registry) login(w http.ResponseWriter, req *http.Request) (raw string, lasting bool, err error) {
	const maxForm = 64 << 10
	req.Body = http.MaxBytesReader(w, req.Body, maxForm)
	if err := req.ParseForm(); err != nil {
		return "", false, oci.NewProblem(http.StatusBadRequest, oci.Unsupported, "the form cannot be read")
	}
	if req.Method == http.MethodPost {
		switch req.PostForm.Get("grant_type") {
		case "password":
			user, password := req.PostForm.Get("username"), req.PostForm.Get("password")
			raw, err = r.signIn(req, user, password, requestedOrganization(req.Form["scope"]))
			return raw, raw == password, err
		case "refresh_token":
			return req.PostForm.Get("refresh_token"), true, nil
		}
		return "", false, oci.NewProblem(http.StatusBadRequest, oci.Unsupported,
			"grant_type must be password or refresh_token")
	}
	if req.Header.Get("Authorization") == "" {
		return anonymous, false, nil
	}
	raw, err = r.credential(req, requestedOrganization(req.Form["scope"]))
	_, password, isBasic := req.BasicAuth()
	return raw, !isBasic || raw == password, err
}

// pushTo returns a reference to the repo of a push. If the repo does not exist, pushTo returns an error unless the
// caller may create it.
func (r *Registry) pushTo(ctx context.Context, t target) (registrydb.RepoRef, error) {
	ref := registrydb.RepoRef{Group: t.group, Name: t.base()}
	if t.repo != "" {
		return ref, nil
	}
	if err := r.require(ctx, t, resource.RepoCreate); err != nil {
		return ref, err
	}
	set, err := r.store.RegistrySettings(ctx, t.group)
	if err != nil {
		return ref, err
	}
	if set.NoCreateOnPush {
		return ref, oci.NewProblem(http.StatusForbidden, oci.Denied,
			"there is no repository %s, and this group does not create one on push", t.name)
	}
	ref.Create = true
	return ref, nil
}
