package resource

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// Limits of texts. They bound the size of a row, and so of a page of a list.
const (
	maxName        = 1024
	maxPathName    = 128 // of what the paths of repos are made of
	maxDescription = 512
	maxPattern     = 1024
	maxText        = 2048
)

var namePattern = regexp.MustCompile(`^[a-z0-9 ._-]{1,}$`)

// maxProblems is how many problems one response lists. With gRPC they are in a header, which
// clients limit to a few kilobytes.
const maxProblems = 20

// problems collects the first maxProblems problems of a resource.
type problems []fault.Violation

func (p *problems) add(field, text string) {
	if len(*p) < maxProblems {
		*p = append(*p, fault.Violation{Subject: field, Description: text})
	}
}

// err returns nil if there are no problems.
func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return fault.Fields(p)
}

// name checks a name that no path of a repo is made of.
func (p *problems) name(s string) { p.nameOf(s, maxName, "") }

// pathName checks the name of a group, which is a part of the paths of its repos.
func (p *problems) pathName(s string) {
	p.nameOf(s, maxPathName, ", because the paths of repos are made of it")
}

func (p *problems) nameOf(s string, most int, why string) {
	switch {
	case !namePattern.MatchString(s):
		p.add("name", "name must match the pattern "+namePattern.String())
	case len(s) > most:
		p.add("name", "name must have at most "+strconv.Itoa(most)+" characters"+why)
	}
}

func (p *problems) description(s string) {
	if !storable(s) || utf8.RuneCountInString(s) > maxDescription || strings.ContainsAny(s, "\t\n\f\r") {
		p.add("description", "description must be at most 512 characters without line breaks or tabs")
	}
}

// text checks a text that is stored as it is.
func (p *problems) text(field, s string) { p.longText(field, s, maxText) }

// longText checks a text of up to most bytes that is stored as it is.
func (p *problems) longText(field, s string, most int) {
	p.atMost(field, len(s), most, "bytes")
	if !storable(s) {
		p.add(field, "must be valid UTF-8 without NUL")
	}
}

// required checks that a text is not empty.
func (p *problems) required(field, s string) {
	if s == "" {
		p.add(field, "is required")
	}
}

// requiredText checks a text that must not be empty and is stored as it is.
func (p *problems) requiredText(field, s string) {
	p.required(field, s)
	p.text(field, s)
}

// within checks a number of an enum, from low to high. text says what it is not.
func within[T ~int32](p *problems, field string, v, low, high T, text string) {
	if v < low || v > high {
		p.add(field, text)
	}
}

// storable reports whether every database can store s.
func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// atMost checks how many of what there are. Whoever is refused learns both numbers, because they may not have
// written what they send.
func (p *problems) atMost(field string, n, most int, what string) {
	if n > most {
		p.add(field, "has "+strconv.Itoa(n)+" "+what+", and at most "+strconv.Itoa(most)+" are allowed")
	}
}

// uid checks an optional reference.
func (p *problems) uid(field string, uid UID) {
	if uid != "" && !wellFormed(string(uid)) {
		p.add(field, "is not a uid")
	}
}

// requiredUID checks a required reference.
func (p *problems) requiredUID(field string, uid UID) {
	p.required(field, string(uid))
	p.uid(field, uid)
}

// matches checks a required value with a pattern.
func (p *problems) matches(field, s string, form *regexp.Regexp) {
	if !form.MatchString(s) {
		p.add(field, "must match the pattern "+form.String())
	}
}
