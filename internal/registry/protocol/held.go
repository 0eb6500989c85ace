package protocol

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// heldScopes returns the requested scopes with only those actions that the caller may perform now. A repo for which no
// action is left stays in the list. So a token names the repos that its client asked about, and a refused request can
// say which capability is missing.
func (r *Registry) heldScopes(
	ctx context.Context, asked []resource.RegistryScope,
) ([]resource.RegistryScope, error) {
	held := slices.Clone(asked)
	for i, s := range held {
		if s.Type != "repository" {
			continue // the catalog lists the repos that the caller may list
		}
		var err error
		if held[i].Actions, err = r.heldActions(ctx, s.Name, s.Actions); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// heldActions returns the actions that the caller may perform on the repo with a name. For a repo that does not exist,
// the capabilities on the nearest existing group decide, and for a push the capability to create the repo, too. So the
// answer for a missing repo is the answer for a private one.
func (r *Registry) heldActions(ctx context.Context, name string, asked []string) ([]string, error) {
	held := []string{}
	t := target{kind: "manifest", name: name, method: http.MethodGet}
	if err := r.locate(ctx, &t); err != nil {
		return nil, err
	}
	_, copied, err := r.mirror.UpstreamOf(ctx, t.group)
	if err != nil {
		return nil, err
	}
	open := r.public(ctx, t, pull) && (t.found || copied)
	holds := func(c resource.Capability) bool {
		return r.authz.Require(ctx, c, cmp.Or(t.repo, t.group)) == nil
	}
	for _, action := range asked {
		var ok bool
		switch action {
		case "pull":
			ok = open || slices.ContainsFunc(slices.Concat(pull, pullBlob, listTags, referrers), holds)
		case "push":
			ok = holds(resource.ManifestCreate) && (t.repo != "" || holds(resource.RepoCreate))
		case "delete":
			ok = holds(resource.ManifestDelete) || holds(resource.TagDelete)
		}
		if ok {
			held = append(held, action)
		}
	}
	return held, r.looksMissing(ctx, t)
}

// names reports whether the token of a caller was requested for a repo, with any action.
func names(c authz.Caller, repo string) bool {
	return slices.ContainsFunc(c.Registry, func(s resource.RegistryScope) bool {
		return s.Type == "repository" && s.Name == repo
	})
}

// refuseScope returns the error for a request that the token of the caller does not allow. If the token names the repo
// and the caller may not do this anyway, the error is the denial that a wider token would get. Otherwise it is
// fault.Unauthenticated with a challenge for a token that allows the request.
func (r *Registry) refuseScope(
	ctx context.Context, w http.ResponseWriter, c authz.Caller, t target, needs []resource.Capability,
) error {
	if t.name != "" && names(c, t.name) {
		if err := r.denyAction(ctx, t, needs); err != nil {
			return err
		}
	}
	return r.challengeFor(w, scopesOf(t, needs), insufficientScope, outOfScope())
}

// denyAction returns the denial of a request with capabilities that the caller lacks, and nil if the caller may perform
// its action.
func (r *Registry) denyAction(ctx context.Context, t target, needs []resource.Capability) error {
	held, err := r.heldActions(ctx, t.name, []string{actionOf(needs)})
	if err != nil || len(held) > 0 {
		return err
	}
	if err := r.locate(ctx, &t); err != nil {
		return err
	}
	if needs == nil {
		needs = remove
	}
	if actionOf(needs) == "push" && t.repo == "" {
		needs = append(slices.Clone(needs), resource.RepoCreate)
	}
	return r.denial(ctx, t, r.authz.RequireAll(ctx, resource.NewCapabilities(needs...), cmp.Or(t.repo, t.group)))
}
