package vuln

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// An Exception says that findings are accepted. It is in a group, its home, and about the
// images of its target, which is the home or below it.
type Exception struct {
	UID           resource.UID `json:"uid"`
	Target        resource.UID `json:"target"`               // a group or a repo
	TagPattern    string       `json:"tagPattern,omitempty"` // in a repo: all tags of an image match it
	Digest        string       `json:"digest,omitempty"`     // in a repo: of an image, or of an index that lists it
	Images        []string     `json:"images,omitempty"`     // if Digest is that of an index, those of its images
	Advisory      string       `json:"advisory,omitempty"`   // a name of the finding
	PURL          string       `json:"purl,omitempty"`       // of the package, with or without a version
	Reason        string       `json:"reason"`
	Justification string       `json:"justification,omitempty"` // as OpenVEX has it
	ExpireTime    time.Time    `json:"expireTime,omitzero"`     // from then on it has no effect; zero is never
	Author        resource.UID `json:"author,omitempty"`
	Approver      resource.UID `json:"approver,omitempty"`
	ApproveTime   time.Time    `json:"approveTime,omitzero"` // before that it has no effect; zero if it was not approved
	Deleter       resource.UID `json:"deleter,omitempty"`
	DeleteTime    time.Time    `json:"deleteTime,omitzero"`
	CreateTime    time.Time    `json:"createTime"`
	UpdateTime    time.Time    `json:"updateTime"`
}

// Limits of exceptions.
const (
	MaxExceptions    = 1000 // of one group, and about one target
	maxTagPattern    = 128
	maxVulnerability = 256 // bytes of the name of a finding
)

// Justifications are those of OpenVEX, in the order of the API.
var Justifications = []string{
	"", "component_not_present", "vulnerable_code_not_present", "vulnerable_code_not_in_execute_path",
	"vulnerable_code_cannot_be_controlled_by_adversary", "inline_mitigations_already_exist",
}

var vulnerabilityPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/+-]*$`)

// Validate reports every field a caller must fix. It does not parse the package URL.
func (e Exception) Validate() error {
	var p problems
	p.RequiredUID("target_uid", e.Target)
	if !e.Home().Covers(e.Target) {
		p.Add("target_uid", "is not the group of the exception, and not below it")
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
		p.Add("advisory_id", "is required, unless there is a purl")
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
		p.Add("justification", "is none of OpenVEX")
	}
	return p.Err()
}

// Home returns the group that the exception is in.
func (e Exception) Home() resource.UID { return e.UID.Parent() }

// ActiveAt reports whether the exception has an effect at a time.
func (e Exception) ActiveAt(t time.Time) bool {
	return !e.ApproveTime.IsZero() && !t.Before(e.ApproveTime) &&
		(e.ExpireTime.IsZero() || t.Before(e.ExpireTime)) && (e.DeleteTime.IsZero() || t.Before(e.DeleteTime))
}

// MatchesTags reports whether the exception is about an image with these tags: all of them
// match the pattern, and there is one. If one were enough, whoever may push could extend
// the exception to any image with another tag.
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

// MatchesDigest reports whether the exception is about an image with that digest.
func (e Exception) MatchesDigest(digest string) bool {
	return e.Digest == "" || e.Digest == digest || slices.Contains(e.Images, digest)
}
