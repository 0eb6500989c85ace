package registry

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// syncLife is how long a repo follows another.
const syncLife = 14 * 24 * time.Hour

// CreateRepo makes a repo in a group. The caller needs repo.create there, and
// for one that follows another repo may also pull from that.
func (s *Service) CreateRepo(ctx context.Context, parent resource.UID, r resource.Repo) (resource.Repo, error) {
	if err := s.authz.Require(ctx, resource.RepoCreate, parent); err != nil {
		return resource.Repo{}, err
	}
	if err := r.Validate(); err != nil {
		return resource.Repo{}, err
	}
	if r.Sync != nil {
		if err := s.follow(ctx, &r); err != nil {
			return resource.Repo{}, err
		}
	}
	r.UID = parent.NewChild()
	r.CreateTime = s.now()
	r.UpdateTime = r.CreateTime
	if err := s.store.InsertRepo(ctx, r); err != nil {
		return resource.Repo{}, err
	}
	return r, nil
}

// follow makes r, which is new, one that follows the repo it names: what a
// catalog says about that it takes over, and the description if it has none.
func (s *Service) follow(ctx context.Context, r *resource.Repo) error {
	source, err := s.source(ctx, r.Sync.Source)
	if err != nil {
		return err
	}
	if err := inherited(resource.Repo{}, *r); err != nil {
		return err
	}
	r.Tier, r.Bundles, r.Aliases, r.ActiveTags = source.Tier, source.Bundles, source.Aliases, source.ActiveTags
	if r.Description == "" {
		r.Description = source.Description
	}
	r.Sync.Source = string(source.UID)
	r.Sync.ExpirationTime = s.now().Add(syncLife)
	return nil
}

// inherited refuses a change of what a repo takes over from the one it follows.
func inherited(before, after resource.Repo) error {
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
			bad = append(bad, fault.Violation{Subject: field.name, Description: "is that of the repo this one follows"})
		}
	}
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return nil
}

// source finds the repo that text names: its uid, its path of names, or an image
// reference. One that the caller may not pull from is not there.
func (s *Service) source(ctx context.Context, text string) (resource.Repo, error) {
	no := fault.Field("sync_config.source", "is not the uid, the path or the image reference of a repo you may pull from")
	uid, err := resource.ParseUID("sync_config.source", text)
	if err != nil {
		path := strings.Split(strings.TrimPrefix(untagged(text), s.cfg.Host+"/"), "/")
		if len(path) > resource.MaxDepth {
			return resource.Repo{}, no
		}
		if uid, err = s.store.RepoAt(ctx, path); err != nil {
			return resource.Repo{}, hidden(err, no)
		}
	}
	if err := s.requireAll(ctx, uid, resource.RepoList, resource.RepoBlobsGet); err != nil {
		return resource.Repo{}, hidden(err, no)
	}
	r, err := s.store.Repo(ctx, uid)
	return r, hidden(err, no)
}

// untagged is an image reference without its tag and digest.
func untagged(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		ref = ref[:i]
	}
	return ref
}

// hidden answers with no whatever would tell what there is.
func hidden(err error, no *fault.Error) error {
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
func (s *Service) GetRepo(ctx context.Context, uid resource.UID) (resource.Repo, error) {
	if err := s.authz.Require(ctx, resource.RepoList, uid); err != nil {
		return resource.Repo{}, err
	}
	return s.store.Repo(ctx, uid)
}

// ListRepos returns a page of the repos the caller holds repo.list on.
func (s *Service) ListRepos(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.Repo], error) {
	under, err := s.authz.Reach(ctx, resource.RepoList)
	if err != nil {
		return page.Page[resource.Repo]{}, err
	}
	return page.Read(ctx, s.pages, repoList, store.Reach{Under: under}, f, p, s.store.Repos)
}

// UpdateRepo applies change to a repo. The caller needs repo.update on it, and to
// make it follow another repo may also pull from that.
func (s *Service) UpdateRepo(ctx context.Context, uid resource.UID, change func(*resource.Repo) error) (resource.Repo, error) {
	if err := s.authz.Require(ctx, resource.RepoUpdate, uid); err != nil {
		return resource.Repo{}, err
	}
	named, source, err := s.newSource(ctx, uid, change)
	if err != nil {
		return resource.Repo{}, err
	}
	return s.store.UpdateRepo(ctx, uid, func(r *resource.Repo) error {
		before := *r
		if err := change(r); err != nil {
			return err
		}
		r.UID, r.CreateTime = before.UID, before.CreateTime
		if err := r.Validate(); err != nil {
			return err
		}
		if r.Sync != nil && r.Sync.Source == named && source != "" {
			r.Sync.Source, r.Sync.ExpirationTime = source, s.now().Add(syncLife)
		}
		if before.Sync != nil && r.Sync != nil {
			return inherited(before, *r)
		}
		return nil
	})
}

// newSource finds the repo that a change makes another one follow, before the
// store is busy with the change: what it was called, and its uid. Both are ""
// where nothing of that changes.
func (s *Service) newSource(ctx context.Context, uid resource.UID, change func(*resource.Repo) error) (named, source string, _ error) {
	before, err := s.store.Repo(ctx, uid)
	if err != nil {
		return "", "", err
	}
	after := before
	if before.Sync != nil {
		sync := *before.Sync
		after.Sync = &sync
	}
	if err := change(&after); err != nil {
		return "", "", err
	}
	if after.Sync == nil || before.Sync != nil && after.Sync.Source == before.Sync.Source {
		return "", "", nil
	}
	if err := after.Validate(); err != nil {
		return "", "", err
	}
	found, err := s.source(ctx, after.Sync.Source)
	if err == nil && found.UID == uid {
		err = fault.Field("sync_config.source", "a repo cannot follow itself")
	}
	return after.Sync.Source, string(found.UID), err
}

// CountFollowers returns how many of the repos the caller may list follow one.
// The caller needs repo.list on that.
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

// DeleteRepo removes a repo with its tags and manifests. The caller needs
// repo.delete on it.
func (s *Service) DeleteRepo(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.RepoDelete, uid); err != nil {
		return err
	}
	return s.store.DeleteRepo(ctx, uid)
}

// GetRepoReadme returns the readme of a repo, which is that of the repo it
// follows if the caller may see it. The caller needs repo.list on it.
func (s *Service) GetRepoReadme(ctx context.Context, uid resource.UID) (resource.RepoReadme, error) {
	if err := s.authz.Require(ctx, resource.RepoList, uid); err != nil {
		return resource.RepoReadme{}, err
	}
	r, err := s.store.Repo(ctx, uid)
	if err != nil {
		return resource.RepoReadme{}, err
	}
	from := uid
	if r.Sync != nil {
		from = resource.UID(r.Sync.Source)
		if s.authz.Require(ctx, resource.RepoList, from) != nil {
			return resource.RepoReadme{UID: uid}, nil
		}
	}
	readme, err := s.store.RepoReadme(ctx, from)
	if from != uid && fault.From(err).Code == fault.NotFound { // what it follows has gone
		err = nil
	}
	readme.UID = uid
	return readme, err
}

// UpdateRepoReadme applies change to the readme of a repo. The caller needs
// repo.update on it. It returns fault.InvalidArgument for Markdown that is not
// harmless.
func (s *Service) UpdateRepoReadme(ctx context.Context, uid resource.UID, change func(*resource.RepoReadme) error) (resource.RepoReadme, error) {
	if err := s.authz.Require(ctx, resource.RepoUpdate, uid); err != nil {
		return resource.RepoReadme{}, err
	}
	r, err := s.store.Repo(ctx, uid)
	if err != nil {
		return resource.RepoReadme{}, err
	}
	if r.Sync != nil {
		return resource.RepoReadme{}, fault.Field("content", "is that of the repo this one follows")
	}
	readme, err := s.store.RepoReadme(ctx, uid)
	if err != nil {
		return resource.RepoReadme{}, err
	}
	if err := change(&readme); err != nil {
		return resource.RepoReadme{}, err
	}
	if err := readme.Validate(); err != nil {
		return resource.RepoReadme{}, err
	}
	if !simple(readme.Content) {
		return resource.RepoReadme{}, fault.Field("content", "is nested too deeply, or has a block of too many marks")
	}
	if !harmless(readme.Content) {
		return resource.RepoReadme{}, fault.Field("content", "has HTML that a page must not show, such as scripts, styles, forms or odd addresses")
	}
	if err := s.store.UpdateRepoReadme(ctx, readme); err != nil {
		return resource.RepoReadme{}, err
	}
	return readme, nil
}
