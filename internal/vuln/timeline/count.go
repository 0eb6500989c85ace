package timeline

import (
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// Counts contains numbers of findings of tags.
type Counts struct {
	Now       BySeverity
	Excepted  int    // findings for which an exception holds now; the other fields do not count them
	Fixable   int    // open findings that have a fix
	Ages      [4]int // open findings by age: less than 7 days, less than 30, less than 90, and older
	Oldest    finding.Open
	Fixed     int           // findings fixed in the last 90 days
	FixedTime time.Duration // sum of the times for which the fixed findings were open

	Limited int        // open findings for whose severity the nearest SLA has a number of days
	Overdue BySeverity // findings among them that have been open for longer

	// The following are set only if the changes of days are counted.
	KEV     int           // open findings that are known to be exploited
	Changes []Changes     // changes by day; nil if there are none
	Age     time.Duration // sum of the ages of the open findings
}

// BySeverity contains the number of findings of each severity.
type BySeverity [finding.SeverityCritical + 1]int

// Sum returns the number of all findings.
func (b BySeverity) Sum() (n int) {
	for _, count := range b {
		n += count
	}
	return n
}

// A Point contains the numbers of open findings at a time.
type Point struct {
	Time time.Time
	Open BySeverity
}

// A Row contains the counts of a group, a repo or a tag.
type Row struct {
	UID   resource.UID // UID of the group or repo; for a tag, the UID of its repo
	Repo  bool         // whether UID is the UID of a repo
	Name  string
	Tag   bool
	Tags  int // number of tags that exist
	Count Counts
}

// Changes counts the findings that were opened or closed on a day.
type Changes struct{ Opened, Closed int }

// ChangesOf returns the changes of a number of days.
func (n *Counts) ChangesOf(days int) []Changes {
	if n.Changes == nil {
		n.Changes = make([]Changes, days)
	}
	return n.Changes
}

// changeDay returns the index of the day of a time in milliseconds, or -1 if the changes of that day are not counted.
func (c *Timeline) changeDay(ms int64) int {
	if len(c.ChangeDays) == 0 {
		return -1
	}
	return slices.Index(c.ChangeDays, vuln.DayOf(store.FromMS(ms)))
}
