package registry

import (
	"regexp"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Tag is a name for a manifest in a repo.
type Tag struct {
	UID        resource.UID `json:"uid"`
	Name       string       `json:"name"`
	Digest     string       `json:"digest"`
	Deprecated bool         `json:"deprecated,omitempty"`
	Bundles    []string     `json:"bundles,omitempty"`
	CreateTime time.Time    `json:"createTime"`
	UpdateTime time.Time    `json:"updateTime"` // time at which the tag last moved to another digest
}

// A TagMove is one entry in the history of a tag.
type TagMove struct {
	Seq    int64          `json:"seq"`
	Repo   resource.UID   `json:"repo"`
	Name   string         `json:"name"`
	Digest string         `json:"digest,omitempty"` // digest to which the tag moved; "" if it was deleted
	Time   time.Time      `json:"time"`
	Actor  resource.Actor `json:"actor,omitzero"`
}

var tagPattern = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

// ValidTag reports whether name is a valid name of a tag.
func ValidTag(name string) bool { return tagPattern.MatchString(name) }

// ValidRepoName reports whether name is a valid name of a repo.
func ValidRepoName(name string) bool {
	return len(name) <= maxRepoName && repoNamePattern.MatchString(name)
}

// Validate reports every field a caller must fix.
func (t Tag) Validate() error {
	p := t.labels()
	p.Matches("digest", t.Digest, resource.DigestPattern)
	return p.Err()
}

// ValidateChange is Validate for a change of an existing tag, whose digest is optional. Without a digest, the tag
// keeps its digest.
func (t Tag) ValidateChange() error {
	if t.Digest != "" {
		return t.Validate()
	}
	return t.labels().Err()
}

// labels checks all fields except the digest.
func (t Tag) labels() (p problems) {
	p.Matches("name", t.Name, tagPattern)
	p.bundles(t.Bundles)
	return p
}
