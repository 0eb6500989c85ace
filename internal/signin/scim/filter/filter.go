// Package filter parses SCIM filters and paths (RFC 7644, sections 3.4.2.2 and 3.5.2), and evaluates them. The limits
// on length, depth and terms bound the work for each resource.
package filter

import (
	"strings"

	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
)

// The limits of a filter.
const (
	MaxLength = 4096 // bytes
	MaxDepth  = 16   // nested parentheses, brackets and negations
	MaxTerms  = 64   // comparisons
)

// An Op is an operator.
type Op string

// The operators. Has is the operator of a value path, and Present is pr.
const (
	And            Op = "and"
	Or             Op = "or"
	Not            Op = "not"
	Has            Op = "[]"
	Present        Op = "pr"
	Equal          Op = "eq"
	NotEqual       Op = "ne"
	Contains       Op = "co"
	StartsWith     Op = "sw"
	EndsWith       Op = "ew"
	Greater        Op = "gt"
	GreaterOrEqual Op = "ge"
	Less           Op = "lt"
	LessOrEqual    Op = "le"
)

// A Filter is a node of a filter's tree. And and Or have Left and Right, Not has Left, and all others have a Path.
// Comparisons also have a Value: a string, bool, json.Number or nil.
type Filter struct {
	Op          Op
	Left, Right *Filter
	Path        Path
	Value       any
}

// A Path names an attribute: [schema:]attribute[filter].sub. Only Attribute is always set, except for the path of a
// whole extension, which has only a Schema.
type Path struct {
	Schema    string // an extension; "" for the core schema
	Attribute string
	Values    *Filter // selects values of a multi-valued attribute; nil selects all
	Sub       string
}

// Parse parses a filter. It returns a *document.Error with the type invalidFilter if the text is not a filter within
// the limits.
func Parse(text string) (*Filter, error) {
	p := &parser{text: text, kind: document.InvalidFilter}
	if len(text) > MaxLength {
		return nil, p.fail("The filter has more than %d bytes.", MaxLength)
	}
	f, err := p.or(0)
	if err != nil {
		return nil, err
	}
	if p.skipSpace(); p.at < len(p.text) {
		return nil, p.fail("The filter cannot be read from position %d.", p.at+1)
	}
	return f, nil
}

// ParsePath parses the path of a PATCH operation. It returns a *document.Error with the type invalidPath if the text is
// not a path within the limits.
func ParsePath(text string) (Path, error) {
	p := &parser{text: strings.TrimSpace(text), kind: document.InvalidPath}
	if len(text) > MaxLength {
		return Path{}, p.fail("The path has more than %d bytes.", MaxLength)
	}
	if document.IsSchema(p.text) {
		if document.IsCore(p.text) {
			return Path{}, p.fail("The path names the core schema and no attribute.")
		}
		return Path{Schema: document.Name(p.text)}, nil
	}
	path, err := p.path(0)
	if err == nil && p.at < len(p.text) {
		err = p.fail("The path cannot be read from position %d.", p.at+1)
	}
	return path, err
}

// A parser reads a text from left to right.
type parser struct {
	text  string
	at    int
	terms int
	kind  string // scimType of errors
}

func (p *parser) fail(format string, args ...any) error { return document.Bad(p.kind, format, args...) }

func (p *parser) skipSpace() {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
}

// word reads the keyword w, which a space, a bracket or the end must follow, and reports whether it was there.
func (p *parser) word(w string) bool {
	p.skipSpace()
	end := p.at + len(w)
	if end > len(p.text) || !strings.EqualFold(p.text[p.at:end], w) {
		return false
	}
	if end < len(p.text) && !strings.ContainsRune(" ()[]", rune(p.text[end])) {
		return false
	}
	p.at = end
	return true
}

func (p *parser) symbol(b byte) bool {
	p.skipSpace()
	if p.at < len(p.text) && p.text[p.at] == b {
		p.at++
		return true
	}
	return false
}

func (p *parser) or(depth int) (*Filter, error) { return p.joined(depth, Or, p.and) }

func (p *parser) and(depth int) (*Filter, error) { return p.joined(depth, And, p.term) }

// joined reads terms that op joins.
func (p *parser) joined(depth int, op Op, term func(int) (*Filter, error)) (*Filter, error) {
	left, err := term(depth)
	for err == nil && p.word(string(op)) {
		var right *Filter
		right, err = term(depth)
		left = &Filter{Op: op, Left: left, Right: right}
	}
	return left, err
}

func (p *parser) term(depth int) (*Filter, error) {
	if depth >= MaxDepth {
		return nil, p.fail("The filter is nested more than %d levels deep.", MaxDepth)
	}
	negated := false
	start := p.at
	if p.word("not") {
		p.skipSpace()
		if negated = p.at < len(p.text) && p.text[p.at] == '('; !negated {
			p.at = start // an attribute with the name not
		}
	}
	if !p.symbol('(') {
		return p.comparison(depth)
	}
	f, err := p.or(depth + 1)
	if err != nil {
		return nil, err
	}
	if !p.symbol(')') {
		return nil, p.fail("A closing parenthesis is missing at position %d.", p.at+1)
	}
	if negated {
		f = &Filter{Op: Not, Left: f}
	}
	return f, nil
}

var comparisons = []Op{
	Equal, NotEqual, Contains, StartsWith, EndsWith, Greater, GreaterOrEqual, Less, LessOrEqual,
}

func (p *parser) comparison(depth int) (*Filter, error) {
	if p.terms++; p.terms > MaxTerms {
		return nil, p.fail("The filter has more than %d comparisons.", MaxTerms)
	}
	path, err := p.path(depth)
	if err != nil {
		return nil, err
	}
	if p.word(string(Present)) {
		return &Filter{Op: Present, Path: path}, nil
	}
	for _, op := range comparisons {
		if !p.word(string(op)) {
			continue
		}
		value, err := p.value()
		if err == nil {
			err = p.checkValue(op, value)
		}
		return &Filter{Op: op, Path: path, Value: value}, err
	}
	if path.Values != nil && path.Sub == "" {
		return &Filter{Op: Has, Path: path}, nil
	}
	return nil, p.fail("An operator such as eq is missing at position %d.", p.at+1)
}

// path reads a path.
func (p *parser) path(depth int) (path Path, err error) {
	p.skipSpace()
	start := p.at
	for p.at < len(p.text) && isNameByte(p.text[p.at]) {
		p.at++
	}
	name := p.text[start:p.at]
	if strings.HasPrefix(strings.ToLower(name), "urn:") {
		i := strings.LastIndexByte(name, ':')
		path.Schema, name = document.Name(name[:i]), name[i+1:]
		if document.IsCore(path.Schema) {
			path.Schema = ""
		}
	}
	path.Attribute, path.Sub, _ = strings.Cut(name, ".")
	if !isName(path.Attribute) || strings.Contains(name, ".") && !isName(path.Sub) {
		return path, p.fail("The name of an attribute is expected at position %d.", start+1)
	}
	path.Attribute, path.Sub = document.Name(path.Attribute), document.Name(path.Sub)
	if p.at >= len(p.text) || p.text[p.at] != '[' {
		return path, nil
	}
	if path.Sub != "" {
		return path, p.fail("A filter of values cannot follow a sub-attribute (position %d).", p.at+1)
	}
	p.at++
	if path.Values, err = p.or(depth + 1); err != nil {
		return path, err
	}
	if !p.symbol(']') {
		return path, p.fail("A closing bracket is missing at position %d.", p.at+1)
	}
	if p.at < len(p.text) && p.text[p.at] == '.' {
		start := p.at + 1
		for p.at = start; p.at < len(p.text) && isNameByte(p.text[p.at]); p.at++ {
		}
		if path.Sub = document.Name(p.text[start:p.at]); !isName(path.Sub) {
			return path, p.fail("The name of a sub-attribute is expected at position %d.", start+1)
		}
	}
	return path, nil
}

// isNameByte reports whether b can be part of an attribute, a schema, or the dot between attribute and sub-attribute.
func isNameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("-_$:.", b) >= 0
}

func isName(name string) bool {
	return name != "" && !strings.ContainsAny(name, ".:") && (name[0] < '0' || name[0] > '9') && name[0] != '-'
}
