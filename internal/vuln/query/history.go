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

// capabilities returns the capabilities that the caller needs on the repo to use the filter.
func (f Filter) capabilities() resource.Capabilities {
	needed := []resource.Capability{resource.RepoList, resource.ImageReportsList}
	if !f.At.IsZero() || slices.Contains(f.States, finding.StateClosed) {
		// The past of a tag needs the same capability as the list of a tag's history.
		needed = append(needed, resource.TagList)
	}
	if f.Due || f.Overdue {
		needed = append(needed, resource.ReportsList)
	}
	return resource.NewCapabilities(needed...)
}

// check returns an error if the filter is invalid.
func (f Filter) check(now time.Time) error {
	switch {
	case len(f.Package) > maxName:
		return fault.Field("package", "must have at most %d bytes", maxName)
	case f.At.After(now):
		return fault.Field("at_time", "must not be in the future")
	case !f.At.IsZero() && slices.Contains(f.States, finding.StateClosed):
		return fault.Field("states", "closed findings cannot be combined with at_time")
	case !f.At.IsZero() && (f.Due || f.Overdue):
		return fault.Field("at_time", "cannot be combined with due_times or overdue")
	case f.Overdue && slices.Contains(f.States, finding.StateClosed):
		return fault.Field("states", "closed findings are never overdue")
	}
	return nil
}

// lookAt returns the details and packages of an image, or an error if the packages are not known. If the image is
// selected by a tag, it is the image to which the tag pointed at asOf; zero means now. lookAt does not authorize the
// caller.
func (s *Service) lookAt(
	ctx context.Context, i finding.Image, asOf time.Time,
) (k ImageDetails, found registry.Inspection, _ error) {
	if !asOf.IsZero() && !resource.ValidDigest(i.Reference) {
		digest, err := s.tagAt(ctx, i, asOf)
		if err != nil {
			return k, found, err
		}
		i.Reference = digest
	}
	k, found, err := s.look(ctx, i)
	if err == nil {
		err = k.unavailable()
	}
	if err == nil && !asOf.IsZero() && k.IndexTime.After(asOf) {
		err = fault.Unmet("IMAGE_NOT_INDEXED", "the image was not inspected yet at that time")
	}
	return k, found, err
}

// tagAt returns the digest to which a tag pointed at a time. It returns fault.NotFound
// if the tag did not exist, and fault.FailedPrecondition if the image was deleted.
func (s *Service) tagAt(ctx context.Context, i finding.Image, asOf time.Time) (string, error) {
	if _, err := s.repoStore.Repo(ctx, i.Repo); err != nil { // compares the whole UID, not only its last segment
		return "", err
	}
	if !registry.ValidTag(i.Reference) {
		return "", fault.Field("reference", "is neither a digest nor a tag")
	}
	digest, err := s.images.TagAt(ctx, i.Repo, i.Reference, asOf)
	if err != nil {
		return "", err
	}
	_, err = s.repoStore.StatManifest(ctx, i.Repo, digest)
	if errors.Is(err, fault.NotFound) {
		return "", fault.Unmet("IMAGE_GONE", "%s pointed at that time to an image that was deleted: %s", i.Reference, digest)
	}
	return digest, err
}

// tagsOf returns the tags that pointed to an image at a time; zero means now.
func (s *Service) tagsOf(ctx context.Context, repo resource.UID, digest string, asOf time.Time) ([]string, error) {
	if !asOf.IsZero() {
		return s.images.TagsAt(ctx, repo, digest, asOf)
	}
	known, err := s.images.TagsOf(ctx, repo, []string{digest})
	return known[digest], err
}

// hitsAt returns the matches that packages had at a time with advisories in reach, and the names of these advisories.
// A zero time means now.
func (s *Service) hitsAt(
	ctx context.Context, packages []int64, reach []resource.UID, asOf time.Time,
) (findingdb.Hits, error) {
	if asOf.IsZero() {
		return s.packages.Hits(ctx, packages, reach)
	}
	return s.packages.HitsAt(ctx, packages, reach, store.MS(asOf))
}

// everVisible is like finding.VisibleAdvisories, but also returns deleted advisories, with their stored names.
func (s *Service) everVisible(
	ctx context.Context, hits []findingdb.Hit, reach []resource.UID,
) (map[int64]vuln.Advisory, error) {
	byKey, err := finding.VisibleAdvisories(ctx, s.advisories, hits, reach)
	if err != nil {
		return nil, err
	}
	var gone []int64
	for _, h := range hits {
		if _, ok := byKey[h.Advisory]; !ok {
			gone = append(gone, h.Advisory)
		}
	}
	slices.Sort(gone)
	named, err := s.packages.Named(ctx, slices.Compact(gone))
	for key, a := range named {
		if store.Covered(reach, a.UID.Parent()) {
			byKey[key] = vuln.Advisory{UID: a.UID, ID: a.Names[0], Aliases: a.Names[1:], Fixes: a.Fixes}
		}
	}
	return byKey, err
}

// addPastTags adds the tags that pointed to images in the past, for images whose tag history the caller may list.
func (s *Service) addPastTags(ctx context.Context, images []imagedb.NumberedImage, affected []AffectedImage) error {
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
		affected[n].PastTags = slices.DeleteFunc(past[i.Number], func(t registry.PastTag) bool {
			return slices.Contains(i.Tags, t.Name)
		})
	}
	return err
}
