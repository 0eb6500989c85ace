package metadata

import (
	"cmp"
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
)

// CopyImages copies images from one repo to another in one transaction. It does not copy their bytes. The caller needs
// manifest.create and tag.create on the target repo or on its group, and repo.create on the group if the target repo
// does not exist. On the source repo the caller needs the capabilities of a pull, unless the repo is public. A rule
// that refuses to pull an image also refuses to copy it.
func (s *Service) CopyImages(ctx context.Context, c registry.CopyRequest) (registry.ImageCopy, error) {
	to, err := s.copyTo(ctx, c)
	if err != nil {
		return registry.ImageCopy{}, err
	}
	if err := c.Validate(); err != nil {
		return registry.ImageCopy{}, err
	}
	if err := s.mirror.RequireUnmirrored(ctx, c.Group); err != nil {
		return registry.ImageCopy{}, err
	}
	public, err := s.copyFrom(ctx, c)
	if err != nil {
		return registry.ImageCopy{}, err
	}
	if to, err = s.mayCreate(ctx, to); err != nil {
		return registry.ImageCopy{}, err
	}
	rules, err := s.store.RegistrySettings(ctx, c.Group)
	if err != nil {
		return registry.ImageCopy{}, err
	}
	if err := s.images.Acquire(ctx, s.authz.Tenant(ctx)); err != nil {
		return registry.ImageCopy{}, err
	}
	set := s.copier.NewSet(c.From, public, c.WithReferrers)
	if err := set.AddRequested(ctx, c); err != nil {
		return registry.ImageCopy{}, err
	}
	done, err := s.store.CopyImages(ctx, registrydb.Copying{
		From: c.From, To: to, Manifests: set.Manifests, Images: set.Images, Attached: set.Attached, Promote: c.Promote,
		Reason: c.Reason, Frozen: rules.Frozen,
	})
	if missing, ok := errors.AsType[*registrydb.MissingError](err); ok {
		return done, fault.Unmet("CONTENT_GONE", "it cannot be copied, because %s is not in the repo",
			missing.Needs[0].Digest)
	}
	return done, err
}

// copyTo authorizes the caller for the target repo, and returns a reference to it. The capabilities to push to the
// repo are enough, even if the caller does not hold them on its group.
func (s *Service) copyTo(ctx context.Context, c registry.CopyRequest) (registrydb.RepoRef, error) {
	ref := registrydb.RepoRef{Group: c.Group, Name: c.Repo}
	want := []resource.Capability{resource.ManifestCreate, resource.TagCreate}
	err := s.requireEach(ctx, c.Group, want)
	if !registry.ValidRepoName(c.Repo) {
		return ref, cmp.Or(err, c.Validate())
	}
	repo, missing := s.store.RepoIn(ctx, c.Group, c.Repo)
	if missing != nil && !errors.Is(missing, fault.NotFound) {
		return ref, missing
	}
	ref.Create = missing != nil
	if err != nil && missing == nil && s.requireEach(ctx, repo, want) == nil {
		err = nil
	}
	if err == nil { // RepoIn used only the last segment of the group's UID, which another group could share
		_, err = s.iam.Group(ctx, c.Group)
	}
	return ref, err
}

// mayCreate returns an error if the target repo must be created, and either the caller may not create it or the
// settings of the group forbid it.
func (s *Service) mayCreate(ctx context.Context, to registrydb.RepoRef) (registrydb.RepoRef, error) {
	if !to.Create {
		return to, nil
	}
	if err := s.authz.Require(ctx, resource.RepoCreate, to.Group); err != nil {
		return to, err
	}
	set, err := s.store.RegistrySettings(ctx, to.Group)
	if err == nil && set.NoCreateOnPush {
		err = fault.Unmet("REPO_NOT_CREATED",
			"there is no repo %s, and this group does not create one: create it first", to.Name)
	}
	return to, err
}

// copyFrom authorizes the caller for the source repo. It reports whether the caller may pull from it only because the
// repo is public.
func (s *Service) copyFrom(ctx context.Context, c registry.CopyRequest) (public bool, _ error) {
	want := []resource.Capability{resource.ManifestList, resource.RepoBlobsGet}
	if c.TagPattern != "" {
		want = append(want, resource.TagList)
	}
	if c.WithReferrers {
		want = append(want, resource.ReferrersList)
	}
	denied := s.requireEach(ctx, c.From, want)
	if denied != nil {
		set, err := s.store.RegistrySettings(ctx, c.From.Parent())
		if err != nil {
			return false, err
		}
		if !set.Public {
			return false, denied
		}
	}
	_, err := s.store.Repo(ctx, c.From)
	if denied != nil && err != nil { // the caller must not learn that the repo does not exist
		err = denied
	}
	return denied != nil, err
}
