package timeline

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/vuln/exception"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// exceptions decides for which findings of tags an exception held at the points of a timeline. For most packages there
// are no exceptions, and one lookup shows this.
type exceptions struct {
	index    *exception.Index
	packages map[int64]*exception.Set       // exceptions that may hold for a package, by package; nil if there are none
	tagged   map[finding.ImageKey][]tagTime // periods of an image's tags; set only if an exception has a tag pattern
	excepted map[exceptedKey]map[mention]bool
}

// A tagTime is a period in which a tag pointed to an image.
type tagTime struct {
	name     string
	from, to int64
}

// An exceptedKey identifies a cached decision about a package in a repo at a time. It contains the digest of the image
// only if an exception on the repo is restricted to images.
type exceptedKey struct {
	image      finding.ImageKey
	pkg, point int64
}

// ReadExceptions reads the exceptions that held at any point of the timeline.
func (c *Timeline) ReadExceptions(ctx context.Context, packages *findingdb.Store) error {
	var repos []resource.UID
	for _, p := range c.Periods {
		if len(repos) == 0 || repos[len(repos)-1] != p.Repo {
			repos = append(repos, p.Repo)
		}
	}
	x, err := exception.Read(ctx, packages, repos, time.UnixMilli(c.points[0]), c.Now)
	if len(c.points) == 1 { // the series has only one point, which is now
		x, err = exception.Read(ctx, packages, repos, c.Now, c.Now)
	}
	if err != nil {
		return err
	}
	c.exceptions = exceptions{index: x.Index(), packages: map[int64]*exception.Set{},
		excepted: map[exceptedKey]map[mention]bool{}}
	if !x.UsesTags() {
		return nil
	}
	c.exceptions.tagged = map[finding.ImageKey][]tagTime{}
	for _, p := range c.Periods {
		for _, i := range p.Images {
			key := finding.ImageKey{Repo: p.Repo, Digest: i.Digest}
			c.exceptions.tagged[key] = append(c.exceptions.tagged[key], tagTime{p.Name, p.From, p.To})
		}
	}
	return nil
}

// candidates returns the exceptions that may hold for findings of a package, or nil if there are none.
func (c *Timeline) candidates(id int64) *exception.Set {
	if c.exceptions.index == nil {
		return nil
	}
	held, ok := c.exceptions.packages[id]
	if ok {
		return held
	}
	var called []string
	for _, h := range c.Hits[id] {
		called = append(append(called, c.Advisories[h.Advisory].OwnNames()...), c.Advisories[h.Advisory].Fixes...)
	}
	slices.Sort(called)
	held = c.exceptions.index.ForPackage(c.Packages[id], slices.Compact(called))
	c.exceptions.packages[id] = held
	return held
}

// mayBeExcepted reports whether an exception may have held for one of the spans of a finding.
func (c *Timeline) mayBeExcepted(v tagFinding) bool {
	return c.exceptions.index != nil && slices.ContainsFunc(v.spans,
		func(s span) bool { return c.candidates(s.id) != nil })
}

// isExcepted reports whether an exception held for a span of a finding at a point.
func (c *Timeline) isExcepted(repo resource.UID, s span, point int64) bool {
	held := c.candidates(s.id)
	if held == nil {
		return false
	}
	key := exceptedKey{finding.ImageKey{Repo: repo}, s.id, point}
	if held.SelectsImages(repo) {
		key.image.Digest = s.digest
	}
	known, ok := c.exceptions.excepted[key]
	if !ok {
		known = c.exceptedAt(held, key)
		c.exceptions.excepted[key] = known
	}
	return known[s.mention]
}

// exceptedAt returns the mentions of vulnerabilities for which an exception held at a point. The result is the same as
// in the list of an image's findings at that time.
func (c *Timeline) exceptedAt(held *exception.Set, key exceptedKey) map[mention]bool {
	hits := slices.DeleteFunc(slices.Clone(c.Hits[key.pkg]), func(h findingdb.Hit) bool {
		return h.Since > key.point || h.Until != 0 && h.Until <= key.point
	})
	asOf := c.Now
	if key.point != imagedb.Now-1 {
		asOf = time.UnixMilli(key.point)
	}
	var tags []string
	for _, t := range c.exceptions.tagged[key.image] {
		if t.from <= key.point && key.point < t.to {
			tags = append(tags, t.name)
		}
	}
	ids := map[mention]bool{}
	for _, mentions := range finding.ByVulnerability(hits, c.Advisories) {
		excepted := exception.Case{Repo: key.image.Repo, Digest: key.image.Digest, Tags: tags,
			Claims:  finding.Claims(mentions, c.Advisories),
			Package: c.Packages[key.pkg]}
		if _, ok := held.Holding(excepted, asOf, nil); ok {
			for _, m := range mentions {
				ids[mention{m.Advisory, m.Names[0]}] = true
			}
		}
	}
	return ids
}

// openNow returns the spans of a finding that have not ended and have no exception.
func (c *Timeline) openNow(v tagFinding) []span {
	return slices.DeleteFunc(slices.Clone(v.spans), func(s span) bool {
		return s.to != imagedb.Now || c.isExcepted(v.Repo, s, imagedb.Now-1)
	})
}

// addToPoints is like addToSeries, for a finding for which an exception may hold.
func (c *Timeline) addToPoints(v tagFinding) {
	for i, point := range c.points {
		var open finding.Ranks
		for _, s := range v.spans {
			if s.from <= point && point < s.to && !c.isExcepted(v.Repo, s, point) {
				open = open.Max(s.ranks)
			}
		}
		if open != nil {
			steps := c.open[open.Severity(v.counting)]
			steps[i]++
			steps[i+1]--
		}
	}
}
