package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

// These are the largest numbers of entries in a Report.
const (
	MaxListed   = 2000 // findings of each list
	maxParts    = 100
	maxOwners   = 100
	maxPackages = 20
)

// A Report describes the findings of tags in a group and everything below it, for the people who are responsible for
// them. Lists are cut, but their totals count everything.
type Report struct {
	Group    resource.UID
	Path     string // names of the group and the groups above; "" if the caller may not see them
	Time     time.Time
	Month    time.Time // start of the month in UTC
	Summary  query.Summary
	Fixed    query.BySeverity // findings that were fixed this month
	FixTime  time.Duration    // sum of the times for which these were open
	Parts    []Part           // the groups and repos directly in the group, those with the most open findings first
	AllParts int
	Owners   []Share // owners, those with the most overdue findings first
	All      int     // number of owners
	Open     []Entry // open findings, the overdue ones first and then the most urgent
	Closed   []Entry // findings that were fixed this month, the last one first
	Packages []Total // versions of packages with the most urgent open findings
	Gaps     []string
}

// A Part contains the counts of a group or repo directly in the group of a Report.
type Part struct {
	query.SummaryRow
	Fixed int // findings that were fixed this month
}

// An Entry is a finding of a tag.
type Entry struct {
	finding.OfTag
	Path    string // path of the repo
	Overdue bool
	Owners  []string // names of the nearest owners that the caller may see; at most maxNames
	RatedBy string   // source of the severity; "" if it is not known
}

// Get returns a report about a group. The caller needs repo.list, vuln_report.list and advisories.list on it. The
// report has only advisories that the caller may list, and owners of groups whose role bindings the caller may list.
func (s *Service) Get(ctx context.Context, group resource.UID) (r Report, _ error) {
	if err := s.authz.RequireAll(ctx, resource.NewCapabilities(
		resource.RepoList, resource.ReportsList, resource.AdvisoriesList), group); err != nil {
		return r, err
	}
	if err := s.packages.CheckGroup(ctx, group); err != nil {
		return r, err
	}
	c := newCollection(group, s.packages.Time())
	rows, sum, err := s.queries.Visit(ctx, query.Place{Group: group}, c.add)
	if err != nil {
		return r, err
	}
	r = c.report(rows, sum)
	if !s.authz.Sees(ctx, resource.AdvisoriesList, group.Root()) {
		r.Gaps = append(r.Gaps, "you may not list all advisories of the organization, so their findings are missing")
	}
	if err := s.addOwners(ctx, &r, c); err != nil {
		return r, err
	}
	if err := s.addPaths(ctx, &r); err != nil {
		return r, err
	}
	if err := s.addSources(ctx, &r); err != nil {
		return r, err
	}
	urgent, _, err := s.Totals(ctx, query.Place{Group: group}, ByPackage, query.Filter{}, page.Params{Size: maxPackages})
	r.Packages = urgent.Items
	return r, err
}

// addPaths sets the paths of the group and of the repos in lists.
func (s *Service) addPaths(ctx context.Context, r *Report) error {
	repos := map[resource.UID]bool{}
	for _, list := range [][]Entry{r.Open, r.Closed} {
		for _, v := range list {
			repos[v.Repo] = true
		}
	}
	paths, err := s.images.Paths(ctx, slices.Collect(maps.Keys(repos)))
	if err != nil {
		return err
	}
	for _, list := range [][]Entry{r.Open, r.Closed} {
		for i := range list {
			list[i].Path = paths[list[i].Repo]
		}
	}
	names, err := s.iam.LookupNames(ctx, []resource.UID{r.Group})
	for _, n := range names {
		r.Path = n.Path
	}
	return err
}

// addSources sets the sources of the severities of the findings in lists.
func (s *Service) addSources(ctx context.Context, r *Report) error {
	var keys []int64
	for _, list := range [][]Entry{r.Open, r.Closed} {
		for _, v := range list {
			keys = append(keys, v.Source.Advisories...)
		}
	}
	slices.Sort(keys)
	authors, err := s.queries.Authors(ctx, slices.Compact(keys))
	for _, list := range [][]Entry{r.Open, r.Closed} {
		for i := range list {
			list[i].RatedBy = list[i].Source.Name(authors)
		}
	}
	return err
}

// A collection collects the findings of a report.
type collection struct {
	group      resource.UID
	now, month time.Time
	open       ranked
	closed     ranked
	fixed      query.BySeverity
	fixTime    time.Duration
	byRepo     map[resource.UID]*repoCount
}

// A repoCount counts the findings of a repo.
type repoCount struct {
	open                    query.BySeverity
	limited, overdue, fixed int
}

func newCollection(group resource.UID, now time.Time) *collection {
	c := &collection{group: group, now: now, byRepo: map[resource.UID]*repoCount{}}
	c.month = time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	c.open.compare = func(a, b finding.OfTag) int {
		return cmp.Or(-cmp.Compare(word(c.late(a)), word(c.late(b))), -cmp.Compare(word(a.KEV), word(b.KEV)),
			-cmp.Compare(a.Severity, b.Severity), older(a, b))
	}
	c.closed.compare = func(a, b finding.OfTag) int {
		return cmp.Or(b.Fixed.Compare(a.Fixed), -cmp.Compare(a.Severity, b.Severity), older(a, b))
	}
	return c
}

func older(a, b finding.OfTag) int {
	switch {
	case a.Before(b.Open):
		return -1
	case b.Before(a.Open):
		return 1
	}
	return 0
}

func word(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// late reports whether a finding is overdue.
func (c *collection) late(v finding.OfTag) bool { return !v.Due.IsZero() && !c.now.Before(v.Due) }

// add counts a finding.
func (c *collection) add(v finding.OfTag) {
	if v.Fixed.Before(c.month) && !v.Fixed.IsZero() {
		return
	}
	n := c.byRepo[v.Repo]
	if n == nil {
		n = &repoCount{}
		c.byRepo[v.Repo] = n
	}
	if !v.Fixed.IsZero() {
		c.fixed[v.Severity]++
		c.fixTime += v.Fixed.Sub(v.Since)
		n.fixed++
		c.closed.add(v)
		return
	}
	n.open[v.Severity]++
	n.limited += word(!v.Due.IsZero())
	n.overdue += word(c.late(v))
	c.open.add(v)
}

// report returns the report without owners, paths and packages.
func (c *collection) report(rows []query.SummaryRow, sum query.Summary) Report {
	r := Report{Group: c.group, Time: c.now, Month: c.month, Summary: sum, Fixed: c.fixed, FixTime: c.fixTime,
		AllParts: len(rows)}
	for _, v := range c.open.first() {
		r.Open = append(r.Open, Entry{OfTag: v, Overdue: c.late(v)})
	}
	for _, v := range c.closed.first() {
		r.Closed = append(r.Closed, Entry{OfTag: v})
	}
	fixed := map[resource.UID]int{}
	for repo, n := range c.byRepo {
		fixed[repo.Ancestor(c.group.Depth()+1)] += n.fixed
	}
	slices.SortFunc(rows, func(a, b query.SummaryRow) int {
		return cmp.Or(-cmp.Compare(a.Count.Now.Sum(), b.Count.Now.Sum()), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.UID, b.UID))
	})
	for _, row := range rows[:min(len(rows), maxParts)] {
		r.Parts = append(r.Parts, Part{SummaryRow: row, Fixed: fixed[row.UID]})
	}
	for _, list := range []struct {
		name string
		n    int
	}{{"open findings", c.open.n}, {"fixed findings", c.closed.n}} {
		if list.n > MaxListed {
			r.Gaps = append(r.Gaps, fmt.Sprintf("only %d of %d %s are listed", MaxListed, list.n, list.name))
		}
	}
	return r
}

// A ranked keeps the first MaxListed findings of a large number.
type ranked struct {
	compare func(a, b finding.OfTag) int
	n       int // number of findings that were added
	kept    []finding.OfTag
}

func (r *ranked) add(v finding.OfTag) {
	r.n++
	if r.kept = append(r.kept, v); len(r.kept) >= 4*MaxListed {
		r.first()
	}
}

// first returns the first findings, in order.
func (r *ranked) first() []finding.OfTag {
	slices.SortFunc(r.kept, r.compare)
	r.kept = r.kept[:min(len(r.kept), MaxListed)]
	return r.kept
}
