package resource

import (
	"regexp"
	"strings"
	"time"
)

// A Tag is a name for a manifest in a repo.
type Tag struct {
	UID        UID       `json:"uid"`
	Name       string    `json:"name"`
	Digest     string    `json:"digest"`
	Deprecated bool      `json:"deprecated,omitempty"`
	Bundles    []string  `json:"bundles,omitempty"`
	CreateTime time.Time `json:"createTime"`
	UpdateTime time.Time `json:"updateTime"` // when it was last moved
}

// A TagMove is one entry of a tag's history.
type TagMove struct {
	Seq    int64     `json:"seq"`
	Repo   UID       `json:"repo"`
	Name   string    `json:"name"`
	Digest string    `json:"digest,omitempty"` // "" if the tag was deleted
	Time   time.Time `json:"time"`
	Actor  Actor     `json:"actor,omitzero"`
}

// A TagClass distinguishes tags that people choose from those that tools make in large numbers.
type TagClass int

// The classes of tags. A list only has plain tags, unless it asks for others.
const (
	PlainTag    TagClass = iota
	ReferrerTag          // sha256-…: the referrers tag of another manifest
	DateTag              // …-20yymmdd
	EpochTag             // …-r<n>
)

var (
	tagPattern    = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
	digestPattern = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)
	dateTag       = regexp.MustCompile(`-20[0-9]{6}$`)
	epochTag      = regexp.MustCompile(`-r[0-9]+$`)
)

// ClassOf returns the class of a tag of that name.
func ClassOf(tag string) TagClass {
	switch {
	case strings.HasPrefix(tag, "sha256-"), strings.HasPrefix(tag, "sha512-"):
		return ReferrerTag
	case dateTag.MatchString(tag):
		return DateTag
	case epochTag.MatchString(tag):
		return EpochTag
	}
	return PlainTag
}

// ValidTag reports whether a tag may have that name.
func ValidTag(name string) bool { return tagPattern.MatchString(name) }

// ValidDigest reports whether s is a digest with an algorithm that the registry supports.
func ValidDigest(s string) bool { return digestPattern.MatchString(s) }

// ValidRepoName reports whether a repo may have that name.
func ValidRepoName(name string) bool {
	return len(name) <= maxRepoName && repoNamePattern.MatchString(name)
}

// Validate reports every field a caller must fix.
func (t Tag) Validate() error {
	p := t.labels()
	p.matches("digest", t.Digest, digestPattern)
	return p.err()
}

// ValidateChange is Validate for the change of a tag that exists, which keeps its digest if t
// has none.
func (t Tag) ValidateChange() error {
	if t.Digest != "" {
		return t.Validate()
	}
	return t.labels().err()
}

// labels checks everything but the digest.
func (t Tag) labels() (p problems) {
	p.matches("name", t.Name, tagPattern)
	p.bundles(t.Bundles)
	return p
}
