package vuln

import (
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A PullRule refuses pulls of images with findings, or of images without a valid signature. It belongs to a group, its
// home, and applies to the images of its target. The target is the home, or a group or repo below it.
type PullRule struct {
	UID           resource.UID   `json:"uid"`
	Target        resource.UID   `json:"target"` // a group or a repo
	Description   string         `json:"description,omitempty"`
	MinSeverity   int32          `json:"minSeverity,omitempty"`   // only findings of at least this severity; 0 is any
	Fixable       bool           `json:"fixable,omitempty"`       // only findings with a fixed version
	KEV           bool           `json:"kev,omitempty"`           // only findings that are known to be exploited
	GraceDays     int32          `json:"graceDays,omitempty"`     // only findings first seen at least this many days ago
	Exempt        []resource.UID `json:"exempt,omitempty"`        // identities that the rule never refuses
	RefuseUnknown bool           `json:"refuseUnknown,omitempty"` // also refuses images with unknown packages
	Unsigned      bool           `json:"unsigned,omitempty"`      // refuses unsigned images, regardless of findings

	UnknownSeverity UnknownSeverity `json:"unknownSeverity,omitempty"` // whether findings of unknown severity pass

	Enforce    bool      `json:"enforce,omitempty"` // if false, the rule refuses nothing
	CreateTime time.Time `json:"createTime"`
	UpdateTime time.Time `json:"updateTime"`
}

// An UnknownSeverity says how a rule treats findings of unknown severity.
type UnknownSeverity string

// The ways to treat findings of unknown severity.
const (
	UnknownSeverityDefault UnknownSeverity = "" // they pass if the rule has a minimum severity
	UnknownSeverityAllow   UnknownSeverity = "allow"
	UnknownSeverityRefuse  UnknownSeverity = "refuse"
)

// RefusesUnknownSeverity reports whether the rule also refuses findings of unknown severity.
func (r PullRule) RefusesUnknownSeverity() bool {
	if r.UnknownSeverity == UnknownSeverityDefault {
		return r.MinSeverity == 0
	}
	return r.UnknownSeverity == UnknownSeverityRefuse
}

// Limits of rules.
const (
	MaxPullRules  = 50 // maximum number per group
	maxSeverity   = 4
	maxGraceDays  = 3650
	maxExemptions = 100
)

// Validate returns an error that names every invalid field.
func (r PullRule) Validate() error {
	var p problems
	p.RequiredUID("target_uid", r.Target)
	if !r.Home().Covers(r.Target) {
		p.Add("target_uid", "must be the group of the rule, or a group or repo below it")
	}
	p.Description(r.Description)
	resource.Within(&p.Problems, "min_severity", r.MinSeverity, 0, maxSeverity, "is not a severity")
	resource.Within(&p.Problems, "grace_days", r.GraceDays, 0, maxGraceDays, "must be from 0 to 3650")
	if r.Unsigned && (r.MinSeverity != 0 || r.Fixable || r.KEV || r.GraceDays != 0 || r.RefuseUnknown ||
		r.UnknownSeverity != UnknownSeverityDefault) {
		p.Add("unsigned", "cannot be combined with conditions about findings; make two rules")
	}
	p.AtMost("exempt_uids", len(r.Exempt), maxExemptions, "identities")
	for _, uid := range r.Exempt {
		p.RequiredUID("exempt_uids", uid)
	}
	return p.Err()
}

// Home returns the group that contains the rule.
func (r PullRule) Home() resource.UID { return r.UID.Parent() }

// Exempts reports whether the rule exempts an identity, so that it never refuses its pulls.
func (r PullRule) Exempts(identity resource.UID) bool {
	return identity != "" && slices.Contains(r.Exempt, identity)
}
