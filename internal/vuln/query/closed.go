package query

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	maxPastImages = 100  // maximum number of past images of a tag that are searched for closed findings
	maxMoves      = 1000 // maximum number of moves of a tag that are read to find its past images
)

// closed returns the closed findings of an image, whose advisories no longer affect the image's packages. If the image
// is selected by a tag, the result includes findings of the images to which the tag pointed earlier. A finding that is
// open in any version of the package is left out.
func (s *Service) closed(
	ctx context.Context, i finding.Image, k *ImageDetails, found registry.Inspection, open []finding.Finding,
) ([]finding.Finding, error) {
	stays := []finding.Stay{{Image: found.Digest, From: store.MS(k.IndexTime), NoFiles: k.State != registry.ImageIndexed}}
	if !resource.ValidDigest(i.Reference) {
		before, incomplete, err := s.stays(ctx, i)
		if err != nil {
			return nil, err
		}
		stays, k.Incomplete = append(stays, before...), incomplete
	}
	reach, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return nil, err
	}
	contents, known, err := s.contents(ctx, i.Repo, stays)
	if err != nil {
		return nil, err
	}
	ids := slices.Sorted(maps.Keys(known))
	hits, err := s.packages.HitsOf(ctx, ids, finding.Organizations(reach))
	if err != nil {
		return nil, err
	}
	past, err := s.packages.PastHitsOf(ctx, ids, finding.Organizations(reach), 0)
	if err != nil {
		return nil, err
	}
	hits = append(hits, past...)
	advisories, err := s.everVisible(ctx, hits, reach)
	if err != nil {
		return nil, err
	}
	byPackage := map[int64][]findingdb.Hit{}
	for _, h := range hits {
		if _, ok := advisories[h.Advisory]; ok {
			byPackage[h.Package] = append(byPackage[h.Package], h)
		}
	}
	var ended []finding.Finding
	for _, y := range stays {
		for id, since := range contents[y.Image] {
			if has := y.Part(since); has.Until == 0 || has.From < has.Until {
				ended = append(ended, has.Ended(known[id], byPackage[id], advisories)...)
			}
		}
	}
	folded := finding.Fold(ended, open)
	for n := range folded {
		folded[n].RateIn(i.Repo)
	}
	return folded, s.addRecords(ctx, pointers(folded), true)
}

// stays returns the periods in which a tag pointed to earlier images, the latest first. incomplete says why some are
// missing, or is "" if none are.
func (s *Service) stays(ctx context.Context, i finding.Image) (found []finding.Stay, incomplete string, _ error) {
	moves, err := s.repoStore.TagHistory(ctx, i.Repo, i.Reference, page.Request{Size: maxMoves})
	if err != nil {
		return nil, "", err
	}
	cut := moves.Last != nil
	resolved, gone := map[string]*registry.StoredImage{}, 0
	for n, m := range moves.Items {
		if n == 0 || m.Digest == "" {
			continue
		}
		image, ok := resolved[m.Digest]
		if !ok && len(resolved) == maxPastImages {
			cut = true
			break
		}
		if !ok {
			if image, err = s.pastImage(ctx, i, m.Digest); err != nil {
				return nil, "", err
			}
			if resolved[m.Digest] = image; image == nil {
				gone++
			}
		}
		if next := moves.Items[n-1]; image != nil && image.IndexTime.Before(next.Time) {
			found = append(found, finding.Stay{Image: image.Digest, From: max(store.MS(m.Time), store.MS(image.IndexTime)),
				Until: store.MS(next.Time), Next: next.Digest})
		}
	}
	switch {
	case cut:
		incomplete = fmt.Sprintf("only the last %d images of the tag were searched", maxPastImages)
	case gone > 0:
		incomplete = fmt.Sprintf("%d earlier images of the tag were deleted or not inspected", gone)
	}
	return found, incomplete, nil
}

// pastImage returns the image with a digest. If the digest belongs to an index, it returns the image that the index
// lists for the architecture. It returns nil if the image was deleted, or if its packages are not known.
func (s *Service) pastImage(ctx context.Context, i finding.Image, digest string) (*registry.StoredImage, error) {
	for range 2 {
		known, err := s.images.Images(ctx, i.Repo, []string{digest})
		if err != nil {
			return nil, err
		}
		if image, ok := known[digest]; ok {
			if image.State != registry.ImageIndexed {
				return nil, nil
			}
			return &image, nil
		}
		v, err := s.registry.Variant(ctx, i.Repo, digest, i.Architecture) // used if the digest belongs to an index
		if errors.Is(err, fault.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		digest = v.Digest
	}
	return nil, nil
}

// contents returns the packages of images in a repo, by digest and package ID. The value is a time in milliseconds. It
// is 0 for a package in the files of the image. For a package that only SBOMs list, it is the time when the first of
// these SBOMs was pushed. contents also returns the packages by ID. A deleted image has no packages.
func (s *Service) contents(
	ctx context.Context, repo resource.UID, stays []finding.Stay,
) (map[string]map[int64]int64, map[int64]registry.Package, error) {
	contents := map[string]map[int64]int64{}
	seen := map[int64]bool{}
	for _, y := range stays {
		if _, ok := contents[y.Image]; ok {
			continue
		}
		var ids []int64
		var err error
		if !y.NoFiles {
			ids, _, err = s.packages.PackageIDs(ctx, y.Image)
		}
		if err != nil && !errors.Is(err, fault.NotFound) {
			return nil, nil, err
		}
		sboms, err := s.packages.SBOMs(ctx, repo, y.Image)
		if err != nil {
			return nil, nil, err
		}
		has := map[int64]int64{}
		for _, b := range sboms { // the oldest SBOM comes last
			for _, id := range b.IDs {
				has[id] = store.MS(b.Time)
			}
		}
		for _, id := range ids {
			has[id] = 0
		}
		contents[y.Image] = has
		for id := range has {
			seen[id] = true
		}
	}
	known, err := s.packages.ByID(ctx, slices.Collect(maps.Keys(seen)))
	return contents, known, err
}
