package vuln

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An Exception accepts findings. It belongs to a group, its home, and applies to the images of its target. The target
// is the home, or a group or repo below it.
type Exception struct {
	UID           resource.UID `json:"uid"`
	Target        resource.UID `json:"target"`               // a group or a repo
	TagPattern    string       `json:"tagPattern,omitempty"` // every tag of an image must match; Target is a repo
	Digest        string       `json:"digest,omitempty"`     // an image, or an index with the image; Target is a repo
	Images        []string     `json:"images,omitempty"`     // digests of the images that the index Digest lists
	Advisory      string       `json:"advisory,omitempty"`   // ID or alias of the finding's advisory
	PURL          string       `json:"purl,omitempty"`       // package URL, with or without a version
	Reason        string       `json:"reason"`
	Justification string       `json:"justification,omitempty"` // one of Justifications
	ExpireTime    time.Time    `json:"expireTime,omitzero"`     // time at which the exception ends; zero means never
	Author        resource.UID `json:"author,omitempty"`
	Approver      resource.UID `json:"approver,omitempty"`
	ApproveTime   time.Time    `json:"approveTime,omitzero"` // start of its effect; zero means not approved
	Deleter       resource.UID `json:"deleter,omitempty"`
	DeleteTime    time.Time    `json:"deleteTime,omitzero"`
	CreateTime    time.Time    `json:"createTime"`
	UpdateTime    time.Time    `json:"updateTime"`
}

// Limits of exceptions.
const (
	MaxExceptions    = 1000 // maximum number per group, and per target
	maxTagPattern    = 128  // maximum length in bytes
	maxVulnerability = 256  // maximum length in bytes of the ID or alias of a finding
)

// Justifications are the justifications of OpenVEX, in the order of the API's enum.
var Justifications = []string{
	"", "component_not_present", "vulnerable_code_not_present", "vulnerable_code_not_in_execute_path",
	"vulnerable_code_cannot_be_controlled_by_adversary", "inline_mitigations_already_exist",
}

var vulnerabilityPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/+-]*$`)

// Validate returns an error that names every invalid field. It does not parse the package URL.
func (e Exception) Validate() error {
	var p problems
	p.RequiredUID("target_uid", e.Target)
	if !e.Home().Covers(e.Target) {
		p.Add("target_uid", "must be the group of the exception, or a group or repo below it")
	}
	if e.TagPattern != "" {
		p.AtMost("tag_pattern", len(e.TagPattern), maxTagPattern, "bytes")
		if _, err := path.Match(e.TagPattern, "x"); err != nil || !resource.Storable(e.TagPattern) {
			p.Add("tag_pattern", "must be a pattern such as latest or 1.2.*")
		}
	}
	if e.Digest != "" {
		p.Matches("digest", e.Digest, resource.DigestPattern)
	}
	if e.TagPattern != "" && e.Digest != "" {
		p.Add("digest", "cannot be combined with tag_pattern")
	}
	if e.Advisory == "" && e.PURL == "" {
		p.Add("advisory_id", "is required unless purl is set")
	}
	if e.Advisory != "" {
		p.AtMost("advisory_id", len(e.Advisory), maxVulnerability, "bytes")
		p.Matches("advisory_id", e.Advisory, vulnerabilityPattern)
	}
	p.Text("purl", e.PURL)
	if strings.TrimSpace(e.Reason) == "" {
		p.Add("reason", "is required")
	}
	p.Text("reason", e.Reason)
	if !slices.Contains(Justifications, e.Justification) {
		p.Add("justification", "is not a justification of OpenVEX")
	}
	return p.Err()
}

// Home returns the group that contains the exception.
func (e Exception) Home() resource.UID { return e.UID.Parent() }

// ActiveAt reports whether the exception is approved, not expired and not deleted at time t.
func (e Exception) ActiveAt(t time.Time) bool {
	return !e.ApproveTime.IsZero() && !t.Before(e.ApproveTime) &&
		(e.ExpireTime.IsZero() || t.Before(e.ExpireTime)) && (e.DeleteTime.IsZero() || t.Before(e.DeleteTime))
}

// MatchesTags reports whether the exception applies to an image with these tags: there is at least one tag, and every
// tag matches the pattern. If one matching tag were enough, anyone with push access could extend the exception to any
// image by adding a tag.
func (e Exception) MatchesTags(tags []string) bool {
	if e.TagPattern == "" {
		return true
	}
	for _, tag := range tags {
		if ok, err := path.Match(e.TagPattern, tag); !ok || err != nil {
			return false
		}
	}
	return len(tags) > 0
}

// MatchesDigest reports whether the exception applies to an image with that digest.
func (e Exception) MatchesDigest(digest string) bool {
	return e.Digest == "" || e.Digest == digest || slices.Contains(e.Images, digest)
}
