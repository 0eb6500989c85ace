package vuln

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// MaxSLADays is the largest number of days in an SLA.
const MaxSLADays = 365

// An SLA says within how many days the findings of a group and everything below it must be fixed, by severity. 0 means
// that findings of the severity are never overdue.
type SLA struct {
	UID        resource.UID `json:"uid"` // UID of the group
	Critical   int32        `json:"critical,omitempty"`
	High       int32        `json:"high,omitempty"`
	Medium     int32        `json:"medium,omitempty"`
	Low        int32        `json:"low,omitempty"`
	Unknown    int32        `json:"unknown,omitempty"`
	UpdateTime time.Time    `json:"updateTime"`
}

// Days returns the days by severity: unknown, low, medium, high, critical.
func (s SLA) Days() [5]int32 { return [5]int32{s.Unknown, s.Low, s.Medium, s.High, s.Critical} }

// Validate returns an error that names every invalid field.
func (s SLA) Validate() error {
	var p problems
	fields := []string{"unknown_days", "low_days", "medium_days", "high_days", "critical_days"}
	anyLimit := false
	for i, days := range s.Days() {
		resource.Within(&p.Problems, fields[i], days, 0, MaxSLADays, "must be from 0 to 365")
		anyLimit = anyLimit || days != 0
	}
	if !anyLimit {
		p.Add("critical_days", "is required, or the days of another severity: without any, nothing is ever overdue")
	}
	return p.Err()
}

// SLAs contains the SLAs of groups, by group.
type SLAs map[resource.UID]SLA

// Over returns the SLA of the nearest group above a repo that has one. If there is none, it returns an SLA without
// limits.
func (s SLAs) Over(repo resource.UID) SLA {
	if len(s) == 0 {
		return SLA{}
	}
	for group := repo.Parent(); group != ""; group = group.Parent() {
		if v, ok := s[group]; ok {
			return v
		}
	}
	return SLA{}
}

// Longest returns the longest time within which a finding must be fixed.
func (s SLAs) Longest() (longest time.Duration) {
	for _, v := range s {
		for _, days := range v.Days() {
			longest = max(longest, time.Duration(days)*24*time.Hour)
		}
	}
	return longest
}
