package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// anonymous is the token of who has none: clients ask for a token even where
// everybody may pull.
const anonymous = "anonymous"

// authenticate returns the context of a request with its caller in it, if there
// is one. It returns fault.Unauthenticated for a token that is not good here and
// now, and for none where nothing is said that could be public.
func (r *Registry) authenticate(req *http.Request, t target) (context.Context, error) {
	ctx := req.Context()
	if t.name != "" && req.Header.Get("Authorization") == "" {
		return resource.WithActor(ctx, actor(req, authz.Caller{})), nil
	}
	raw, err := r.credential(req)
	if err != nil {
		return nil, err
	}
	if raw == anonymous {
		return resource.WithActor(ctx, actor(req, authz.Caller{})), nil
	}
	c, err := r.verify(ctx, raw)
	if err != nil {
		return nil, err
	}
	return resource.WithActor(authz.WithCaller(ctx, c), actor(req, c)), nil
}

// verify returns the caller a token of the registry's audience stands for.
func (r *Registry) verify(ctx context.Context, raw string) (authz.Caller, error) {
	c, err := r.issuer.Verify(ctx, raw, r.config.Host)
	if err != nil {
		return c, err
	}
	if err := r.authz.EnsureCurrent(ctx); err != nil {
		return c, err
	}
	if why := r.authz.Revoked(c); why != "" {
		return c, fault.New(fault.Unauthenticated, "Unauthenticated: %s", why)
	}
	return c, nil
}

// credential returns the token a request carries: as a bearer, as the password
// of the user _token, or in exchange for a workload's own token, which is the
// password of a user called like the identity it stands for.
func (r *Registry) credential(req *http.Request) (string, error) {
	header := req.Header.Get("Authorization")
	if header == "" {
		return "", fault.New(fault.Unauthenticated, "Unauthenticated: a token is required")
	}
	if user, password, ok := req.BasicAuth(); ok {
		return r.signIn(req, user, password)
	}
	scheme, raw, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(raw) == "" {
		return "", fault.New(fault.Unauthenticated, "Unauthenticated: the Authorization header must be Bearer and a token, or Basic")
	}
	return strings.TrimSpace(raw), nil
}

// signIn returns the token that a user name and a password stand for. A password
// that does not, or no longer, is as bad as a wrong one: who logs in again may
// get in.
func (r *Registry) signIn(req *http.Request, user, password string) (string, error) {
	if user == LoginName {
		return password, nil
	}
	uid, err := resource.ParseUID("user", user)
	if err != nil || r.config.Assume == nil {
		return "", fault.New(fault.Unauthenticated, "Unauthenticated: log in as %s, with a token as the password", LoginName)
	}
	token, err := r.config.Assume(resource.WithActor(req.Context(), actor(req, authz.Caller{})), uid, password)
	if errors.Is(err, fault.PermissionDenied) {
		err = &fault.Error{Code: fault.Unauthenticated, Message: "Unauthenticated: the password does not stand for this identity, or no longer", Cause: err}
	}
	return token, err
}

// locate finds the group and the repo of a target.
func (r *Registry) locate(ctx context.Context, t *target) error {
	names := strings.Split(t.name, "/")
	err := r.locateRepo(ctx, names, t)
	if t.repo != "" {
		t.group, t.found = t.repo.Parent(), true
		return nil
	}
	if !errors.Is(err, fault.NotFound) {
		return err
	}
	for n := len(names) - 1; n > 0; n-- {
		group, err := r.store.GroupAt(ctx, names[:n])
		if err == nil {
			t.group, t.found = group, n == len(names)-1
			return nil
		}
		if !errors.Is(err, fault.NotFound) {
			return err
		}
	}
	return nil
}

// locateRepo finds the repo of a target, together with the manifest that somebody
// with a name wants of it: they mostly may, and it spares them a question to
// the database.
func (r *Registry) locateRepo(ctx context.Context, names []string, t *target) (err error) {
	_, known := authz.CallerFrom(ctx)
	pulls := t.kind == "manifest" && (t.method == http.MethodGet || t.method == http.MethodHead)
	if !known || !pulls || checkReference(t.reference) != nil {
		t.repo, err = r.store.RepoAt(ctx, names)
		return err
	}
	repo, m, err := r.store.ManifestAt(ctx, names, t.reference, t.method == http.MethodGet)
	if t.repo = repo; err == nil {
		t.manifest = &m
	}
	return err
}

// admit returns nil if the caller may do what the endpoint needs to the target.
// Who may not learns nothing of what is there. It returns fault.Unauthenticated
// if a token could help, and notes in t if everybody may.
func (r *Registry) admit(ctx context.Context, t *target, needs []resource.Capability) error {
	place := t.repo
	if place == "" {
		place = t.group
	}
	var want resource.Capabilities
	for _, c := range needs {
		want.Add(c)
	}
	if len(needs) == 0 {
		return nil
	}
	err := r.authz.RequireAll(ctx, want, place)
	if err == nil && !t.found {
		return nowhere(t.name, needs)
	}
	if err == nil {
		return nil
	}
	if !r.public(ctx, *t, needs) {
		return named(err, t.name)
	}
	t.public = true
	return nil
}

// nowhere says to who may know that there is no group for a repo. It denies a
// push; what is only looked for is not there, and a client goes on to push it.
func nowhere(name string, needs []resource.Capability) error {
	if slices.Contains(needs, resource.ManifestCreate) {
		return problem(http.StatusForbidden, denied, "there is no group for %s: create it first", name)
	}
	return problem(http.StatusNotFound, nameUnknown, "there is no group for %s", name)
}

// public tells whether anybody may do it.
func (r *Registry) public(ctx context.Context, t target, needs []resource.Capability) bool {
	open := []resource.Capability{resource.RepoBlobsGet, resource.ManifestList, resource.TagList, resource.ReferrersList}
	if !t.found || slices.ContainsFunc(needs, func(c resource.Capability) bool { return !slices.Contains(open, c) }) {
		return false
	}
	set, err := r.store.RegistrySettings(ctx, t.group)
	if err != nil {
		r.config.Log.ErrorContext(ctx, "read registry settings", "err", err)
	}
	return err == nil && set.Public
}

// named is a denial in terms of the name the client used: a uid would say
// nothing to it, or something of a place it may not see.
func named(err error, name string) error {
	f := fault.From(err)
	if err == nil || f.Code != fault.PermissionDenied {
		return err
	}
	return problem(http.StatusForbidden, denied, "you lack %s on %s, or it does not exist", f.Metadata["capability"], name)
}

// challenge tells a client that could do better with a token where to get one.
func (r *Registry) challenge(w http.ResponseWriter, t target, needs []resource.Capability, err error) error {
	if fault.From(err).Code != fault.Unauthenticated {
		return err
	}
	value := fmt.Sprintf(`Bearer realm=%q,service=%q`, r.config.Realm, r.config.Host)
	if t.name != "" {
		actions := "pull"
		if slices.Contains(needs, resource.ManifestCreate) {
			actions = "pull,push"
		} else if slices.Contains(needs, resource.ManifestDelete) || needs == nil {
			actions = "delete"
		}
		value += fmt.Sprintf(`,scope="repository:%s:%s"`, t.name, actions)
	}
	w.Header().Set("Www-Authenticate", value)
	return err
}

// giveToken is where clients exchange a login for a token. The password is one
// already, so they get it back; who has none gets one that stands for nobody.
func (r *Registry) giveToken(w http.ResponseWriter, req *http.Request, _ target) error {
	raw, err := r.login(w, req)
	if err != nil {
		return err
	}
	until := r.config.Now().Add(time.Hour)
	if raw != anonymous {
		c, err := r.verify(req.Context(), raw)
		if err != nil {
			return err
		}
		until = c.Expires
	}
	left := int(until.Sub(r.config.Now()).Seconds())
	w.Header().Set("Cache-Control", "no-store")
	return writeJSON(w, req, "application/json", map[string]any{
		"token": raw, "access_token": raw, "expires_in": left, "issued_at": r.config.Now().UTC().Format(time.RFC3339),
	})
}

// login returns the token that a client logs in with: in the header or, with
// POST, in a form as OAuth 2 has it.
func (r *Registry) login(w http.ResponseWriter, req *http.Request) (string, error) {
	const maxForm = 64 << 10
	if req.Method == http.MethodPost {
		req.Body = http.MaxBytesReader(w, req.Body, maxForm)
		if err := req.ParseForm(); err != nil {
			return "", problem(http.StatusBadRequest, unsupported, "the form cannot be read")
		}
		switch req.PostForm.Get("grant_type") {
		case "password":
			return r.signIn(req, req.PostForm.Get("username"), req.PostForm.Get("password"))
		case "refresh_token":
			return req.PostForm.Get("refresh_token"), nil
		}
		return "", problem(http.StatusBadRequest, unsupported, "grant_type must be password or refresh_token")
	}
	if req.Header.Get("Authorization") == "" {
		return anonymous, nil
	}
	return r.credential(req)
}

// into is the repo of a push. Who pushes to one that is not there needs to be
// allowed to create it.
func (r *Registry) into(ctx context.Context, t target) (store.RepoRef, error) {
	ref := store.RepoRef{Group: t.group, Name: t.base()}
	if t.repo != "" {
		return ref, nil
	}
	if err := r.authz.Require(ctx, resource.RepoCreate, t.group); err != nil {
		return ref, named(err, t.name)
	}
	set, err := r.store.RegistrySettings(ctx, t.group)
	if err != nil {
		return ref, err
	}
	if set.NoCreateOnPush {
		return ref, problem(http.StatusForbidden, denied, "there is no repository %s, and this group does not create one on push", t.name)
	}
	ref.Create = true
	return ref, nil
}
