package policy

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/exception"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// A Matching counts the findings and images that an exception matches.
type Matching struct {
	Findings int64 // number of pairs of an image and a finding
	Images   int64
}

// A CountedException is an exception with the numbers of findings and images that it matches.
type CountedException struct {
	vuln.Exception
	Now      time.Time // time at which the exception was read
	Matching *Matching // nil if the matches were not counted
}

// counted counts the findings and images that an exception matches, even if the exception is not in effect. It counts
// only images on which the caller has repo.list and vuln_report.list, and only advisories on which the caller has
// advisories.list. The count is 0 for a caller without these capabilities.
func (s *Service) counted(ctx context.Context, e vuln.Exception) (c CountedException, _ error) {
	c = CountedException{Exception: e, Now: s.packages.Time(), Matching: &Matching{}}
	reach, err := finding.Reach(ctx, s.authz, e.Target, resource.RepoList, resource.ReportsList)
	if err != nil || len(reach) == 0 {
		return c, err
	}
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil || len(seen) == 0 {
		return c, err
	}
	packages, err := s.candidatePackages(ctx, e, reach, seen)
	if err != nil || len(packages) == 0 {
		return c, err
	}
	times, err := s.countFindings(ctx, e, packages, seen)
	if err != nil {
		return c, err
	}
	numbers, err := s.packages.Having(ctx, reach, slices.Collect(maps.Keys(times)))
	if err != nil {
		return c, err
	}
	if numbers, err = s.matchingImages(ctx, e, numbers); err != nil {
		return c, err
	}
	have, err := s.packages.CountHaving(ctx, numbers, slices.Collect(maps.Keys(times)))
	for id, n := range have {
		c.Matching.Findings += n * times[id]
	}
	c.Matching.Images = int64(len(numbers))
	return c, err
}

// candidatePackages returns the packages that an exception may match. The result contains at least those that images in
// reach have.
func (s *Service) candidatePackages(
	ctx context.Context, e vuln.Exception, reach, seen []resource.UID,
) (ids []int64, _ error) {
	if e.Advisory == "" {
		_, name, _, err := version.ParsePURL(e.PURL)
		if err != nil {
			return nil, err
		}
		known, err := s.packages.PackagesNamed(ctx, reach, name, maxVersions)
		for _, k := range known {
			ids = append(ids, k.ID)
		}
		return ids, err
	}
	keys, err := s.advisories.KeysByName(ctx, store.Reach{Under: seen}, e.Advisory)
	if err != nil {
		return nil, err
	}
	hits, err := s.packages.HitsBy(ctx, keys)
	for _, h := range hits {
		ids = append(ids, h.Package)
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// countFindings returns the number of findings that the exception matches in each package. Packages without such
// findings are left out.
func (s *Service) countFindings(
	ctx context.Context, e vuln.Exception, ids []int64, seen []resource.UID,
) (map[int64]int64, error) {
	hits, err := s.packages.HitsOf(ctx, ids, finding.Organizations(seen))
	if err != nil {
		return nil, err
	}
	advisories, err := finding.VisibleAdvisories(ctx, s.advisories, hits, seen)
	if err != nil {
		return nil, err
	}
	known, err := s.packages.ByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	byPackage := map[int64][]findingdb.Hit{}
	for _, h := range hits {
		if _, ok := advisories[h.Advisory]; ok {
			byPackage[h.Package] = append(byPackage[h.Package], h)
		}
	}
	about := e
	about.TagPattern, about.Digest, about.ApproveTime = "", "", e.CreateTime // about matches any image at any time
	about.DeleteTime, about.ExpireTime = time.Time{}, time.Time{}
	x := exception.NewSet([]vuln.Exception{about})
	times := map[int64]int64{}
	for id, matched := range byPackage {
		for _, mentions := range finding.ByVulnerability(matched, advisories) {
			c := exception.Case{Repo: e.Target, Claims: finding.Claims(mentions, advisories), Package: known[id]}
			if _, ok := x.Holding(c, e.CreateTime, nil); ok {
				times[id]++
			}
		}
	}
	return times, nil
}

// matchingImages returns the images in numbers that the exception matches.
func (s *Service) matchingImages(ctx context.Context, e vuln.Exception, numbers []int64) (matching []int64, _ error) {
	if e.TagPattern == "" && e.Digest == "" {
		return numbers, nil
	}
	for batch := range slices.Chunk(numbers, tagBatch) {
		images, err := s.images.NumberedImages(ctx, batch)
		if err != nil {
			return nil, err
		}
		var digests []string
		for _, i := range images {
			digests = append(digests, i.Digest)
		}
		tags, err := s.images.TagsOf(ctx, e.Target, digests)
		if err != nil {
			return nil, err
		}
		for _, i := range images {
			if i.Repo == e.Target && e.MatchesDigest(i.Digest) && e.MatchesTags(tags[i.Digest]) {
				matching = append(matching, i.Number)
			}
		}
	}
	return matching, nil
}
