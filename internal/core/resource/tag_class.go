package resource

import (
	"regexp"
	"strings"
)

// A TagClass distinguishes tags that people choose from tags that tools create in large numbers.
type TagClass int

// These are the classes of tags. A list contains only plain tags, unless the request asks for other
// classes.
const (
	PlainTag    TagClass = iota
	ReferrerTag          // sha256-…: the referrers tag of another manifest
	DateTag              // …-20yymmdd
	EpochTag             // …-r<n>
)

var (
	dateTag  = regexp.MustCompile(`-20[0-9]{6}$`)
	epochTag = regexp.MustCompile(`-r[0-9]+$`)
)

// ClassOf returns the class of a tag with that name.
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
