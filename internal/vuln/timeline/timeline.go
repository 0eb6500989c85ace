// Package timeline counts the findings of tags over time: which were open on a day, since when, and which were fixed.
package timeline

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

const (
	// Window is the longest period of a summary.
	Window = 90 * day
	day    = 24 * time.Hour
)

// A Timeline contains the images of tags over time, with their packages and advisories. It counts the findings. Its
// creator sets the exported fields, and calls ReadExceptions and then Summarize.
type Timeline struct {
	Now        time.Time
	Place      resource.UID                // group or repo whose children have rows
	Periods    []imagedb.TagPeriod         // periods in which tags pointed to images, ordered by tag and time
	Claims     map[int64][]findingdb.Claim // packages in attached SBOMs, by image number
	Affected   map[string][]int64          // packages with a current or past match, by digest
	Hits       map[int64][]findingdb.Hit   // matches by package
	Packages   map[int64]registry.Package
	Advisories map[int64]vuln.Advisory
	SLAs       vuln.SLAs
	Deadlines  *Deadlines        // when findings must be fixed; nil if that is not computed
	Others     finding.Records   // other records about unrated vulnerabilities
	ChangeDays []vuln.Day        // days whose changes are counted
	ByRepo     bool              // whether each repo has a row
	Exploited  map[vuln.CVE]bool // vulnerabilities that are known to be exploited
	Total      Counts            // set by Summarize

	// Visit is nil, or is called with each finding of a tag that is open, or was fixed in the last 90 days.
	Visit func(finding.OfTag)

	points     []int64 // times of the series in milliseconds, in order
	exceptions exceptions
	sets       map[string][]hitSet // cache of setsOf
	rows       map[rowKey]*Row
	open       [len(BySeverity{})][]int // changes of the number of open findings at each point, by severity
}

// New returns an empty Timeline with a series of days that ends now.
func New(now time.Time, days int, place resource.UID) *Timeline {
	c := &Timeline{Now: now, Place: place, Affected: map[string][]int64{}, Hits: map[int64][]findingdb.Hit{},
		Advisories: map[int64]vuln.Advisory{}, sets: map[string][]hitSet{}, rows: map[rowKey]*Row{}}
	midnight := now.Truncate(day)
	for i := days - 2; i >= 0; i-- {
		c.points = append(c.points, midnight.Add(-time.Duration(i)*day).UnixMilli())
	}
	// The last point is so late that it includes all open findings, even if the clocks of replicas differ.
	c.points = append(c.points, imagedb.Now-1)
	for i := range c.open {
		c.open[i] = make([]int, days+1)
	}
	return c
}

// Rows returns the rows of a summary, in no order.
func (c *Timeline) Rows() (rows []*Row) { return slices.Collect(maps.Values(c.rows)) }

// Series returns the points of the series, by adding up the changes in open.
func (c *Timeline) Series() []Point {
	points := make([]Point, len(c.points))
	for severity, steps := range c.open {
		n := 0
		for i := range points {
			n += steps[i]
			points[i].Open[severity] = n
		}
	}
	for i, ms := range c.points {
		points[i].Time = time.UnixMilli(ms).UTC()
	}
	points[len(points)-1].Time = c.Now
	return points
}

// Since returns the start of the past that a timeline considers, in milliseconds.
func (c *Timeline) Since() int64 { return c.Now.Add(-max(Window, c.SLAs.Longest())).UnixMilli() }
