package finding

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
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

const (
	maxListed = 200 // images of an index that an exception may be about
	countPage = 50  // exceptions that are counted at once
	tagBatch  = 200 // images whose tags are read at once
)

// CreateException adds an exception to a group. The caller needs policies.override.create
// there. If the caller also holds advisories.approve there, it is approved.
func (s *Service) CreateException(
	ctx context.Context, parent resource.UID, e vuln.Exception,
) (none CountedException, _ error) {
	if err := s.authz.Require(ctx, resource.OverrideCreate, parent); err != nil {
		return none, err
	}
	e, err := s.newException(ctx, parent, e)
	if err != nil {
		return none, err
	}
	if err := s.packages.InsertExceptions(ctx, parent, []vuln.Exception{e}); err != nil {
		return none, err
	}
	return s.counted(ctx, e)
}

// newException completes what a caller has asked for, and checks it.
func (s *Service) newException(
	ctx context.Context, parent resource.UID, e vuln.Exception,
) (vuln.Exception, error) {
	now := s.packages.Time()
	caller, _ := authz.CallerFrom(ctx)
	e.UID, e.Author, e.CreateTime, e.UpdateTime = parent.NewChild(), caller.Identity, now, now
	if e.Target == "" {
		e.Target = parent
	}
	if strings.HasPrefix(strings.ToUpper(e.Advisory), "CVE-") {
		e.Advisory = strings.ToUpper(e.Advisory)
	}
	e.ExpireTime = e.ExpireTime.Truncate(time.Second)
	if err := e.Validate(); err != nil {
		return e, err
	}
	if !e.ExpireTime.IsZero() && !e.ExpireTime.After(now) {
		return e, fault.Field("expire_time", "is over already")
	}
	if e.PURL != "" {
		if _, name, _, err := version.ParsePURL(e.PURL); err != nil || name == "" {
			return e, fault.Field("purl", "is not a package URL such as pkg:npm/lodash")
		}
	}
	if e.TagPattern != "" || e.Digest != "" {
		if _, err := s.repoStore.Repo(ctx, e.Target); err != nil {
			return e, err
		}
	}
	if e.Digest != "" {
		var err error
		if e.Images, err = s.images.ListedBy(ctx, e.Target, e.Digest, maxListed); err != nil {
			return e, err
		}
	}
	if s.authz.Require(ctx, resource.AdvisoriesApprove, parent) == nil {
		e.Approver, e.ApproveTime = caller.Identity, now
	}
	return e, nil
}

// GetException returns an exception, also one that is over. The caller needs
// policies.override.list on it.
func (s *Service) GetException(ctx context.Context, uid resource.UID) (none CountedException, _ error) {
	e, err := authz.Get(ctx, s.authz, resource.OverrideList, uid, s.packages.Exception)
	if err != nil {
		return none, err
	}
	return s.counted(ctx, e)
}

// ApproveException lets an exception take effect. The caller needs advisories.approve on
// it.
func (s *Service) ApproveException(ctx context.Context, uid resource.UID) (none CountedException, _ error) {
	if err := s.authz.Require(ctx, resource.AdvisoriesApprove, uid); err != nil {
		return none, err
	}
	caller, _ := authz.CallerFrom(ctx)
	e, err := s.packages.ApproveException(ctx, uid, caller.Identity)
	return CountedException{Exception: e, Now: s.packages.Time()}, err
}

// DeleteException ends an exception. The caller needs policies.override.delete on it.
func (s *Service) DeleteException(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.OverrideDelete, uid, func(ctx context.Context, uid resource.UID) error {
		caller, _ := authz.CallerFrom(ctx)
		return s.packages.DeleteException(ctx, uid, caller.Identity)
	})
}

// An ExceptionFilter selects exceptions, and says whether to count what they match.
type ExceptionFilter struct {
	resource.Filter
	Count bool
}

// ListExceptions returns a page of the exceptions that the caller holds
// policies.override.list on.
func (s *Service) ListExceptions(
	ctx context.Context, f ExceptionFilter, p page.Params,
) (out page.Page[CountedException], _ error) {
	if f.Count && p.Size > countPage {
		p.Size = countPage
	}
	got, err := authz.List(ctx, s.authz, s.pages, findingdb.ExceptionList, resource.OverrideList, f.Filter, p,
		s.packages.Exceptions)
	if err != nil {
		return out, err
	}
	var all []CountedException
	for _, e := range got.Items {
		c := CountedException{Exception: e, Now: s.packages.Time()}
		if f.Count {
			if c, err = s.counted(ctx, e); err != nil {
				return out, err
			}
		}
		all = append(all, c)
	}
	return page.With(got, all), nil
}

// counted counts what an exception matches, whether it has an effect or not, among the
// images that the caller has repo.list and vuln_report.list on and the advisories that the
// caller has advisories.list on. Whoever may list neither is told of none.
func (s *Service) counted(ctx context.Context, e vuln.Exception) (c CountedException, _ error) {
	c = CountedException{Exception: e, Now: s.packages.Time(), Matching: &Matching{}}
	reach, err := s.imageReach(ctx, Place{e.Target}, resource.RepoList, resource.ReportsList)
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

// suspects returns the packages of images in reach that an exception may be about.
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
	hits, err := s.packages.HitsOf(ctx, ids, roots(seen))
	if err != nil {
		return nil, err
	}
	advisories, err := s.visible(ctx, hits, seen)
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
	x := newExceptionSet([]vuln.Exception{about})
	times := map[int64]int64{}
	for id, of := range byPackage {
		for _, same := range together(of, advisories) {
			c := Case{Repo: e.Target, Claims: claims(same, advisories), Package: known[id]}
			if _, ok := x.holding(c, e.CreateTime, nil); ok {
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
