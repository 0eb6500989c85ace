package vuln

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A FindingDay counts the findings of tags in a group and below it on a day. Opened and Closed count the changes of the
// whole day. All other counts were made at Time, the last time of the day when the findings were counted.
type FindingDay struct {
	Group resource.UID `json:"-"`
	Day   Day          `json:"-"`
	Time  time.Time    `json:"time"` // when they were counted

	// The open findings by severity: unknown, low, medium, high, critical.
	Open     [5]int `json:"open"`
	Excepted int    `json:"excepted,omitempty"` // findings to which exceptions apply; the other fields omit them
	KEV      int    `json:"kev,omitempty"`      // open findings that are known to be exploited
	Fixable  int    `json:"fixable,omitempty"`  // open findings that are fixed in some version
	Opened   int    `json:"opened,omitempty"`   // findings that were opened on the day
	Closed   int    `json:"closed,omitempty"`   // findings that were closed on the day

	Age time.Duration `json:"age,omitempty"` // sum of the ages of the open findings

	Images        int `json:"images,omitempty"` // images with a tag
	Indexed       int `json:"indexed,omitempty"`
	Waiting       int `json:"waiting,omitempty"`
	NotUnderstood int `json:"notUnderstood,omitempty"`

	Packages *PackageCounts `json:"packages,omitempty"` // nil if the packages were not counted

	// OnlyOpen says that only Open, Opened and Closed are known, because they were computed later.
	OnlyOpen bool `json:"-"`
}

// PackageCounts counts the versions of packages in the images of a group by what is known about them.
type PackageCounts struct {
	All     int `json:"all"`
	Covered int `json:"covered,omitempty"` // packages in ecosystems with advisories
	Bare    int `json:"bare,omitempty"`    // packages for which nothing is known
	Owned   int `json:"owned,omitempty"`   // packages that a package of the distribution installed
	Waiting int `json:"waiting,omitempty"` // packages that were not compared with the advisories yet
}

// OpenCount returns the number of open findings.
func (d FindingDay) OpenCount() (n int) {
	for _, count := range d.Open {
		n += count
	}
	return n
}

// MeanAge returns the mean age of the open findings, or 0 if there are none.
func (d FindingDay) MeanAge() time.Duration {
	if n := d.OpenCount(); n > 0 {
		return d.Age / time.Duration(n)
	}
	return 0
}

// Add adds the counts of other to d.
func (d *FindingDay) Add(other FindingDay) {
	for i, n := range other.Open {
		d.Open[i] += n
	}
	d.Excepted += other.Excepted
	d.KEV += other.KEV
	d.Fixable += other.Fixable
	d.Opened += other.Opened
	d.Closed += other.Closed
	d.Age += other.Age
	d.Images += other.Images
	d.Indexed += other.Indexed
	d.Waiting += other.Waiting
	d.NotUnderstood += other.NotUnderstood
}

// KeepFindingDays is the number of days for which the counts of findings are kept.
const KeepFindingDays = 2 * 365

// DayOf returns the day of a time in UTC.
func DayOf(t time.Time) Day { return Day(t.Unix()/86400 + 1) }
