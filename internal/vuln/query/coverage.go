package query

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// An Extent says how large a part of the images was compared with advisories.
type Extent int

// The extents.
const (
	ExtentNothing    Extent = 1 + iota // nothing was compared, so the absence of findings has no meaning
	ExtentPart                         // some images or packages were not compared, so findings may be missing
	ExtentEverything                   // every package of every image was compared
)

// An AnswerCoverage says what was known when a question about findings was answered.
type AnswerCoverage struct {
	Images        int // number of images that the question is about
	Indexed       int // number of images whose packages are known
	Waiting       int // number of images that wait for inspection
	NotUnderstood int
	Oldest        time.Time // when the first of the waiting images was pushed; zero if none waits
	End           time.Time // when the waiting images are inspected, as an estimate; zero if it is not known
	Packages      Coverage  // each version of a package counts once
	PackageTime   time.Time
	Extent        Extent
	Feeds         []FeedVersion
	NoDue         string // reason why List or ListGroup could not compute when findings must be fixed; "" if there is none
}

// A FeedVersion is the version of a source of advisories that the caller may list.
type FeedVersion struct {
	UID     resource.UID // UID of the feed; for a list of exploited vulnerabilities, the UID of its group
	Name    string
	Format  vuln.ExploitFormat // "" for advisories
	Version string             // the publisher's name for the version; "" if it has none
	Time    time.Time          // when the feed was last read, or when the list was published; zero if never
	Error   string             // why the feed could not be read completely since then
}

const (
	maxShownFeeds = 100              // maximum number of feeds in an answer, the oldest first
	countsKept    = 30 * time.Second // minimum time for which the counts of packages in many images are reused
	mostKept      = 5 * time.Minute  // maximum of this time
	countsPerTime = 20               // this time divided by the time that counting took, between the limits
	maxCounting   = 5 * time.Minute  // maximum time of a count that continues after its request
	countsCached  = 64               // number of sets of images whose counts are cached, with the IDs of their packages
)

// completeCoverage adds the feeds and the extent. It is the last step of every answer about findings. byAdvisory is
// false if the answer does not depend on advisories.
func (s *Service) completeCoverage(
	ctx context.Context, c AnswerCoverage, seen []resource.UID, byAdvisory bool,
) (AnswerCoverage, error) {
	if c.PackageTime.IsZero() {
		c.PackageTime = s.packages.Time()
	}
	c.Extent = c.extent(byAdvisory)
	feeds, err := s.advisories.FeedResults(ctx, seen, maxShownFeeds)
	if err != nil {
		return c, err
	}
	for _, f := range feeds {
		c.Feeds = append(c.Feeds, FeedVersion{UID: f.UID, Name: f.Name, Version: f.Last.Revision, Time: f.Last.Current,
			Error: f.Last.Error})
	}
	lists, err := s.advisories.ExploitLists(ctx, seen)
	for _, l := range lists {
		c.Feeds = append(c.Feeds, FeedVersion{
			UID: l.Group, Name: l.Source, Format: l.Format, Version: l.Version, Time: l.Time,
		})
	}
	return c, err
}

// addBacklogEnd estimates when the waiting images of an answer are inspected. The estimate depends on all images that
// wait in the organizations, because images that were pushed earlier are inspected earlier.
func (s *Service) addBacklogEnd(ctx context.Context, c *AnswerCoverage, reach []resource.UID) (err error) {
	if c.Waiting > 0 {
		c.End, err = s.images.BacklogEnd(ctx, finding.Organizations(reach))
	}
	return err
}

// extent returns how much was compared.
func (c AnswerCoverage) extent(byAdvisory bool) Extent {
	p := c.Packages
	switch {
	case p.Packages == 0, byAdvisory && p.Covered == 0:
		return ExtentNothing
	case c.Waiting > 0, c.NotUnderstood > 0:
		return ExtentPart
	case byAdvisory && (p.Bare > 0 || p.Waiting > 0):
		return ExtentPart
	}
	return ExtentEverything
}

// imageCoverage returns the coverage of an answer about one image.
func (s *Service) imageCoverage(ctx context.Context, k ImageDetails, seen []resource.UID) (AnswerCoverage, error) {
	c := AnswerCoverage{Packages: k.Coverage}
	c.addImage(k.State)
	c.Packages.OnlyFiles, c.Packages.OnlySBOMs = 0, 0
	return s.completeCoverage(ctx, c, seen, true)
}

// addCoverage sets the coverage of an answer about one image.
func (s *Service) addCoverage(ctx context.Context, k *ImageDetails, found registry.Inspection) (err error) {
	if k.Coverage, err = s.coverage(ctx, found); err != nil {
		return err
	}
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return err
	}
	k.Answer, err = s.imageCoverage(ctx, *k, seen)
	return err
}

// Coverage returns the coverage of the images under places, if the caller has repo.list and vuln_report.list on them.
// No places mean all. byAdvisory is as in CoverageOf.
func (s *Service) Coverage(ctx context.Context, byAdvisory bool, places ...resource.UID) (c AnswerCoverage, _ error) {
	reach, err := finding.Reach(ctx, s.authz, "", resource.RepoList, resource.ReportsList)
	if err != nil {
		return c, err
	}
	if len(places) > 0 {
		reach = store.Overlap(reach, places)
	}
	return s.CoverageOf(ctx, reach, byAdvisory)
}

func (c *AnswerCoverage) addImage(state registry.ImageState) {
	c.Images++
	switch state {
	case registry.ImageIndexed:
		c.Indexed++
	case registry.ImageWaiting:
		c.Waiting++
	default:
		c.NotUnderstood++
	}
}

// A cachedCount contains the number of packages of each kind in a set of images.
type cachedCount struct {
	history  int64     // result of store.DB.History when the packages were counted
	time     time.Time // time of the first count; the packages of later images were counted since then
	images   findingdb.ImageSet
	took     time.Duration // how long the first count took
	packages []int64       // IDs of the packages, in order
	kinds    map[findingdb.PackageKind]int
}

// kept returns for how long a count is reused. Packages that take long to count are counted less often.
func (c cachedCount) kept() time.Duration {
	return min(max(countsKept, countsPerTime*c.took), mostKept)
}

// CoverageOf returns the coverage of an answer about all images in reach, with or without a tag. Counting the packages
// takes long if there are many images, so the counts are reused for half a minute, or longer if it takes more than a
// second. The packages of new images are added to them. If an image was removed, all packages are counted again.
// byAdvisory is false if the answer does not depend on advisories.
func (s *Service) CoverageOf(ctx context.Context, reach []resource.UID, byAdvisory bool) (c AnswerCoverage, _ error) {
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return c, err
	}
	images, err := s.packages.ImagesIn(ctx, reach)
	if err != nil {
		return c, err
	}
	counted, err := s.countPackages(ctx, reach, images)
	if err != nil {
		return c, err
	}
	unknown, err := s.images.UnknownImages(ctx, reach)
	if err != nil {
		return c, err
	}
	c.Indexed, c.Waiting, c.NotUnderstood = images.Len()-unknown.Numbered, unknown.Waiting, unknown.NotUnderstood
	c.Images, c.PackageTime = c.Indexed+c.Waiting+c.NotUnderstood, counted.time
	c.Oldest = unknown.Oldest
	if err := s.addBacklogEnd(ctx, &c, reach); err != nil {
		return c, err
	}
	if c.Packages, err = s.countCovered(ctx, counted.kinds, seen); err != nil {
		return c, err
	}
	return s.completeCoverage(ctx, c, seen, byAdvisory)
}

// countPackages counts the packages of the images in reach by kind. If the request ends before, counting continues, so
// that one of the next requests finds the result. Otherwise a place with very many images would never get an answer.
func (s *Service) countPackages(
	ctx context.Context, reach []resource.UID, images findingdb.ImageSet,
) (c cachedCount, _ error) {
	key := strings.Join(sortedTexts(reach), " ")
	if known, _, complete := s.counted(key, images); complete {
		return known, nil
	}
	done, err := s.turns.Wait(ctx, reach)
	if err != nil {
		return c, err
	}
	return untilDone(ctx, maxCounting, func(ctx context.Context) (cachedCount, error) {
		defer done()
		known, added, complete := s.counted(key, images)
		if complete { // another request has counted in the meantime
			return known, nil
		}
		counted, err := s.countMore(ctx, known, added)
		if err != nil {
			return c, err
		}
		counted.images = images
		s.counts.Add(key, counted)
		return counted, nil
	})
}

// counted returns the count in the cache, the images that it lacks, and whether it lacks none. If the count cannot be
// used, it returns an empty count and all images.
func (s *Service) counted(
	key string, images findingdb.ImageSet,
) (known cachedCount, added findingdb.ImageSet, complete bool) {
	current := s.packages.Time()
	known, ok := s.counts.Get(key)
	added, only := images.Added(known.images)
	if !ok || !only || known.history != s.packages.History() || current.Sub(known.time) >= known.kept() {
		return cachedCount{history: s.packages.History(), time: current}, images, false
	}
	return known, added, added.Len() == 0
}

// countMore adds the packages of images to a count.
func (s *Service) countMore(
	ctx context.Context, known cachedCount, added findingdb.ImageSet,
) (c cachedCount, _ error) {
	begin := time.Now()
	ids, err := s.packages.PackagesOf(ctx, added)
	if err != nil {
		return c, err
	}
	ids = slices.DeleteFunc(ids, func(id int64) bool {
		_, counted := slices.BinarySearch(known.packages, id)
		return counted
	})
	c = known
	if c.kinds, err = s.packages.CountKinds(ctx, ids); err != nil {
		return c, err
	}
	for kind, n := range known.kinds {
		c.kinds[kind] += n
	}
	if known.packages == nil {
		c.took = time.Since(begin)
	}
	c.packages = slices.Concat(known.packages, ids)
	slices.Sort(c.packages)
	return c, nil
}

// untilDone returns the result of f, or the reason why ctx has ended. f continues after the end of ctx, for at most
// limit.
func untilDone[T any](
	ctx context.Context, limit time.Duration, f func(context.Context) (T, error),
) (zero T, _ error) {
	type result struct {
		value T
		err   error
	}
	finished := make(chan result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		value, err := f(ctx)
		finished <- result{value, err}
	}()
	select {
	case r := <-finished:
		return r.value, r.err
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
}

func sortedTexts(uids []resource.UID) (texts []string) {
	for _, uid := range slices.Sorted(slices.Values(uids)) {
		texts = append(texts, string(uid))
	}
	return texts
}

// pairCoverage returns the coverage of an answer about two images. A package that both images have counts once.
func (s *Service) pairCoverage(
	ctx context.Context, from, to ImageDetails, before, after []registry.ImagePackage,
) (c AnswerCoverage, _ error) {
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return c, err
	}
	c.addImage(from.State)
	c.addImage(to.State)
	both, counted := registry.Inspection{}, map[int64]bool{}
	for _, p := range slices.Concat(before, after) {
		if !counted[p.ID] {
			counted[p.ID] = true
			both.Packages = append(both.Packages, p)
		}
	}
	if c.Packages, err = s.coverage(ctx, both); err != nil {
		return c, err
	}
	c.Packages.OnlyFiles, c.Packages.OnlySBOMs = 0, 0
	return s.completeCoverage(ctx, c, seen, true)
}
