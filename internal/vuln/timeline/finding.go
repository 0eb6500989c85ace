package timeline

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// settling is the maximum time in which the packages of an image are compared with the advisories. If a finding appears
// within this time after the inspection, it counts as if it had appeared with the inspection.
const settling = 10 * time.Minute

// A hitSet contains the matches of advisories that describe a vulnerability, by the ID of the package version.
type hitSet struct {
	id    string
	names []string
	hits  map[int64][]finding.Mention
	views []finding.View
}

// A rowKey identifies a row of a summary.
type rowKey struct {
	uid resource.UID
	tag string
}

// Summarize counts the findings of all tags. It consumes the periods.
func (c *Timeline) Summarize(ctx context.Context) error {
	for len(c.Periods) > 0 {
		n := 1
		for n < len(c.Periods) && c.Periods[n].Repo == c.Periods[0].Repo && c.Periods[n].Name == c.Periods[0].Name {
			n++
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		c.addTag(c.Periods[:n])
		c.Periods = c.Periods[n:]
	}
	return nil
}

// row returns the row in which a tag is counted. If the summary is about one repo, it has a row for each tag. Otherwise
// it has a row for each group or repo directly below the place.
func (c *Timeline) row(repo resource.UID, tag string) *Row {
	r := Row{UID: repo, Name: tag, Tag: true}
	switch {
	case c.ByRepo:
		r = Row{UID: repo, Repo: true}
	case repo != c.Place:
		child := repo.Ancestor(c.Place.Depth() + 1)
		r = Row{UID: child, Repo: child == repo}
	}
	key := rowKey{r.UID, r.Name}
	if c.rows[key] == nil {
		c.rows[key] = &r
	}
	return c.rows[key]
}

// A presence is a package in an image to which a tag pointed.
type presence struct {
	id       int64
	period   int
	from, to int64 // period in milliseconds, from the time when the package was known
	digest   string
}

// addTag counts the findings of a tag.
func (c *Timeline) addTag(periods []imagedb.TagPeriod) {
	row := &Row{} // row that is not shown, for a deleted tag
	if last := periods[len(periods)-1]; !last.Deleted {
		row = c.row(last.Repo, last.Name)
		row.Tags++
	} else if last.Repo != c.Place || c.ByRepo {
		row = c.row(last.Repo, last.Name)
	}
	byName := map[string][]presence{}
	for i, p := range periods {
		for _, image := range p.Images {
			for _, h := range c.presences(p, i, image) {
				name := c.Packages[h.id].Name
				byName[name] = append(byName[name], h)
			}
		}
	}
	for name, present := range byName {
		for _, set := range c.setsOf(present) {
			v := tagFinding{Open: finding.Open{ID: set.id, Package: name, Repo: periods[0].Repo, Tag: periods[0].Name},
				periods: periods, names: set.names}
			v.views, v.counting = finding.ViewsIn(set.views, v.Repo)
			v.spans = c.spansOf(present, set, v.views)
			c.addFinding(v, row)
		}
	}
}

// presences returns the affected packages of an image to which a tag pointed in a period. A package in the image's
// files counts from the inspection. A package that only SBOMs list counts from the time when the first of these SBOMs
// was pushed.
func (c *Timeline) presences(p imagedb.TagPeriod, period int, image imagedb.PeriodImage) (found []presence) {
	add := func(id, from int64) {
		if from = max(from, p.From); from < p.To {
			found = append(found, presence{id, period, from, p.To, image.Digest})
		}
	}
	var files []int64
	known := int64(0)
	switch image.State {
	case registry.ImageWaiting:
		return nil
	case registry.ImageIndexed:
		files, known = c.Affected[image.Digest], image.Indexed
	}
	for _, id := range files {
		add(id, known)
	}
	for _, claim := range c.Claims[image.Number] {
		if _, both := slices.BinarySearch(files, claim.Package); !both && len(c.Hits[claim.Package]) > 0 {
			add(claim.Package, max(known, claim.Since))
		}
	}
	return found
}

// setsOf returns the matches of packages, grouped by vulnerability. It caches the result, because many tags have the
// same packages.
func (c *Timeline) setsOf(presences []presence) (sets []hitSet) {
	ids := make([]int64, len(presences))
	for i, p := range presences {
		ids[i] = p.id
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var key []byte
	var hits []findingdb.Hit
	for _, id := range ids {
		key = binary.AppendVarint(key, id)
		hits = append(hits, c.Hits[id]...)
	}
	if known, ok := c.sets[string(key)]; ok {
		return known
	}
	for _, mentions := range finding.ByVulnerability(hits, c.Advisories) {
		names := finding.NamesOf(mentions)
		set := hitSet{id: finding.NameOf(names), names: names, hits: map[int64][]finding.Mention{},
			views: c.Others.Views(finding.ViewsOf(mentions, c.Advisories))}
		for _, m := range mentions {
			set.hits[m.Package] = append(set.hits[m.Package], m)
		}
		sets = append(sets, set)
	}
	c.sets[string(key)] = sets
	return sets
}

// A span is a period in which a finding was open because of one package and one
// advisory.
type span struct {
	period   int
	from, to int64
	ranks    finding.Ranks
	fixable  bool
	score    int64 // CVSS score of the advisory in tenths

	id      int64   // the package
	mention mention // the advisory, and the vulnerability
	digest  string
}

// A mention is an advisory and the first of the names that it gives to a vulnerability.
type mention struct {
	advisory int64
	name     string
}

// spansOf returns the spans of a finding, ordered by their start, with the ranks of their ratings in views.
func (c *Timeline) spansOf(presences []presence, set hitSet, views []finding.View) (spans []span) {
	for _, p := range presences {
		for _, h := range set.hits[p.id] {
			until := cmp.Or(h.Until, imagedb.Now)
			if from, to := max(p.from, h.Since), min(p.to, until); from < to {
				ranks := finding.RanksOf(views, c.Advisories[h.Advisory].UID.Parent(), h, c.Packages[p.id].Ecosystem)
				spans = append(spans, span{p.period, from, to, ranks, len(h.Fixed) > 0, h.Score, p.id,
					mention{h.Advisory, h.Names[0]}, p.digest})
			}
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return spans
}

// A tagFinding is the history of a finding of a tag.
type tagFinding struct {
	finding.Open
	periods []imagedb.TagPeriod
	spans   []span
	names   []string // names of the vulnerability
	known   bool     // whether it is known to be exploited

	views    []finding.View
	counting int // number of views, from the first, that count for the tag; see finding.ViewsIn
}

// countChanges counts a finding that was opened or closed on one of the days whose changes are counted.
func (c *Timeline) countChanges(start, end int64, row *Row) {
	if i := c.changeDay(start); i >= 0 {
		row.Count.ChangesOf(len(c.ChangeDays))[i].Opened++
	}
	if i := c.changeDay(end); i >= 0 && end != imagedb.Now {
		row.Count.ChangesOf(len(c.ChangeDays))[i].Closed++
	}
}

// isKnown reports whether a vulnerability with one of the names is known to be exploited.
func (c *Timeline) isKnown(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		cve, ok := vuln.ParseCVE(name)
		return ok && c.Exploited[cve]
	})
}

// addFinding counts a finding of a tag in the series, in the total and in a row.
func (c *Timeline) addFinding(v tagFinding, row *Row) {
	if len(v.spans) == 0 {
		return
	}
	suspicious := c.mayBeExcepted(v)
	if suspicious {
		c.addToPoints(v)
	} else {
		c.addToSeries(v)
	}
	start, end, last := v.spans[0].from, v.spans[0].to, v.spans[0].period
	for _, s := range v.spans[1:] {
		if s.from > end && !v.carried(last, end, s) {
			c.countChanges(start, end, row)
			c.close(v, start, end, last, row)
			start, end = s.from, s.to
		}
		if s.to >= end {
			end, last = s.to, s.period
		}
	}
	c.countChanges(start, end, row)
	if end != imagedb.Now {
		c.close(v, start, end, last, row)
		return
	}
	if suspicious {
		if v.spans = c.openNow(v); len(v.spans) == 0 {
			c.Total.Excepted++
			row.Count.Excepted++
			return
		}
	}
	v.Since, v.known = time.UnixMilli(start).UTC(), c.isKnown(v.names)
	days := c.SLAs.Over(v.Repo).Days()
	c.Deadlines.add(v, days)
	c.visitOpen(v, days)
	c.Total.addOpen(v, c.Now, days)
	row.Count.addOpen(v, c.Now, days)
}

// known returns the time in a period at which the packages of a tag's images were known. It returns imagedb.Now if they
// are not known.
func known(p imagedb.TagPeriod) int64 {
	from := p.From
	if len(p.Images) == 0 {
		return imagedb.Now
	}
	for _, i := range p.Images {
		from = max(from, i.Indexed)
	}
	return from
}

// next returns the next period that counts. It skips a period if the tag was moved again before the image was
// inspected.
func (v tagFinding) next(period int) int {
	for i := period + 1; i < len(v.periods); i++ {
		p := v.periods[i]
		if k := known(p); p.Deleted || k == imagedb.Now || k < p.To {
			return i
		}
	}
	return len(v.periods)
}

// carried reports whether a finding that ended with a period continues with span s of the next period. It does so if s
// starts when the packages of the next image became known.
func (v tagFinding) carried(period int, end int64, s span) bool {
	since := known(v.periods[s.period])
	return end == v.periods[period].To && s.period == v.next(period) &&
		(since == imagedb.Now || s.from <= since+settling.Milliseconds())
}

// close counts a closed finding as fixed if the tag was moved to an image without the finding.
func (c *Timeline) close(v tagFinding, start, end int64, period int, row *Row) {
	if end != v.periods[period].To || end <= c.Now.Add(-Window).UnixMilli() {
		return
	}
	next := v.next(period)
	if next == len(v.periods) || v.periods[next].Deleted || known(v.periods[next]) == imagedb.Now {
		return
	}
	took := time.Duration(end-start) * time.Millisecond
	for _, to := range []*Counts{&c.Total, &row.Count} {
		to.Fixed++
		to.FixedTime += took
	}
	c.visitFixed(v, start, end)
}

// rating returns the severity of a finding that is open now, and whether it has a fix.
func (v tagFinding) rating() (severity finding.Severity, fixable bool) {
	var open finding.Ranks
	for _, s := range v.spans {
		if s.to == imagedb.Now {
			open, fixable = open.Max(s.ranks), fixable || s.fixable
		}
	}
	return open.Severity(v.counting), fixable
}

// addOpen counts a finding that is open now. limits contains the days within which findings must be fixed, by severity;
// 0 means that there is no limit.
func (n *Counts) addOpen(v tagFinding, now time.Time, limits [5]int32) {
	severity, fixable := v.rating()
	n.Now[severity]++
	if limit := limits[severity]; limit > 0 {
		n.Limited++
		if now.Sub(v.Since) >= time.Duration(limit)*day {
			n.Overdue[severity]++
		}
	}
	if fixable {
		n.Fixable++
	}
	if v.known {
		n.KEV++
	}
	n.Age += now.Sub(v.Since)
	age := 0
	for _, limit := range []time.Duration{7 * day, 30 * day, 90 * day} {
		if now.Sub(v.Since) >= limit {
			age++
		}
	}
	n.Ages[age]++
	if n.Oldest.Since.IsZero() || v.Before(n.Oldest) {
		n.Oldest = v.Open
	}
}

// addToSeries counts a finding at each point of the series at which it was open, with its severity at that point.
func (c *Timeline) addToSeries(v tagFinding) {
	if len(v.spans) == 1 {
		c.addBetween(v.spans[0].from, v.spans[0].to, v.spans[0].ranks.Severity(v.counting))
		return
	}
	var times []int64
	for _, s := range v.spans {
		times = append(times, s.from, s.to)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	for i, from := range times[:len(times)-1] {
		var open finding.Ranks
		for _, s := range v.spans {
			if s.from <= from && from < s.to {
				open = open.Max(s.ranks)
			}
		}
		if open != nil {
			c.addBetween(from, times[i+1], open.Severity(v.counting))
		}
	}
}

func (c *Timeline) addBetween(from, to int64, severity finding.Severity) {
	first, _ := slices.BinarySearch(c.points, from)
	end, _ := slices.BinarySearch(c.points, to)
	if first < end {
		steps := c.open[severity]
		steps[first]++
		steps[end]--
	}
}
