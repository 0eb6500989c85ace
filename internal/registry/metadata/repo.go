package metadata

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/reposync"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// CreateRepo creates a repo in a group. The caller needs repo.create on the group. If the repo has a source, the
// caller must also be allowed to pull from the source, and needs manifest.create, tag.create and tag.delete on the
// group.
func (s *Service) CreateRepo(ctx context.Context, parent resource.UID, r registry.Repo) (registry.Repo, error) {
	if err := s.authz.Require(ctx, resource.RepoCreate, parent); err != nil {
		return registry.Repo{}, err
	}
	if err := r.Validate(); err != nil {
		return registry.Repo{}, err
	}
	r.UID = parent.NewChild()
	r.CreateTime = s.now()
	r.UpdateTime = r.CreateTime
	if r.Sync == nil {
		return r, s.store.InsertRepo(ctx, r)
	}
	if err := s.setSource(ctx, &r); err != nil {
		return registry.Repo{}, err
	}
	caller, err := authz.RequireCaller(ctx)
	if err != nil {
		return registry.Repo{}, err
	}
	return r, s.sources.InsertFollower(ctx, r, caller.Identity)
}

// setSource handles a new repo r that has a source. It replaces the name in r.Sync by the UID of the source, and
// copies the catalog fields from the source. It also copies the description if r has none.
func (s *Service) setSource(ctx context.Context, r *registry.Repo) error {
	source, err := s.source(ctx, r.Sync.Source)
	if err == nil {
		err = s.mayFollow(ctx, r.UID)
	}
	if err != nil {
		return err
	}
	if err := checkInherited(registry.Repo{}, *r); err != nil {
		return err
	}
	r.Tier, r.Bundles, r.Aliases, r.ActiveTags = source.Tier, source.Bundles, source.Aliases, source.ActiveTags
	if r.Description == "" {
		r.Description = source.Description
	}
	r.Sync.Source = string(source.UID)
	r.Sync.ExpirationTime = s.now().Add(registry.FollowLife)
	return nil
}

// mayFollow returns an error if the caller may not change all tags of a repo, or if the repo cannot have a source
// because its group has an upstream.
func (s *Service) mayFollow(ctx context.Context, repo resource.UID) error {
	if err := s.requireEach(ctx, repo, reposync.RepoCapabilities); err != nil {
		return err
	}
	return s.mirror.RequireUnmirrored(ctx, repo.Parent())
}

// checkInherited returns an error if a change would change fields that the repo copies from its source.
func checkInherited(before, after registry.Repo) error {
	var bad []fault.Violation
	for _, field := range []struct {
		name    string
		changed bool
	}{
		{"catalog_tier", before.Tier != after.Tier},
		{"bundles", !slices.Equal(before.Bundles, after.Bundles)},
		{"aliases", !slices.Equal(before.Aliases, after.Aliases)},
		{"active_tags", !slices.Equal(before.ActiveTags, after.ActiveTags)},
	} {
		if field.changed {
			bad = append(bad, fault.Violation{Subject: field.name,
				Description: "is copied from the source of this repo, and cannot be changed here"})
		}
	}
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return nil
}

// source returns the repo that text names by its UID, its path, or an image
// reference. It returns the same error if the repo does not exist and if the caller may
// not pull from it.
func (s *Service) source(ctx context.Context, text string) (registry.Repo, error) {
	no := fault.Field("sync_config.source",
		"is not the uid, the path or the image reference of a repo you may pull from")
	uid, err := resource.ParseUID("sync_config.source", text)
	if err != nil {
		path := strings.Split(strings.TrimPrefix(untagged(text), s.cfg.Host+"/"), "/")
		if len(path) > resource.MaxDepth {
			return registry.Repo{}, no
		}
		if uid, err = s.store.UncachedRepo(ctx, path); err != nil {
			return registry.Repo{}, hide(err, no)
		}
	}
	if err := s.requireAll(ctx, uid, reposync.SourceCapabilities...); err != nil {
		return registry.Repo{}, hide(err, no)
	}
	r, err := s.store.Repo(ctx, uid)
	return r, hide(err, no)
}

// untagged returns an image reference without its tag and digest.
func untagged(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		ref = ref[:i]
	}
	return ref
}

// hide returns no if err would reveal whether a resource exists, and err otherwise.
func hide(err error, no *fault.Error) error {
	if err == nil {
		return nil
	}
	switch fault.From(err).Code {
	case fault.NotFound, fault.PermissionDenied, fault.InvalidArgument:
		return no
	}
	return err
}

// GetRepo returns a repo. The caller needs repo.list on it.
func (s *Service) GetRepo(ctx context.Context, uid resource.UID) (registry.Repo, error) {
	return authz.Get(ctx, s.authz, resource.RepoList, uid, s.store.Repo)
}

// ListRepos returns a page of the repos on which the caller holds repo.list.
func (s *Service) ListRepos(ctx context.Context, f resource.Filter, p page.Params) (page.Page[registry.Repo], error) {
	return authz.List(ctx, s.authz, s.pages, registrydb.RepoList, resource.RepoList, f, p, s.store.Repos)
}

// UpdateRepo applies change to a repo. The caller needs repo.update on it. To set a source, the caller must also be
// allowed to pull from the source, and needs manifest.create, tag.create and tag.delete on the repo. If a change sets
// the same source again, the sync is renewed and acts as the caller from then on. If the caller may not set the
// source, the sync continues unchanged.
func (s *Service) UpdateRepo(
	ctx context.Context, uid resource.UID, change func(*registry.Repo) error,
) (registry.Repo, error) {
	if err := s.authz.Require(ctx, resource.RepoUpdate, uid); err != nil {
		return registry.Repo{}, err
	}
	named, source, err := s.newSource(ctx, uid, change)
	if err != nil {
		return registry.Repo{}, err
	}
	caller, err := authz.RequireCaller(ctx)
	if err != nil {
		return registry.Repo{}, err
	}
	update := func(ctx context.Context, before, after registry.Repo) (registry.Repo, error) {
		if source == "" || after.Sync == nil {
			return s.store.UpdateRepo(ctx, before, after)
		}
		return s.sources.UpdateFollower(ctx, before, after, caller.Identity)
	}
	return store.Edit(ctx, uid, s.store.Repo, update, func(r *registry.Repo) error {
		before := *r
		if err := change(r); err != nil {
			return err
		}
		r.UID, r.CreateTime = before.UID, before.CreateTime
		if err := r.Validate(); err != nil {
			return err
		}
		if r.Sync != nil && r.Sync.Source == named && source != "" {
			r.Sync.Source, r.Sync.ExpirationTime = source, s.now().Add(registry.FollowLife)
		}
		if before.Sync != nil && r.Sync != nil {
			return checkInherited(before, *r)
		}
		return nil
	})
}

// newSource returns the source that a change sets, as the change names it and as a UID. It is called before the
// transaction of the change begins. Both results are "" if the change does not set the source.
func (s *Service) newSource(
	ctx context.Context, uid resource.UID, change func(*registry.Repo) error,
) (named, source string, _ error) {
	before, err := s.store.Repo(ctx, uid)
	if err != nil {
		return "", "", err
	}
	after, err := store.Clone(before)
	if err != nil {
		return "", "", err
	}
	untouched := rand.Text()
	if after.Sync != nil {
		after.Sync.Source = untouched // if the change sets the same source again, this value disappears
	}
	if err := change(&after); err != nil {
		return "", "", err
	}
	if after.Sync == nil || after.Sync.Source == untouched {
		return "", "", nil
	}
	if err := after.Validate(); err != nil {
		return "", "", err
	}
	found, err := s.source(ctx, after.Sync.Source)
	if err == nil && found.UID == uid {
		err = fault.Field("sync_config.source", "a repo cannot sync from itself")
	}
	if err == nil {
		err = s.mayFollow(ctx, uid)
	}
	if before.Sync != nil && after.Sync.Source == before.Sync.Source && isRefusal(err) {
		return "", "", nil // version 1 sends all fields with every change, so this change need not be about the source
	}
	return after.Sync.Source, string(found.UID), err
}

// isRefusal reports whether err means that the caller may not set a source, or that the source cannot be set.
func isRefusal(err error) bool {
	return errors.Is(err, fault.PermissionDenied) || errors.Is(err, fault.InvalidArgument) ||
		errors.Is(err, fault.FailedPrecondition)
}

// CountFollowers returns the number of repos that sync from source, among the repos that
// the caller may list. The caller needs repo.list on source.
func (s *Service) CountFollowers(ctx context.Context, source resource.UID) (int64, error) {
	if _, err := s.GetRepo(ctx, source); err != nil {
		return 0, err
	}
	under, err := s.authz.Reach(ctx, resource.RepoList)
	if err != nil {
		return 0, err
	}
	return s.store.Followers(ctx, store.Reach{Under: under}, source)
}

// DeleteRepo deletes a repo with its tags and manifests. The caller needs repo.delete on it.
func (s *Service) DeleteRepo(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.RepoDelete, uid, s.store.DeleteRepo)
}

// GetRepoReadme returns the readme of a repo, or of its source if it has one. The readme is empty if the caller may
// not see the source. The caller needs repo.list on the repo.
func (s *Service) GetRepoReadme(ctx context.Context, uid resource.UID) (registry.RepoReadme, error) {
	r, err := s.GetRepo(ctx, uid)
	if err != nil {
		return registry.RepoReadme{}, err
	}
	from := uid
	if r.Sync != nil {
		from = resource.UID(r.Sync.Source)
		if s.authz.Require(ctx, resource.RepoList, from) != nil {
			return registry.RepoReadme{UID: uid}, nil
		}
	}
	readme, err := s.store.RepoReadme(ctx, from)
	if from != uid && errors.Is(err, fault.NotFound) { // the source was deleted
		err = nil
	}
	readme.UID = uid
	return readme, err
}

// UpdateRepoReadme applies change to the readme of a repo. The caller needs repo.update on it. It returns
// fault.InvalidArgument for Markdown that is not safe to show.
func (s *Service) UpdateRepoReadme(
	ctx context.Context, uid resource.UID, change func(*registry.RepoReadme) error,
) (registry.RepoReadme, error) {
	r, err := authz.Get(ctx, s.authz, resource.RepoUpdate, uid, s.store.Repo)
	if err != nil {
		return registry.RepoReadme{}, err
	}
	if r.Sync != nil {
		return registry.RepoReadme{}, fault.Field("content", "is the readme of the source of this repo: change it there")
	}
	readme, err := s.store.RepoReadme(ctx, uid)
	if err != nil {
		return registry.RepoReadme{}, err
	}
	if err := change(&readme); err != nil {
		return registry.RepoReadme{}, err
	}
	if err := readme.Validate(); err != nil {
		return registry.RepoReadme{}, err
	}
	if !cheap(readme.Content) {
		return registry.RepoReadme{}, fault.Field("content", "is nested too deeply, or has a block of too many marks")
	}
	if !safe(readme.Content) {
		return registry.RepoReadme{}, fault.Field("content",
			"has HTML that a page must not show, such as scripts, styles, forms or odd addresses")
	}
	return readme, s.store.UpdateRepoReadme(ctx, readme)
}
