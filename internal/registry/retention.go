package registry

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Retention says which images of the repos of a group, or of one repo, are kept. An image that no rule keeps goes when
// the rules are applied. The rules of the nearest place that has any apply, without merging.
//
// An image stays or goes with all its tags, with the manifests that it lists, and with what is attached to it.
type Retention struct {
	UID             resource.UID `json:"uid"`                       // of the group or repo that has them
	KeepNewest      int32        `json:"keepNewest,omitempty"`      // how many tagged images, the newest first
	KeepMatching    []string     `json:"keepMatching,omitempty"`    // those with a tag that matches one of these with path.Match
	KeepYoungerDays int32        `json:"keepYoungerDays,omitempty"` // those that were pushed or tagged since
	KeepPulledDays  int32        `json:"keepPulledDays,omitempty"`  // those that were pulled since
	KeepMinors      int32        `json:"keepMinors,omitempty"`      // those whose tags are versions of so many last minor versions
	KeepDeployed    bool         `json:"keepDeployed,omitempty"`    // those that run, as the inventory knows
	KeepSigned      bool         `json:"keepSigned,omitempty"`      // those that a signature is attached to
	KeepNeeded      bool         `json:"keepNeeded,omitempty"`      // those that another image of the organization is built on
	EveryDays       int32        `json:"everyDays,omitempty"`       // how often they are applied without being asked to; 0 is never
	UpdateTime      time.Time    `json:"updateTime"`
}

// Limits of retention.
const (
	maxKeepNewest   = 10_000
	maxKeepMinors   = 1_000
	maxKeepDays     = 3650
	maxKeepMatching = 50
)

// Validate reports every field a caller must fix. Rules that keep nothing are refused, because they would delete
// everything.
func (r Retention) Validate() error {
	var p problems
	p.RequiredUID("uid", r.UID)
	resource.Within(&p.Problems, "keep_newest", r.KeepNewest, 0, maxKeepNewest, "must be from 0 to "+strconv.Itoa(maxKeepNewest))
	resource.Within(&p.Problems, "keep_minors", r.KeepMinors, 0, maxKeepMinors, "must be from 0 to "+strconv.Itoa(maxKeepMinors))
	for field, days := range map[string]int32{
		"keep_younger_days": r.KeepYoungerDays, "keep_pulled_days": r.KeepPulledDays, "every_days": r.EveryDays,
	} {
		resource.Within(&p.Problems, field, days, 0, maxKeepDays, "must be from 0 to "+strconv.Itoa(maxKeepDays))
	}
	p.AtMost("keep_matching", len(r.KeepMatching), maxKeepMatching, "patterns")
	for _, pattern := range r.KeepMatching {
		p.tagPattern("keep_matching", pattern)
	}
	if len(p.Problems) == 0 && r.keepsNothing() {
		p.Add("keep_newest", "is required, or another rule: without one, every image would be deleted")
	}
	return p.Err()
}

// tagPattern checks a pattern of tags for path.Match.
func (p *problems) tagPattern(field, pattern string) {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" || len(pattern) > resource.MaxPathName || !resource.Storable(pattern) {
		p.Add(field, "must be patterns such as latest or nightly-*")
	}
}

func (r Retention) keepsNothing() bool {
	return r.KeepNewest+r.KeepYoungerDays+r.KeepPulledDays+r.KeepMinors == 0 && len(r.KeepMatching) == 0 &&
		!r.KeepDeployed && !r.KeepSigned && !r.KeepNeeded
}

// Matches reports whether a tag is one of those whose images are kept.
func (r Retention) Matches(tag string) bool {
	for _, pattern := range r.KeepMatching {
		if ok, err := path.Match(pattern, tag); ok && err == nil {
			return true
		}
	}
	return false
}

// A KeepReason is why an image is kept.
type KeepReason int

// The reasons to keep an image.
const (
	KeptNot       KeepReason = iota
	KeptImmutable            // it has a tag that the settings of the group make immutable
	KeptMatching
	KeptNewest
	KeptMinor
	KeptYounger
	KeptSigned
	KeptDeployed
	KeptPulled
	KeptNeeded
	KeptListed   // an index that stays lists it
	KeptTooLarge // too much is attached to it to go at once
)

// A MinorVersion is the first two numbers of a semantic version.
type MinorVersion struct{ Major, Minor int }

// Less reports whether v is before w.
func (v MinorVersion) Less(w MinorVersion) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

var versionTag = regexp.MustCompile(`^v?([0-9]{1,9})\.([0-9]{1,9})(\.[0-9]{1,9})?(-[0-9A-Za-z.-]+)?$`)

// ParseVersionTag returns the minor version that a tag such as v1.4.2, 1.4 or 1.5.0-rc.1 belongs to, and whether it is a
// pre-release. It returns false for a tag that is no version.
func ParseVersionTag(tag string) (v MinorVersion, pre, ok bool) {
	parts := versionTag.FindStringSubmatch(tag)
	if parts == nil {
		return v, false, false
	}
	v.Major, _ = strconv.Atoi(parts[1]) // at most nine digits
	v.Minor, _ = strconv.Atoi(parts[2])
	return v, parts[4] != "", true
}

var attachedTag = regexp.MustCompile(`^sha256-([0-9a-f]{64})(\.[a-z]+)?$`)

// AttachedTag returns the digest of the image that a tag such as sha256-….sig attaches its manifest to, and what comes
// after it. Clients attach signatures and SBOMs by such tags.
func AttachedTag(tag string) (subject, suffix string, ok bool) {
	parts := attachedTag.FindStringSubmatch(tag)
	if parts == nil {
		return "", "", false
	}
	return "sha256:" + parts[1], parts[2], true
}

// IsSignature reports whether an artifact of a type is a signature, of cosign or Notation.
func IsSignature(artifactType string) bool {
	return artifactType == "application/vnd.dev.cosign.artifact.sig.v1+json" ||
		artifactType == "application/vnd.cncf.notary.signature" ||
		strings.HasPrefix(artifactType, "application/vnd.dev.sigstore.bundle")
}

// A RetentionRun is what the event of one tells.
type RetentionRun struct {
	Repo    resource.UID `json:"repo"`
	Rules   resource.UID `json:"rules"` // of the place whose rules were applied
	Images  []string     `json:"images"`
	Tags    int          `json:"tags"`
	Bytes   int64        `json:"bytes"`
	Planned bool         `json:"planned,omitempty"` // nobody asked for it: the rules say how often
}
