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
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/timeline"
)

const (
	maxDays     = 90
	defaultDays = 30
	maxPeriods  = 200_000 // maximum number of periods in which tags pointed to images
)

// A Summary counts the findings of tags. A finding of a tag is a vulnerability in a package of a given name. If the tag
// moves to an image with another affected version of the package, the finding stays the same.
type Summary struct {
	Total    Counts
	Series   []Point
	Coverage AnswerCoverage
}

// The parts of a Summary.
type (
	// Counts contains numbers of findings of tags.
	Counts = timeline.Counts
	// BySeverity contains the number of findings of each severity.
	BySeverity = timeline.BySeverity
	// A Point contains the numbers of open findings at a time.
	Point = timeline.Point
	// A SummaryRow contains the counts of a group, a repo or a tag.
	SummaryRow = timeline.Row
)

// A summarySelection selects the tags of a summary. It is stored in page tokens.
type summarySelection struct {
	Place
	Days int `json:"days,omitempty"`
}

// summaryList orders the rows of a summary.
var summaryList = page.List{Kind: "findings_summary", Fields: []string{"name", "open"},
	Default: page.Order{Field: "name"}}

// Summarize counts the findings of the tags in a group or repo, now and at the end of each of the last days. It also
// returns a page with the counts of the groups, repos or tags below. It uses the same images and advisories as
// ListGroup.
func (s *Service) Summarize(
	ctx context.Context, place Place, days int, p page.Params,
) (zero page.Page[SummaryRow], sum Summary, _ error) {
	selected, req, err := page.Resume(s.pages, summaryList, summarySelection{place, days}, p)
	if err != nil {
		return zero, sum, err
	}
	if selected.Days < 0 || selected.Days > maxDays {
		return zero, sum, fault.Field("days", "must be from 1 to %d", maxDays)
	}
	c, sum, err := s.summarize(ctx, selected, nil)
	if err != nil {
		return zero, sum, err
	}
	rows, err := s.nameRows(ctx, c.Rows())
	if err != nil {
		return zero, sum, err
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

// Visit returns a summary with all of its rows. It calls visit with each finding of a tag that is open, or was fixed in
// the last 90 days.
func (s *Service) Visit(
	ctx context.Context, place Place, visit func(finding.OfTag),
) (rows []SummaryRow, sum Summary, _ error) {
	c, sum, err := s.summarize(ctx, summarySelection{place, maxDays}, visit)
	if err != nil {
		return nil, sum, err
	}
	rows, err = s.nameRows(ctx, c.Rows())
	return rows, sum, err
}

// summarize counts the findings that a summary is about. visit is nil, or is called as described at Visit.
func (s *Service) summarize(
	ctx context.Context, selected summarySelection, visit func(finding.OfTag),
) (c *tagPast, sum Summary, _ error) {
	reach, err := finding.Reach(ctx, s.authz, selected.Group, resource.RepoList, resource.ReportsList)
	if err != nil {
		return nil, sum, err
	}
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return nil, sum, err
	}
	done, err := s.turns.Wait(ctx, reach)
	if err != nil {
		return nil, sum, err
	}
	defer done()
	c = newTagPast(s.packages.Time(), cmp.Or(selected.Days, defaultDays), selected.Group)
	if c.SLAs, err = s.readSLAs(ctx, reach); err != nil {
		return nil, sum, err
	}
	if err = s.readTimeline(ctx, c, reach, seen); err == nil && visit != nil {
		c.Visit, err = visit, s.readExploited(ctx, c, seen)
	}
	if err != nil {
		return nil, sum, err
	}
	if err := c.Summarize(ctx); err != nil {
		return nil, sum, err
	}
	sum.Total, sum.Series = c.Total, c.Series()
	sum.Coverage, err = s.groupCoverage(ctx, &c.group, seen)
	return c, sum, err
}

// readTimeline reads to which images the tags in reach have pointed, with the packages of these images and the
// advisories that affect them.
func (s *Service) readTimeline(ctx context.Context, c *tagPast, reach, seen []resource.UID) (err error) {
	since := c.Since()
	if c.group.images, err = s.images.TaggedImages(ctx, reach, maxImages); err != nil {
		return err
	}
	if c.Periods, err = s.images.TagPeriods(ctx, reach, since, maxPeriods); err != nil {
		return err
	}
	return s.readPeriods(ctx, c, seen, since)
}

// readPeriods reads the packages of the images to which tags have pointed, and the advisories that affect them.
func (s *Service) readPeriods(ctx context.Context, c *tagPast, seen []resource.UID, since int64) (err error) {
	current := map[string]int{}
	for _, i := range c.group.images {
		if i.State == registry.ImageIndexed {
			current[i.Digest]++
		}
	}
	digests := map[string]bool{}
	for _, p := range c.Periods {
		for _, i := range p.Images {
			if i.State == registry.ImageIndexed {
				digests[i.Digest] = true
			}
		}
	}
	if err := c.ReadExceptions(ctx, s.packages); err != nil {
		return err
	}
	compared := map[int64]bool{}
	if err := s.readClaims(ctx, c, compared, seen, since); err != nil {
		return err
	}
	for batch := range slices.Chunk(slices.Collect(maps.Keys(digests)), 1000) {
		if err := s.readContents(ctx, c, batch, current, compared, seen, since); err != nil {
			return err
		}
	}
	if c.Packages, err = s.packages.ByID(ctx, slices.Collect(maps.Keys(c.Hits))); err != nil {
		return err
	}
	return s.readOthers(ctx, c, seen)
}

// readOthers reads the severities of vulnerabilities that no advisory about their packages rates, from other records.
func (s *Service) readOthers(ctx context.Context, c *tagPast, seen []resource.UID) error {
	var names []string
	for id, hits := range c.Hits {
		for _, h := range hits {
			if finding.Rank(c.Packages[id].Ecosystem, h.Rating) > 0 {
				continue
			}
			for _, called := range c.Advisories[h.Advisory].Vulnerabilities() {
				names = append(names, called...)
			}
		}
	}
	var err error
	c.Others, err = finding.ReadRecords(ctx, s.advisories, seen, names)
	return err
}

// readContents reads the packages of images, and stores those that an advisory affects or has affected.
func (s *Service) readContents(
	ctx context.Context, c *tagPast, digests []string, current map[string]int, compared map[int64]bool,
	seen []resource.UID, since int64,
) error {
	var fresh []int64
	contents := map[string][]int64{}
	err := s.packages.Contents(ctx, digests, func(digest string, packages []int64) error {
		contents[digest] = slices.Clone(packages)
		c.addPackages(digest, packages)
		c.group.indexed += current[digest]
		for _, id := range packages {
			if !compared[id] {
				compared[id] = true
				fresh = append(fresh, id)
			}
			if current[digest] > 0 {
				c.group.packages[id] = nil
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
		affected := slices.DeleteFunc(packages, func(id int64) bool { return len(c.Hits[id]) == 0 })
		c.Affected[digest] = slices.Clip(slices.Clone(affected))
	}
	return nil
}

// readHits reads the advisories that affect or have affected packages.
func (s *Service) readHits(ctx context.Context, c *tagPast, packages []int64, seen []resource.UID, since int64) error {
	hits, err := s.packages.HitsSince(ctx, packages, seen, since)
	if err != nil {
		return err
	}
	maps.Copy(c.Hits, hits.ByPackage)
	maps.Copy(c.Advisories, named(hits.Advisories))
	return nil
}

// readClaims reads the packages in the SBOMs of current and past images of tags. It also reads which of these packages
// an advisory affects or has affected.
func (s *Service) readClaims(
	ctx context.Context, c *tagPast, compared map[int64]bool, seen []resource.UID, since int64,
) (err error) {
	images := slices.Clone(c.group.images)
	for _, p := range c.Periods {
		for _, i := range p.Images {
			images = append(images, imagedb.TaggedImage{Repo: p.Repo, Digest: i.Digest, State: i.State, Number: i.Number})
		}
	}
	if c.Claims, err = s.claimsOf(ctx, images); err != nil {
		return err
	}
	c.group.claims = c.Claims
	for _, i := range c.group.images {
		if c.group.counts(i) {
			for _, claim := range c.Claims[i.Number] {
				c.group.packages[claim.Package] = nil
			}
		}
	}
	for _, listed := range c.Claims {
		for _, claim := range listed {
			compared[claim.Package] = true
		}
	}
	return s.readHits(ctx, c, slices.Collect(maps.Keys(compared)), seen, since)
}

// nameRows adds the names of groups and repos.
func (s *Service) nameRows(ctx context.Context, found []*SummaryRow) (rows []SummaryRow, _ error) {
	uids := map[bool][]resource.UID{}
	for _, r := range found {
		if !r.Tag {
			uids[r.Repo] = append(uids[r.Repo], r.UID)
		}
	}
	repos, err := s.packages.NamesOf(ctx, "repos", false, uids[true])
	if err != nil {
		return nil, err
	}
	groups, err := s.packages.NamesOf(ctx, "groups", false, uids[false])
	for _, r := range found {
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

// A tagPast is a timeline with the current images of tags.
type tagPast struct {
	*timeline.Timeline
	group        groupContents
	repoPackages map[resource.UID]*numbers // packages of the images of each repo; nil if they are not counted
	tagged       map[string][]resource.UID // repos in which an image has a tag, by digest; set with repoPackages
}

// newTagPast returns an empty tagPast with a series of days that ends now.
func newTagPast(now time.Time, days int, place resource.UID) *tagPast {
	return &tagPast{Timeline: timeline.New(now, days, place), group: groupContents{packages: map[int64]*packageCount{}}}
}
