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

// A Matching counts what an exception matches.
type Matching struct {
	Findings int64 // pairs of an image and something wrong with a package of it
	Images   int64
}

// A CountedException is an exception with what it matches.
type CountedException struct {
	vuln.Exception
	Now      time.Time // when it was read
	Matching *Matching // nil if that was not counted
}

// counted counts what an exception matches, whether it has an effect or not, among the
// images that the caller has repo.list and vuln_report.list on and the advisories that the
// caller has advisories.list on. Whoever may list neither is told of none.
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
	packages, err := s.suspects(ctx, e, reach, seen)
	if err != nil || len(packages) == 0 {
		return c, err
	}
	times, err := s.timesMeant(ctx, e, packages, seen)
	if err != nil {
		return c, err
	}
	numbers, err := s.packages.Having(ctx, reach, slices.Collect(maps.Keys(times)))
	if err != nil {
		return c, err
	}
	if numbers, err = s.ofException(ctx, e, numbers); err != nil {
		return c, err
	}
	have, err := s.packages.CountHaving(ctx, numbers, slices.Collect(maps.Keys(times)))
	for id, n := range have {
		c.Matching.Findings += n * times[id]
	}
	c.Matching.Images = int64(len(numbers))
	return c, err
}

// ForFinding returns the packages of images in reach that an exception may be about.
func (s *Service) suspects(
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

// timesMeant returns for each of the packages how many findings of it the exception is
// about, if there are any.
func (s *Service) timesMeant(
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
	about.TagPattern, about.Digest, about.ApproveTime = "", "", e.CreateTime // of any image, at any time
	about.DeleteTime, about.ExpireTime = time.Time{}, time.Time{}
	x := exception.NewSet([]vuln.Exception{about})
	times := map[int64]int64{}
	for id, of := range byPackage {
		for _, same := range finding.GroupByAlias(of, advisories) {
			c := exception.Case{Repo: e.Target, Claims: finding.Claims(same, advisories), Package: known[id]}
			if _, ok := x.Holding(c, e.CreateTime, nil); ok {
				times[id]++
			}
		}
	}
	return times, nil
}

// ofException returns those of the images that the exception is about.
func (s *Service) ofException(ctx context.Context, e vuln.Exception, numbers []int64) (all []int64, _ error) {
	if e.TagPattern == "" && e.Digest == "" {
		return numbers, nil
	}
	for some := range slices.Chunk(numbers, tagBatch) {
		images, err := s.images.NumberedImages(ctx, some)
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
				all = append(all, i.Number)
			}
		}
	}
	return all, nil
}
