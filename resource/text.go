package resource

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/fault"
)

// What text the service keeps. Each has a bound, so that no row is larger than
// a page of a list can carry.
const (
	maxName        = 128
	maxDescription = 512
	maxPattern     = 1024
	maxText        = 2048
)

var namePattern = regexp.MustCompile(`^[a-z0-9 ._-]{1,}$`)

// maxProblems is how many mistakes one answer tells of: over gRPC they travel in
// a header, of which clients take a few kilobytes.
const maxProblems = 20

// problems collects what is wrong with a resource, the first maxProblems of it.
type problems []fault.Violation

func (p *problems) add(field, text string) {
	if len(*p) < maxProblems {
		*p = append(*p, fault.Violation{Subject: field, Description: text})
	}
}

// err is nil if nothing was added.
func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return fault.Fields(p)
}

func (p *problems) name(s string) {
	switch {
	case !namePattern.MatchString(s):
		p.add("name", "name must match the pattern "+namePattern.String())
	case len(s) > maxName:
		p.add("name", "name must have at most 128 characters")
	}
}

func (p *problems) description(s string) {
	if !storable(s) || utf8.RuneCountInString(s) > maxDescription || strings.ContainsAny(s, "\t\n\f\r") {
		p.add("description", "description must be at most 512 characters without line breaks or tabs")
	}
}

// text checks a value kept word for word.
func (p *problems) text(field, s string) {
	if !storable(s) || len(s) > maxText {
		p.add(field, "must be valid UTF-8 without NUL, of at most 2048 bytes")
	}
}

// storable tells whether every database keeps s as it is.
func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// uid checks an optional reference.
func (p *problems) uid(field string, uid UID) {
	if uid != "" && !wellFormed(string(uid)) {
		p.add(field, "is not a uid")
	}
}

// matches checks a required value of a certain form.
func (p *problems) matches(field, s string, form *regexp.Regexp) {
	if !form.MatchString(s) {
		p.add(field, "must match the pattern "+form.String())
	}
}
