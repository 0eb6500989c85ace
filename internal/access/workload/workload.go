// Package workload contains presets for the workloads of known platforms: which fields
// describe a job of a platform, and which rule accepts the tokens of the job.
//
// The presets are data, in platforms.json. The command reads them through this package,
// and the console reads the file (console/src/areas/workloads/platforms.ts).
package workload

import (
	_ "embed"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

//go:embed platforms.json
var data []byte

// A Platform is a preset for the workloads of a platform.
type Platform struct {
	ID     string  `json:"id"`
	Title  string  `json:"title"`
	Issuer string  `json:"issuer"` // default issuer of tokens; "" if there is none
	Fields []Field `json:"fields"`

	ExactlyOne []string `json:"exactlyOne"` // a job has exactly one of these fields
	AtLeastOne []string `json:"atLeastOne"` // a job has one or more of these fields
	NotBoth    []string `json:"notBoth"`    // a job has at most one of these fields

	Name     string            `json:"name"`     // template of the identity's default name
	Context  []choice          `json:"context"`  // templates of the value {context}
	Subjects []subject         `json:"subjects"` // templates of the subject
	Claims   map[string]string `json:"claims"`   // for each further claim, the field whose value the claim must have
}

// A Field is a property of a job. The command has a flag for each field with a help text,
// and the console has an input for each field with a label.
type Field struct {
	Name     string `json:"name"`
	Help     string `json:"help"`
	Label    string `json:"label"`
	Example  string `json:"example"`
	Default  string `json:"default"` // value in a token that is made for tests
	Required bool   `json:"required"`
	Pattern  string `json:"pattern"` // regular expression for the whole value; "" for any value
	Number   bool   `json:"number"`  // whether the value must consist of digits
}

// A choice is a template that is used if the field If has a value, or always if If is "".
type choice struct {
	If   string `json:"if"`
	Text string `json:"text"`
}

// A subject is a template of an exact subject, or of a regular expression for subjects.
type subject struct {
	If      string `json:"if"`
	Exact   string `json:"exact"`
	Pattern string `json:"pattern"`
}

// A Job contains the values of the fields of a job. A field without a value is "" or missing. A field whose help text
// names no value is a switch; its value is "true" if it is on.
type Job map[string]string

// A Rule describes the tokens of a job. Either Subject or Pattern is set.
type Rule struct {
	Name             string // default name of the identity
	Subject, Pattern string
	Claims           map[string]string // further claims that a token must have
}

var platforms = sync.OnceValue(func() (all []Platform) {
	if err := json.Unmarshal(data, &all); err != nil {
		panic("platforms.json: " + err.Error())
	}
	return all
})

// Platforms returns the known platforms. The caller must not change them.
func Platforms() []Platform { return platforms() }

// Rule returns the rule that accepts the tokens of a job. The job must be valid. If several
// templates apply, the first is used.
func (p Platform) Rule(j Job) Rule {
	r := Rule{Name: fill(p.Name, j, "", asIs), Claims: map[string]string{}}
	context := p.ContextOf(j)
	for _, s := range p.Subjects {
		if s.If == "" || j[s.If] != "" {
			r.Subject = fill(s.Exact, j, context, asIs)
			r.Pattern = fill(s.Pattern, j, context, regexp.QuoteMeta)
			break
		}
	}
	for claim, field := range p.Claims {
		if value := j[field]; value != "" {
			r.Claims[claim] = value
		}
	}
	return r
}

// ContextOf returns the part of the subject that says what a job runs for, such as a
// branch, or "" if the platform has no such part.
func (p Platform) ContextOf(j Job) string {
	for _, c := range p.Context {
		if c.If == "" || j[c.If] != "" {
			return fill(c.Text, j, "", asIs)
		}
	}
	return ""
}

func asIs(s string) string { return s }

// A placeholder is the name of a field or "context". A dot and a number select a part of a
// value with slashes. An exclamation mark writes colons as %3A, as GitHub does. The text
// after a bar replaces an empty value, and is not quoted.
var placeholder = regexp.MustCompile(`\{([a-z-]+)(?:\.([0-9]))?(!)?(?:\|([^}]*))?\}`)

// fill replaces the placeholders of a template with the values of a job.
func fill(template string, j Job, context string, quote func(string) string) string {
	return placeholder.ReplaceAllStringFunc(template, func(text string) string {
		m := placeholder.FindStringSubmatch(text)
		name, part, escaped, otherwise := m[1], m[2], m[3], m[4]
		value := j[name]
		if name == "context" {
			value = context
		}
		if part != "" {
			i, _ := strconv.Atoi(part) // part is one digit
			parts := append(strings.Split(value, "/"), make([]string, i+1)...)
			value = parts[i]
		}
		if escaped != "" {
			value = strings.ReplaceAll(value, ":", "%3A")
		}
		if value == "" {
			return otherwise
		}
		return quote(value)
	})
}
