package resource

import (
	"regexp"
	"strings"
	"time"
)

// A Tag is a name in a repo for one of its manifests, until it is moved.
type Tag struct {
	UID        UID       `json:"uid"`
	Name       string    `json:"name"`
	Digest     string    `json:"digest"`
	Deprecated bool      `json:"deprecated,omitempty"`
	Bundles    []string  `json:"bundles,omitempty"`
	CreateTime time.Time `json:"createTime"`
	UpdateTime time.Time `json:"updateTime"` // when it was last pointed at another manifest
}

// A TagMove is one entry of a tag's history.
type TagMove struct {
	Seq    int64     `json:"seq"`
	Repo   UID       `json:"repo"`
	Name   string    `json:"name"`
	Digest string    `json:"digest,omitempty"` // "" where the tag was deleted
	Time   time.Time `json:"time"`
	Actor  Actor     `json:"actor,omitzero"`
}

// A TagClass tells apart the tags people choose from those tools make in
// numbers.
type TagClass int

// The classes of tags. All but the plain ones are left out of a list unless it
// asks for them.
const (
	PlainTag    TagClass = iota
	ReferrerTag          // sha256-…: what is about another manifest, as clients before referrers left it
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

// ValidTag tells whether a tag may have that name.
func ValidTag(name string) bool { return tagPattern.MatchString(name) }

// ValidDigest tells whether s is a digest of an algorithm the registry verifies.
func ValidDigest(s string) bool { return digestPattern.MatchString(s) }

// ValidRepoName tells whether a repo may have that name.
func ValidRepoName(name string) bool {
	return len(name) <= maxRepoName && repoNamePattern.MatchString(name)
}

// Validate reports every field a caller must fix.
func (t Tag) Validate() error {
	var p problems
	p.matches("name", t.Name, tagPattern)
	p.matches("digest", t.Digest, digestPattern)
	p.bundles(t.Bundles)
	return p.err()
}
