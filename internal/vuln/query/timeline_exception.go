package query

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

// exceptions decides which findings of tags were excepted at the points of a chronicle. Few
// are: the others cost a look at their package.
type exceptions struct {
	index    *exception.Index
	packages map[int64]*exception.Set       // that may be about a package; nil if there are none
	tagged   map[finding.ImageKey][]tagTime // if some are about tags, when tags stood for an image
	excepted map[exceptedKey]map[int64]bool
}

// A tagTime is a time in which a tag stood for an image.
type tagTime struct {
	name     string
	from, to int64
}

// An exceptedKey is what is asked of exceptions: a package of a repo at a time, and of one
// image if they depend on that.
type exceptedKey struct {
	image   finding.ImageKey
	pkg, at int64
}

// readExceptions reads the exceptions that held at some point of the chronicle.
func (s *Service) readExceptions(ctx context.Context, c *timeline) error {
	var repos []resource.UID
	for _, p := range c.periods {
		if len(repos) == 0 || repos[len(repos)-1] != p.Repo {
			repos = append(repos, p.Repo)
		}
	}
	x, err := exception.Read(ctx, s.packages, repos, time.UnixMilli(c.points[0]), c.now)
	if len(c.points) == 1 { // which is now
		x, err = exception.Read(ctx, s.packages, repos, c.now, c.now)
	}
	if err != nil {
		return err
	}
	c.exceptions = exceptions{index: x.Index(), packages: map[int64]*exception.Set{},
		excepted: map[exceptedKey]map[int64]bool{}}
	if !x.UsesTags() {
		return nil
	}
	c.exceptions.tagged = map[finding.ImageKey][]tagTime{}
	for _, p := range c.periods {
		for _, i := range p.Images {
			key := finding.ImageKey{Repo: p.Repo, Digest: i.Digest}
			c.exceptions.tagged[key] = append(c.exceptions.tagged[key], tagTime{p.Name, p.From, p.To})
		}
	}
	return nil
}

// ForFinding returns the exceptions that may be about findings of a package, or nil.
func (c *timeline) suspects(id int64) *exception.Set {
	if c.exceptions.index == nil {
		return nil
	}
	held, ok := c.exceptions.packages[id]
	if ok {
		return held
	}
	var called []string
	for _, h := range c.hits[id] {
		called = append(called, finding.AdvisoryNames(c.advisories[h.Advisory])...)
	}
	slices.Sort(called)
	held = c.exceptions.index.ForPackage(c.packages[id], slices.Compact(called))
	c.exceptions.packages[id] = held
	return held
}

// suspicious reports whether an exception may have held for a part of a finding.
func (c *timeline) suspicious(v tagFinding) bool {
	return c.exceptions.index != nil && slices.ContainsFunc(v.spans, func(s span) bool { return c.suspects(s.id) != nil })
}

// isExcepted reports whether an exception held for a span of a finding at a point.
func (c *timeline) isExcepted(repo resource.UID, s span, point int64) bool {
	held := c.suspects(s.id)
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
	return known[s.advisory]
}

// exceptedAt returns the advisories for which an exception held at a point, as the list of
// findings of an image would have said then.
func (c *timeline) exceptedAt(held *exception.Set, key exceptedKey) map[int64]bool {
	hits := slices.DeleteFunc(slices.Clone(c.hits[key.pkg]), func(h findingdb.Hit) bool {
		return h.Since > key.at || h.Until != 0 && h.Until <= key.at
	})
	at := c.now
	if key.at != imagedb.Now-1 {
		at = time.UnixMilli(key.at)
	}
	var tags []string
	for _, t := range c.exceptions.tagged[key.image] {
		if t.from <= key.at && key.at < t.to {
			tags = append(tags, t.name)
		}
	}
	all := map[int64]bool{}
	for _, same := range finding.GroupByAlias(hits, c.advisories) {
		of := exception.Case{Repo: key.image.Repo, Digest: key.image.Digest, Tags: tags, Claims: finding.Claims(same, c.advisories),
			Package: c.packages[key.pkg]}
		if _, ok := held.Holding(of, at, nil); ok {
			for _, h := range same {
				all[h.Advisory] = true
			}
		}
	}
	return all
}

// openNow returns the spans of a finding that last, and for which no exception holds.
func (c *timeline) openNow(v tagFinding) []span {
	return slices.DeleteFunc(slices.Clone(v.spans), func(s span) bool {
		return s.to != imagedb.Now || c.isExcepted(v.Repo, s, imagedb.Now-1)
	})
}

// addToPoints is addToSeries for a finding that exceptions may be about.
func (c *timeline) addToPoints(v tagFinding) {
	for i, point := range c.points {
		score := int64(-1)
		for _, s := range v.spans {
			if s.from <= point && point < s.to && s.score > score && !c.isExcepted(v.Repo, s, point) {
				score = s.score
			}
		}
		if score >= 0 {
			steps := c.open[finding.SeverityOf(float64(score)/10)]
			steps[i]++
			steps[i+1]--
		}
	}
}
