package resource

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// These are the limits for texts. They bound the size of a row, and so the size of a page of a
// list.
const (
	MaxName        = 1024
	MaxPathName    = 128 // name of a group or repo, which is part of paths
	maxDescription = 512
	maxPattern     = 1024
	MaxText        = 2048
)

var namePattern = regexp.MustCompile(`^[a-z0-9 ._-]{1,}$`)

// maxProblems is the largest number of problems in one response. With gRPC they are in a header, which
// clients limit to a few kilobytes.
const maxProblems = 20

// Problems collects the first maxProblems problems in a resource.
type Problems []fault.Violation

// Add adds a problem with a field, unless there are maxProblems already.
func (p *Problems) Add(field, text string) {
	if len(*p) < maxProblems {
		*p = append(*p, fault.Violation{Subject: field, Description: text})
	}
}

// Err returns an error with all problems, or nil if there are none.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	return fault.Fields(p)
}

// Name checks a name that is not part of the paths of repos.
func (p *Problems) Name(s string) { p.nameOf(s, MaxName, "") }

// PathName checks the name of a group, which is a part of the paths of its repos.
func (p *Problems) PathName(s string) {
	p.nameOf(s, MaxPathName, ", because the paths of repos are made of it")
}

func (p *Problems) nameOf(s string, most int, why string) {
	switch {
	case !namePattern.MatchString(s):
		p.Add("name", "name must match the pattern "+namePattern.String())
	case len(s) > most:
		p.Add("name", "name must have at most "+strconv.Itoa(most)+" characters"+why)
	}
}

// Description checks a description: at most 512 characters, without line breaks and tabs.
func (p *Problems) Description(s string) {
	if !Storable(s) || utf8.RuneCountInString(s) > maxDescription || strings.ContainsAny(s, "\t\n\f\r") {
		p.Add("description", "description must be at most 512 characters without line breaks or tabs")
	}
}

// Text checks a text that is stored unchanged.
func (p *Problems) Text(field, s string) { p.LongText(field, s, MaxText) }

// LongText checks a text of up to most bytes that is stored unchanged.
func (p *Problems) LongText(field, s string, most int) {
	p.AtMost(field, len(s), most, "bytes")
	if !Storable(s) {
		p.Add(field, "must be valid UTF-8 without NUL")
	}
}

// Required checks that a text is not empty.
func (p *Problems) Required(field, s string) {
	if s == "" {
		p.Add(field, "is required")
	}
}

// RequiredText checks a text that must not be empty and is stored unchanged.
func (p *Problems) RequiredText(field, s string) {
	p.Required(field, s)
	p.Text(field, s)
}

// Within checks that a value of an enum is between low and high. text is the message if it is not.
func Within[T ~int32](p *Problems, field string, v, low, high T, text string) {
	if v < low || v > high {
		p.Add(field, text)
	}
}

// Storable reports whether every database can store s.
func Storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// AtMost checks the number of elements. The error contains both numbers, because the
// person who reads it may not have written the request.
func (p *Problems) AtMost(field string, n, most int, what string) {
	if n > most {
		p.Add(field, "has "+strconv.Itoa(n)+" "+what+", and at most "+strconv.Itoa(most)+" are allowed")
	}
}

// UID checks an optional reference.
func (p *Problems) UID(field string, uid UID) {
	if uid != "" && !WellFormed(string(uid)) {
		p.Add(field, "is not a uid")
	}
}

// RequiredUID checks a required reference.
func (p *Problems) RequiredUID(field string, uid UID) {
	p.Required(field, string(uid))
	p.UID(field, uid)
}

// Matches checks a required value with a pattern.
func (p *Problems) Matches(field, s string, form *regexp.Regexp) {
	if !form.MatchString(s) {
		p.Add(field, "must match the pattern "+form.String())
	}
}
