package timeline

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// Deadlines contains the times by which findings that are open now must be fixed. If a finding is open in several tags,
// it is the earliest of their times. So a finding is overdue if the summary counts it as overdue in one of its tags.
type Deadlines struct {
	Digest string // if set, only tags of this image count
	times  map[deadlineKey]time.Time
}

// NewDeadlines returns Deadlines without times.
func NewDeadlines() *Deadlines { return &Deadlines{times: map[deadlineKey]time.Time{}} }

// A deadlineKey is the ID of a package, and a name of a vulnerability.
type deadlineKey struct {
	pkg  int64
	name string
}

// add adds a finding of a tag. days contains the days of the SLA, by severity.
func (d *Deadlines) add(v tagFinding, days [5]int32) {
	if d == nil {
		return
	}
	severity, _ := v.rating()
	if days[severity] == 0 {
		return
	}
	due := v.Since.Add(time.Duration(days[severity]) * day)
	for _, s := range v.spans {
		if s.to != imagedb.Now || d.Digest != "" && s.digest != d.Digest {
			continue
		}
		for _, name := range v.names {
			key := deadlineKey{s.id, name}
			if known, ok := d.times[key]; !ok || due.Before(known) {
				d.times[key] = due
			}
		}
	}
}

// Set sets the time by which a finding must be fixed. pkg is the ID of its package.
func (d *Deadlines) Set(v *finding.Finding, pkg int64, now time.Time) {
	v.DueTime = d.times[deadlineKey{pkg, v.ID}]
	v.Overdue = !v.DueTime.IsZero() && !now.Before(v.DueTime)
}

// visitOpen calls Visit with a finding that is open now.
func (c *Timeline) visitOpen(v tagFinding, days [5]int32) {
	if c.Visit == nil {
		return
	}
	o := finding.OfTag{Open: v.Open, KEV: v.known, Source: c.source(v, imagedb.Now)}
	if o.Severity, o.Fixable = v.rating(); days[o.Severity] > 0 {
		o.Due = v.Since.Add(time.Duration(days[o.Severity]) * day)
	}
	c.Visit(o)
}

// visitFixed calls Visit with a finding that was open from start to end.
func (c *Timeline) visitFixed(v tagFinding, start, end int64) {
	if c.Visit == nil {
		return
	}
	var last finding.Ranks
	for _, s := range v.spans {
		if s.to == end {
			last = last.Max(s.ranks)
		}
	}
	v.Since = time.UnixMilli(start).UTC()
	c.Visit(finding.OfTag{Open: v.Open, Severity: last.Severity(v.counting), Fixed: time.UnixMilli(end).UTC(),
		Source: c.source(v, end)})
}

// source returns the source of the severity that a finding had until a time.
func (c *Timeline) source(v tagFinding, until int64) finding.Source {
	var ratings []finding.Rated
	for _, s := range v.spans {
		if s.to == until {
			ratings = append(ratings, finding.Rated{Advisory: s.mention.advisory, Score: s.score, Ranks: s.ranks})
		}
	}
	return c.Others.SourceOf(v.views, v.counting, ratings)
}
