package query

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// capabilities returns what the caller needs on the repo.
func (f Filter) capabilities() resource.Capabilities {
	all := []resource.Capability{resource.RepoList, resource.ImageReportsList}
	if !f.At.IsZero() || slices.Contains(f.States, finding.StateClosed) {
		all = append(all, resource.TagList) // as the history of tags does
	}
	return resource.NewCapabilities(all...)
}

// check returns what is wrong with a filter.
func (f Filter) check(now time.Time) error {
	switch {
	case len(f.Package) > maxName:
		return fault.Field("package", "must have at most %d bytes", maxName)
	case f.At.After(now):
		return fault.Field("at_time", "must not be in the future")
	case !f.At.IsZero() && slices.Contains(f.States, finding.StateClosed):
		return fault.Field("states", "what is closed cannot be asked for together with at_time")
	}
	return nil
}

// lookAt returns what is known about an image, if its packages are; a tag is the image that
// it stood for at a time, or now if that is zero. It does not authorize the caller.
func (s *Service) lookAt(ctx context.Context, i finding.Image, at time.Time) (k ImageDetails, found registry.Inspection, _ error) {
	if !at.IsZero() && !resource.ValidDigest(i.Reference) {
		digest, err := s.tagAt(ctx, i, at)
		if err != nil {
			return k, found, err
		}
		i.Reference = digest
	}
	k, found, err := s.look(ctx, i)
	if err == nil {
		err = k.unavailable()
	}
	if err == nil && !at.IsZero() && k.IndexTime.After(at) {
		err = fault.Unmet("IMAGE_NOT_INDEXED", "at that time the image was not inspected yet")
	}
	return k, found, err
}

// tagAt returns the digest of what a tag stood for at a time. It returns fault.NotFound if
// that was nothing, and fault.FailedPrecondition if it is deleted.
func (s *Service) tagAt(ctx context.Context, i finding.Image, at time.Time) (string, error) {
	if _, err := s.repoStore.Repo(ctx, i.Repo); err != nil { // under its whole uid
		return "", err
	}
	if !registry.ValidTag(i.Reference) {
		return "", fault.Field("reference", "is neither a digest nor a tag")
	}
	digest, err := s.images.TagAt(ctx, i.Repo, i.Reference, at)
	if err != nil {
		return "", err
	}
	_, err = s.repoStore.StatManifest(ctx, i.Repo, digest)
	if errors.Is(err, fault.NotFound) {
		return "", fault.Unmet("IMAGE_GONE", "the image that %s stood for at that time is deleted: %s", i.Reference, digest)
	}
	return digest, err
}

// tagsOf returns the tags that stood for an image at a time, or do now if that is zero.
func (s *Service) tagsOf(ctx context.Context, repo resource.UID, digest string, at time.Time) ([]string, error) {
	if !at.IsZero() {
		return s.images.TagsAt(ctx, repo, digest, at)
	}
	known, err := s.images.TagsOf(ctx, repo, []string{digest})
	return known[digest], err
}

// hitsAt returns the matches of packages with advisories in reach that held at a time, or
// do now if that is zero, and the advisories by their keys.
func (s *Service) hitsAt(
	ctx context.Context, packages []int64, reach []resource.UID, at time.Time,
) ([]findingdb.Hit, map[int64]vuln.Advisory, error) {
	hits, err := s.packages.HitsOf(ctx, packages, finding.Organizations(reach))
	if err != nil {
		return nil, nil, err
	}
	if at.IsZero() {
		advisories, err := finding.VisibleAdvisories(ctx, s.advisories, hits, reach)
		return hits, advisories, err
	}
	// One that ends between the two reads is in both, never in none.
	past, err := s.packages.PastHitsOf(ctx, packages, finding.Organizations(reach), store.MS(at))
	if err != nil {
		return nil, nil, err
	}
	hits = slices.DeleteFunc(append(hits, past...), func(h findingdb.Hit) bool { return h.Since > store.MS(at) })
	advisories, err := s.everVisible(ctx, hits, reach)
	return hits, advisories, err
}

// everVisible is visible, with what is left of advisories that are gone.
func (s *Service) everVisible(
	ctx context.Context, hits []findingdb.Hit, reach []resource.UID,
) (map[int64]vuln.Advisory, error) {
	all, err := finding.VisibleAdvisories(ctx, s.advisories, hits, reach)
	if err != nil {
		return nil, err
	}
	var gone []int64
	for _, h := range hits {
		if _, ok := all[h.Advisory]; !ok {
			gone = append(gone, h.Advisory)
		}
	}
	slices.Sort(gone)
	named, err := s.packages.Named(ctx, slices.Compact(gone))
	for key, a := range named {
		if store.Covered(reach, a.UID.Parent()) {
			all[key] = vuln.Advisory{UID: a.UID, ID: a.Names[0], Aliases: a.Names[1:]}
		}
	}
	return all, err
}

// addPastTags adds the tags that stood for images before, where the caller may list the
// history of tags.
func (s *Service) addPastTags(ctx context.Context, images []imagedb.NumberedImage, all []AffectedImage) error {
	reach, err := s.authz.Reach(ctx, resource.TagList)
	if err != nil {
		return err
	}
	var numbers []int64
	for _, i := range images {
		if store.Covered(reach, i.Repo) {
			numbers = append(numbers, i.Number)
		}
	}
	past, err := s.images.PastTags(ctx, numbers)
	for n, i := range images {
		all[n].PastTags = slices.DeleteFunc(past[i.Number], func(t registry.PastTag) bool {
			return slices.Contains(i.Tags, t.Name)
		})
	}
	return err
}
