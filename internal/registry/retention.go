package registry

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Retention has the rules that select the images to keep in the repos of a group or in one repo. Applying the rules
// deletes every image that no rule keeps. The rules of a repo apply or, if it has none, the rules of the nearest
// group above it that has rules. Rules are not merged.
//
// An image is kept or deleted together with its tags, the manifests that it lists, and the artifacts attached to it.
type Retention struct {
	UID             resource.UID `json:"uid"`                       // UID of the group or repo that has these rules
	KeepNewest      int32        `json:"keepNewest,omitempty"`      // number of tagged images, newest first
	KeepMatching    []string     `json:"keepMatching,omitempty"`    // patterns, as for path.Match, of tags to keep
	KeepYoungerDays int32        `json:"keepYoungerDays,omitempty"` // days since the last push or tagging
	KeepPulledDays  int32        `json:"keepPulledDays,omitempty"`  // days since the last pull
	KeepMinors      int32        `json:"keepMinors,omitempty"`      // number of the latest minor versions in tags
	KeepDeployed    bool         `json:"keepDeployed,omitempty"`    // keep images that run, according to the inventory
	KeepSigned      bool         `json:"keepSigned,omitempty"`      // keep images that have an attached signature
	KeepNeeded      bool         `json:"keepNeeded,omitempty"`      // keep base images of the organization's images
	EveryDays       int32        `json:"everyDays,omitempty"`       // days between automatic runs; 0 means never
	UpdateTime      time.Time    `json:"updateTime"`
}

// Limits on retention rules.
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
	resource.Within(&p.Problems, "keep_newest", r.KeepNewest, 0, maxKeepNewest,
		"must be from 0 to "+strconv.Itoa(maxKeepNewest))
	resource.Within(&p.Problems, "keep_minors", r.KeepMinors, 0, maxKeepMinors,
		"must be from 0 to "+strconv.Itoa(maxKeepMinors))
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

// tagPattern checks that a pattern of tags is valid for path.Match.
func (p *problems) tagPattern(field, pattern string) {
	_, err := path.Match(pattern, "")
	if err != nil || pattern == "" || len(pattern) > resource.MaxPathName || !resource.Storable(pattern) {
		p.Add(field, "must be patterns such as latest or nightly-*")
	}
}

func (r Retention) keepsNothing() bool {
	return r.KeepNewest+r.KeepYoungerDays+r.KeepPulledDays+r.KeepMinors == 0 && len(r.KeepMatching) == 0 &&
		!r.KeepDeployed && !r.KeepSigned && !r.KeepNeeded
}

// Matches reports whether a tag matches one of the patterns in KeepMatching.
func (r Retention) Matches(tag string) bool {
	for _, pattern := range r.KeepMatching {
		if ok, err := path.Match(pattern, tag); ok && err == nil {
			return true
		}
	}
	return false
}

// A KeepReason is the reason to keep an image.
type KeepReason int

// The reasons to keep an image.
const (
	KeptNot       KeepReason = iota
	KeptImmutable            // the image has a tag that the settings of the group make immutable
	KeptMatching
	KeptNewest
	KeptMinor
	KeptYounger
	KeptSigned
	KeptDeployed
	KeptPulled
	KeptNeeded
	KeptListed   // an index that is kept lists the image
	KeptTooLarge // the image has more attached artifacts than one transaction can delete
)

// A MinorVersion is the first two numbers of a semantic version.
type MinorVersion struct{ Major, Minor int }

// Less reports whether v is before w.
func (v MinorVersion) Less(w MinorVersion) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

var versionTag = regexp.MustCompile(`^v?([0-9]{1,9})\.([0-9]{1,9})(\.[0-9]{1,9})?(-[0-9A-Za-z.-]+)?$`)

// ParseVersionTag returns the minor version of a tag such as v1.4.2, 1.4 or 1.5.0-rc.1. pre reports whether the version
// is a pre-release. ok is false if the tag is not a version.
func ParseVersionTag(tag string) (v MinorVersion, pre, ok bool) {
	parts := versionTag.FindStringSubmatch(tag)
	if parts == nil {
		return v, false, false
	}
	v.Major, _ = strconv.Atoi(parts[1]) // cannot fail, because there are at most nine digits
	v.Minor, _ = strconv.Atoi(parts[2])
	return v, parts[4] != "", true
}

var attachedTag = regexp.MustCompile(`^sha256-([0-9a-f]{64})(\.[a-z]+)?$`)

// AttachedTag parses a tag such as sha256-….sig, by which clients attach signatures and SBOMs to an image. It returns
// the digest of the image and the suffix. ok is false for other tags.
func AttachedTag(tag string) (subject, suffix string, ok bool) {
	parts := attachedTag.FindStringSubmatch(tag)
	if parts == nil {
		return "", "", false
	}
	return "sha256:" + parts[1], parts[2], true
}

// IsSignature reports whether an artifact type is the type of a signature by cosign, Notation or Sigstore.
func IsSignature(artifactType string) bool {
	return artifactType == "application/vnd.dev.cosign.artifact.sig.v1+json" ||
		artifactType == "application/vnd.cncf.notary.signature" ||
		strings.HasPrefix(artifactType, "application/vnd.dev.sigstore.bundle")
}

// A RetentionRun is the content of the event for one application of retention rules.
type RetentionRun struct {
	Repo    resource.UID `json:"repo"`
	Rules   resource.UID `json:"rules"` // the group or repo whose rules were applied
	Images  []string     `json:"images"`
	Tags    int          `json:"tags"`
	Bytes   int64        `json:"bytes"`
	Planned bool         `json:"planned,omitempty"` // whether the run was started automatically because of EveryDays
}
