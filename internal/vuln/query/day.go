package query

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// CountDay counts the findings of tags in each group of an organization. It returns the counts of now, with the changes
// since midnight in UTC, and the changes on an earlier day, last, which may have continued after the last count of that
// day. It uses all images and all advisories of the organization, and does not authorize anybody.
func (s *Service) CountDay(
	ctx context.Context, root resource.UID, last vuln.Day,
) (today, closed []vuln.FindingDay, _ error) {
	reach := []resource.UID{root}
	done, err := s.turns.Wait(ctx, reach)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	c := newTagPast(s.packages.Time(), 1, root)
	c.ByRepo, c.ChangeDays = true, []vuln.Day{vuln.DayOf(c.Now), last}
	c.repoPackages = map[resource.UID]*numbers{}
	if err := s.readTimeline(ctx, c, reach, reach); err != nil {
		return nil, nil, err
	}
	c.addClaims()
	if err := s.readExploited(ctx, c, reach); err != nil {
		return nil, nil, err
	}
	if err := c.Summarize(ctx); err != nil {
		return nil, nil, err
	}
	groups, err := s.packages.GroupsUnder(ctx, root)
	if err != nil {
		return nil, nil, err
	}
	counted := c.countGroups(groups)
	if err := s.countGroupPackages(ctx, c, counted, reach); err != nil {
		return nil, nil, err
	}
	for _, d := range counted {
		today, closed = append(today, d.today), append(closed, d.last)
	}
	return today, closed, nil
}

// ComputeDays computes for each of the last days which findings of a group were open at its end, and how many were
// opened and closed on it. It uses the images and advisories that the caller may list, like Summarize.
func (s *Service) ComputeDays(ctx context.Context, group resource.UID, days int) (computed []vuln.FindingDay, _ error) {
	reach, err := finding.Reach(ctx, s.authz, group, resource.RepoList, resource.ReportsList)
	if err != nil {
		return nil, err
	}
	seen, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return nil, err
	}
	done, err := s.turns.Wait(ctx, reach)
	if err != nil {
		return nil, err
	}
	defer done()
	days = min(days, maxDays)
	c := newTagPast(s.packages.Time(), days, group)
	c.ByRepo = true
	for i := range days {
		c.ChangeDays = append(c.ChangeDays, vuln.DayOf(c.Now)-vuln.Day(days-1-i))
	}
	if err := s.readTimeline(ctx, c, reach, seen); err != nil {
		return nil, err
	}
	if err := c.Summarize(ctx); err != nil {
		return nil, err
	}
	for i, p := range c.Series() {
		computed = append(computed, vuln.FindingDay{Group: group, Day: c.ChangeDays[i], Time: p.Time, Open: p.Open,
			OnlyOpen: true})
	}
	for _, row := range c.Rows() {
		for i, n := range row.Count.Changes {
			computed[i].Opened += n.Opened
			computed[i].Closed += n.Closed
		}
	}
	return computed, nil
}

// readExploited sets which vulnerabilities are known to be exploited.
func (s *Service) readExploited(ctx context.Context, c *tagPast, reach []resource.UID) error {
	named := map[vuln.CVE]bool{}
	for _, a := range c.Advisories {
		for _, names := range a.Vulnerabilities() {
			for _, name := range names {
				if cve, ok := vuln.ParseCVE(name); ok {
					named[cve] = true
				}
			}
		}
	}
	known, err := s.advisories.KnownExploited(ctx, reach, slices.Collect(maps.Keys(named)))
	if err != nil {
		return err
	}
	c.Exploited = map[vuln.CVE]bool{}
	for _, cves := range known {
		for cve, exploited := range cves {
			c.Exploited[cve] = c.Exploited[cve] || exploited
		}
	}
	return nil
}

// groupCount contains the counts of a group. last has only the changes of the other day.
type groupCount struct {
	today, last vuln.FindingDay
	packages    numbers
}

// countGroups returns the counts of groups. Each group includes the repos below it.
func (c *tagPast) countGroups(groups []resource.UID) map[resource.UID]*groupCount {
	byGroup := map[resource.UID]*groupCount{}
	for _, g := range groups {
		byGroup[g] = &groupCount{today: vuln.FindingDay{Group: g, Day: c.ChangeDays[0], Time: c.Now},
			last: vuln.FindingDay{Group: g, Day: c.ChangeDays[1]}}
	}
	above := func(repo resource.UID, add func(*groupCount)) {
		for group := repo.Parent(); group != ""; group = group.Parent() {
			if d := byGroup[group]; d != nil {
				add(d)
			}
		}
	}
	for _, row := range c.Rows() {
		n := row.Count
		today, last := n.ChangesOf(2)[0], n.ChangesOf(2)[1]
		above(row.UID, func(d *groupCount) {
			d.today.Add(vuln.FindingDay{Open: n.Now, Excepted: n.Excepted, KEV: n.KEV, Fixable: n.Fixable,
				Opened: today.Opened, Closed: today.Closed, Age: n.Age})
			d.last.Add(vuln.FindingDay{Opened: last.Opened, Closed: last.Closed})
		})
	}
	for _, i := range c.group.images {
		n := vuln.FindingDay{Images: 1}
		switch i.State {
		case registry.ImageNone:
			continue
		case registry.ImageIndexed:
			n.Indexed = 1
		case registry.ImageNotUnderstood:
			n.NotUnderstood = 1
		default:
			n.Waiting = 1
		}
		above(i.Repo, func(d *groupCount) { d.today.Add(n) })
	}
	for repo, packages := range c.repoPackages {
		above(repo, func(d *groupCount) { d.packages.add(packages.list()) })
	}
	return byGroup
}

// addPackages adds the packages of an image to each repo in which the image has a tag.
func (c *tagPast) addPackages(digest string, packages []int64) {
	if c.repoPackages == nil {
		return
	}
	if c.tagged == nil {
		c.tagged = map[string][]resource.UID{}
		for _, i := range c.group.images {
			c.tagged[i.Digest] = append(c.tagged[i.Digest], i.Repo)
		}
	}
	for _, repo := range c.tagged[digest] {
		c.packagesOf(repo).add(packages)
	}
}

// addClaims adds the packages in the SBOMs of each image to its repo.
func (c *tagPast) addClaims() {
	for _, i := range c.group.images {
		if c.group.counts(i) {
			for _, claim := range c.Claims[i.Number] {
				c.packagesOf(i.Repo).add([]int64{claim.Package})
			}
		}
	}
}

func (c *tagPast) packagesOf(repo resource.UID) *numbers {
	if c.repoPackages[repo] == nil {
		c.repoPackages[repo] = &numbers{}
	}
	return c.repoPackages[repo]
}

// countGroupPackages counts the packages of groups by what the advisories in seen say about them.
func (s *Service) countGroupPackages(
	ctx context.Context, c *tagPast, groups map[resource.UID]*groupCount, seen []resource.UID,
) error {
	kinds, err := s.packages.Kinds(ctx, slices.Collect(maps.Keys(c.group.packages)))
	if err != nil {
		return err
	}
	about := map[string]bool{}
	for _, k := range kinds {
		about[k.Ecosystem] = true
	}
	covered, err := s.advisories.CoveredEcosystems(ctx, store.Reach{Under: seen}, slices.Collect(maps.Keys(about)))
	if err != nil {
		return err
	}
	for _, g := range groups {
		counts := map[findingdb.PackageKind]int{}
		for _, id := range g.packages.list() {
			counts[kinds[id]]++
		}
		p := coveredOf(counts, covered)
		g.today.Packages = &vuln.PackageCounts{All: p.Packages, Covered: p.Covered, Bare: p.Bare, Owned: p.Owned,
			Waiting: p.Waiting}
	}
	return nil
}

// numbers is a set of numbers that takes little memory.
type numbers struct {
	all   []int64
	limit int // length at which duplicates are removed
}

func (n *numbers) add(more []int64) {
	n.all = append(n.all, more...)
	if len(n.all) > n.limit {
		n.limit = max(1024, 2*len(n.list()))
	}
}

// list returns the numbers in order.
func (n *numbers) list() []int64 {
	slices.SortFunc(n.all, cmp.Compare[int64])
	n.all = slices.Compact(n.all)
	return n.all
}
