package query

import (
	"context"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// CountDay counts the findings of tags in each group of an organization, now and since midnight in UTC. It uses all
// images and all advisories of the organization, and does not authorize anybody.
func (s *Service) CountDay(ctx context.Context, root resource.UID) ([]vuln.FindingDay, error) {
	reach := []resource.UID{root}
	done, err := s.turns.Wait(ctx, reach)
	if err != nil {
		return nil, err
	}
	defer done()
	c := newTimeline(s.packages.Time(), 1, root)
	c.byRepo, c.since = true, c.now.Truncate(day).UnixMilli()
	if err := s.readTimeline(ctx, c, reach, reach); err != nil {
		return nil, err
	}
	if err := s.readExploited(ctx, c, reach); err != nil {
		return nil, err
	}
	if err := c.summarize(ctx); err != nil {
		return nil, err
	}
	groups, err := s.packages.GroupsUnder(ctx, root)
	if err != nil {
		return nil, err
	}
	return c.days(groups), nil
}

// readExploited sets which vulnerabilities are known to be exploited.
func (s *Service) readExploited(ctx context.Context, c *timeline, reach []resource.UID) error {
	named := map[vuln.CVE]bool{}
	for _, a := range c.advisories {
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
	c.exploited = map[vuln.CVE]bool{}
	for _, cves := range known {
		for cve, exploited := range cves {
			c.exploited[cve] = c.exploited[cve] || exploited
		}
	}
	return nil
}

// days returns the counts of groups. Each group includes the repos below it.
func (c *timeline) days(groups []resource.UID) (days []vuln.FindingDay) {
	byGroup := map[resource.UID]*vuln.FindingDay{}
	for _, g := range groups {
		byGroup[g] = &vuln.FindingDay{Group: g, Day: vuln.DayOf(c.now), Time: c.now}
	}
	add := func(repo resource.UID, n vuln.FindingDay) {
		for group := repo.Parent(); group != ""; group = group.Parent() {
			if d := byGroup[group]; d != nil {
				d.Add(n)
			}
		}
	}
	for key, row := range c.rows {
		n := row.Count
		add(key.uid, vuln.FindingDay{Open: n.Now, Excepted: n.Excepted, KEV: n.KEV, Fixable: n.Fixable, Opened: n.Opened,
			Closed: n.Closed, Age: n.Age})
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
		add(i.Repo, n)
	}
	for _, d := range byGroup {
		days = append(days, *d)
	}
	return days
}
