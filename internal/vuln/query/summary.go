package query

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

const (
	maxDays     = 90
	defaultDays = 30
	day         = 24 * time.Hour
	window      = maxDays * day // how far a summary looks back
	maxPeriods  = 200_000       // of tags
)

// A Summary counts the findings of tags. A finding of a tag is what advisories say about a
// package, by its name: that the tag stands for an image with another version of it, which
// is affected as well, makes no other finding.
type Summary struct {
	Total    Counts
	Series   []Point
	Coverage GroupCoverage
}

// Counts are findings of tags.
type Counts struct {
	Now       BySeverity
	Excepted  int    // those of now for which an exception holds; none of the others counts them
	Fixable   int    // of those that are open
	Ages      [4]int // of those: open for less than 7, 30 and 90 days, and for longer
	Oldest    OpenFinding
	Fixed     int           // in the last 90 days
	FixedTime time.Duration // how long these were open, together
}

// BySeverity counts findings, by their severity.
type BySeverity [finding.SeverityCritical + 1]int

// Sum returns how many there are.
func (b BySeverity) Sum() (n int) {
	for _, of := range b {
		n += of
	}
	return n
}

// An OpenFinding is a finding of a tag that is open since a time.
type OpenFinding struct {
	ID, Package string
	Repo        resource.UID
	Tag         string
	Since       time.Time // zero if there is none
}

// A Point is what was open at a time.
type Point struct {
	Time time.Time
	Open BySeverity
}

// A SummaryRow has the counts of a group or repo, or of a tag if Tag is not "".
type SummaryRow struct {
	UID   resource.UID // of a tag, that of its repo
	Repo  bool         // it is a repo
	Name  string
	Tag   bool
	Tags  int // that stand for something
	Count Counts
}

// A summarySelection is what a summary is of.
type summarySelection struct {
	Place
	Days int `json:"days,omitempty"`
}

// summaryList is how the rows of a summary are ordered.
var summaryList = page.List{Kind: "findings_summary", Fields: []string{"name", "open"}, Default: page.Order{Field: "name"}}

// Summarize counts the findings of the tags in a group, or repo, now and at the end of each
// of the last days, and returns a page of what its parts have. What counts is as for
// ListGroup.
func (s *Service) Summarize(
	ctx context.Context, at Place, days int, p page.Params,
) (none page.Page[SummaryRow], sum Summary, _ error) {
	of, req, err := page.Resume(s.pages, summaryList, summarySelection{at, days}, p)
	if err != nil {
		return none, sum, err
	}
	if of.Days < 0 || of.Days > maxDays {
		return none, sum, fault.Field("days", "must be from 1 to %d", maxDays)
	}
	reach, err := finding.Reach(ctx, s.authz, of.Group, resource.RepoList, resource.ReportsList)
	if err != nil {
		return none, sum, err
	}
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return none, sum, err
	}
	done, err := s.turns.Wait(ctx, reach)
	if err != nil {
		return none, sum, err
	}
	defer done()
	c := newTimeline(s.packages.Time(), cmp.Or(of.Days, defaultDays), of.Group)
	if err := s.readTimeline(ctx, c, reach, seen); err != nil {
		return none, sum, err
	}
	if err := c.summarize(ctx); err != nil {
		return none, sum, err
	}
	sum.Total, sum.Series = c.total, c.series()
	if sum.Coverage, err = s.groupCoverage(ctx, &c.census, seen); err != nil {
		return none, sum, err
	}
	rows, err := s.nameRows(ctx, c.rows)
	if err != nil {
		return none, sum, err
	}
	got := page.Cut(rows, req, func(r SummaryRow) string {
		key := r.Name + "\x00" + string(r.UID)
		if req.Order.Field == "open" {
			key = fmt.Sprintf("%012d\x00%s", r.Count.Now.Sum(), key)
		}
		return key
	})
	return page.Finish(s.pages, req, got), sum, nil
}

// readTimeline reads what the tags in reach have stood for, and what was known about it.
func (s *Service) readTimeline(ctx context.Context, c *timeline, reach, seen []resource.UID) (err error) {
	since := c.now.Add(-window).UnixMilli()
	if c.census.images, err = s.images.TaggedImages(ctx, reach, maxImages); err != nil {
		return err
	}
	if c.periods, err = s.images.TagPeriods(ctx, reach, since, maxPeriods); err != nil {
		return err
	}
	current := map[string]int{}
	for _, i := range c.census.images {
		if i.State == registry.ImageIndexed {
			current[i.Digest]++
		}
	}
	digests := map[string]bool{}
	for _, p := range c.periods {
		for _, i := range p.Images {
			if i.State == registry.ImageIndexed {
				digests[i.Digest] = true
			}
		}
	}
	if err := s.readExceptions(ctx, c); err != nil {
		return err
	}
	compared := map[int64]bool{}
	if err := s.readClaims(ctx, c, compared, seen, since); err != nil {
		return err
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(digests)), 1000) {
		if err := s.readContents(ctx, c, some, current, compared, seen, since); err != nil {
			return err
		}
	}
	c.packages, err = s.packages.ByID(ctx, slices.Collect(maps.Keys(c.hits)))
	return err
}

// readContents keeps those packages of images that an advisory affects, or did.
func (s *Service) readContents(
	ctx context.Context, c *timeline, digests []string, current map[string]int, compared map[int64]bool,
	seen []resource.UID, since int64,
) error {
	var fresh []int64
	contents := map[string][]int64{}
	err := s.packages.Contents(ctx, digests, func(digest string, packages []int64) error {
		contents[digest] = slices.Clone(packages)
		c.census.indexed += current[digest]
		for _, id := range packages {
			if !compared[id] {
				compared[id] = true
				fresh = append(fresh, id)
			}
			if current[digest] > 0 {
				c.census.packages[id] = nil
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	if err := s.readHits(ctx, c, fresh, seen, since); err != nil {
		return err
	}
	for digest, packages := range contents {
		affected := slices.DeleteFunc(packages, func(id int64) bool { return len(c.hits[id]) == 0 })
		c.affected[digest] = slices.Clip(slices.Clone(affected))
	}
	return nil
}

// readHits reads which advisories affect packages, or did.
func (s *Service) readHits(ctx context.Context, c *timeline, packages []int64, seen []resource.UID, since int64) error {
	hits, err := s.packages.HitsSince(ctx, packages, seen, since)
	if err != nil {
		return err
	}
	maps.Copy(c.hits, hits.ByPackage)
	maps.Copy(c.advisories, named(hits.Advisories))
	return nil
}

// readClaims keeps what SBOMs list for images that tags stand for, or did, and which of these
// packages an advisory affects, or did.
func (s *Service) readClaims(
	ctx context.Context, c *timeline, compared map[int64]bool, seen []resource.UID, since int64,
) (err error) {
	images := slices.Clone(c.census.images)
	for _, p := range c.periods {
		for _, i := range p.Images {
			images = append(images, imagedb.TaggedImage{Repo: p.Repo, Digest: i.Digest, State: i.State, Number: i.Number})
		}
	}
	if c.census.claims, err = s.claimsOf(ctx, images); err != nil {
		return err
	}
	for _, i := range c.census.images {
		if c.census.counts(i) {
			for _, claim := range c.census.claims[i.Number] {
				c.census.packages[claim.Package] = nil
			}
		}
	}
	for _, of := range c.census.claims {
		for _, claim := range of {
			compared[claim.Package] = true
		}
	}
	return s.readHits(ctx, c, slices.Collect(maps.Keys(compared)), seen, since)
}

// nameRows adds the names of groups and repos.
func (s *Service) nameRows(ctx context.Context, all map[rowKey]*SummaryRow) (rows []SummaryRow, _ error) {
	uids := map[bool][]resource.UID{}
	for _, r := range all {
		if !r.Tag {
			uids[r.Repo] = append(uids[r.Repo], r.UID)
		}
	}
	repos, err := s.packages.NamesOf(ctx, "repos", false, uids[true])
	if err != nil {
		return nil, err
	}
	groups, err := s.packages.NamesOf(ctx, "groups", false, uids[false])
	for _, r := range all {
		switch {
		case r.Tag:
		case r.Repo:
			r.Name = repos[r.UID].Name
		default:
			r.Name = groups[r.UID].Name
		}
		rows = append(rows, *r)
	}
	return rows, err
}

// A readTimeline has what tags stood for and what was known about it, and counts findings.
type timeline struct {
	now        time.Time
	points     []int64 // times of the series, in order
	place      resource.UID
	census     groupContents
	periods    []imagedb.TagPeriod
	affected   map[string][]int64 // by digest, the packages that are affected, or were
	hits       hitsByPackage
	packages   map[int64]registry.Package
	advisories map[int64]vuln.Advisory

	exceptions exceptions

	sets  map[string][]hitSet // see setsOf
	total Counts
	rows  map[rowKey]*SummaryRow
	open  [len(BySeverity{})][]int // differences between the points of the series
}

// newTimeline returns an empty one with a series of days, the last of which is now.
func newTimeline(now time.Time, days int, place resource.UID) *timeline {
	c := &timeline{now: now, place: place, census: groupContents{packages: map[int64]*packageCount{}}, affected: map[string][]int64{},
		hits: hitsByPackage{}, advisories: map[int64]vuln.Advisory{}, sets: map[string][]hitSet{},
		rows: map[rowKey]*SummaryRow{}}
	midnight := now.Truncate(day)
	for i := days - 2; i >= 0; i-- {
		c.points = append(c.points, midnight.Add(-time.Duration(i)*day).UnixMilli())
	}
	c.points = append(c.points, imagedb.Now-1) // whatever is open now, also if clocks differ
	for i := range c.open {
		c.open[i] = make([]int, days+1)
	}
	return c
}

// series adds up the differences.
func (c *timeline) series() []Point {
	all := make([]Point, len(c.points))
	for severity, steps := range c.open {
		n := 0
		for i := range all {
			n += steps[i]
			all[i].Open[severity] = n
		}
	}
	for i, ms := range c.points {
		all[i].Time = time.UnixMilli(ms).UTC()
	}
	all[len(all)-1].Time = c.now
	return all
}
