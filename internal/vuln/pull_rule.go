package vuln

import (
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A PullRule refuses pulls of images with findings, or of images that no signer has signed.
// It is in a group, its home, and about the images of its target, which is the home or below
// it.
type PullRule struct {
	UID           resource.UID   `json:"uid"`
	Target        resource.UID   `json:"target"` // a group or a repo
	Description   string         `json:"description,omitempty"`
	MinSeverity   int32          `json:"minSeverity,omitempty"`   // only findings that are at least so bad; 0 is all
	Fixable       bool           `json:"fixable,omitempty"`       // only findings that are fixed in some version
	KEV           bool           `json:"kev,omitempty"`           // only findings that are known to be exploited
	GraceDays     int32          `json:"graceDays,omitempty"`     // only findings that were first seen so long ago
	Exempt        []resource.UID `json:"exempt,omitempty"`        // identities that are not refused anything
	RefuseUnknown bool           `json:"refuseUnknown,omitempty"` // images whose packages are not known
	Unsigned      bool           `json:"unsigned,omitempty"`      // images that no signer has signed, and nothing about findings
	Enforce       bool           `json:"enforce,omitempty"`       // otherwise nothing is refused
	CreateTime    time.Time      `json:"createTime"`
	UpdateTime    time.Time      `json:"updateTime"`
}

// Limits of rules.
const (
	MaxPullRules  = 50 // of one group
	maxSeverity   = 4
	maxGraceDays  = 3650
	maxExemptions = 100
)

// Validate reports every field a caller must fix.
func (r PullRule) Validate() error {
	var p problems
	p.RequiredUID("target_uid", r.Target)
	if !r.Home().Covers(r.Target) {
		p.Add("target_uid", "is not the group of the rule, and not below it")
	}
	p.Description(r.Description)
	resource.Within(&p.Problems, "min_severity", r.MinSeverity, 0, maxSeverity, "is not a severity")
	resource.Within(&p.Problems, "grace_days", r.GraceDays, 0, maxGraceDays, "must be from 0 to 3650")
	if r.Unsigned && (r.MinSeverity != 0 || r.Fixable || r.KEV || r.GraceDays != 0 || r.RefuseUnknown) {
		p.Add("unsigned", "a rule about signatures has no conditions about findings: make two rules")
	}
	p.AtMost("exempt_uids", len(r.Exempt), maxExemptions, "identities")
	for _, uid := range r.Exempt {
		p.RequiredUID("exempt_uids", uid)
	}
	return p.Err()
}

// Home returns the group that the rule is in.
func (r PullRule) Home() resource.UID { return r.UID.Parent() }

// Exempts reports whether an identity is not refused anything.
func (r PullRule) Exempts(identity resource.UID) bool {
	return identity != "" && slices.Contains(r.Exempt, identity)
}
