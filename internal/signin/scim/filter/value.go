package filter

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
)

// value reads a JSON string, number, boolean or null.
func (p *parser) value() (any, error) {
	p.skipSpace()
	start := p.at
	if p.at < len(p.text) && p.text[p.at] == '"' {
		for p.at++; p.at < len(p.text) && p.text[p.at] != '"'; p.at++ {
			if p.text[p.at] == '\\' {
				p.at++
			}
		}
		p.at = min(p.at+1, len(p.text))
	} else {
		for p.at < len(p.text) && !strings.ContainsRune(" ()[]", rune(p.text[p.at])) {
			p.at++
		}
	}
	raw := p.text[start:p.at]
	switch strings.ToLower(raw) { // some clients write True
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	dec := json.NewDecoder(strings.NewReader(raw))
	dec.UseNumber()
	var v any
	if raw == "" || dec.Decode(&v) != nil || dec.More() {
		return nil, p.fail("A value such as \"text\", 1 or true is expected at position %d.", start+1)
	}
	switch v.(type) {
	case string, json.Number, nil:
		return v, nil
	}
	return nil, p.fail("A value such as \"text\", 1 or true is expected at position %d.", start+1)
}

// checkValue returns an error if an operator cannot be used with a value.
func (p *parser) checkValue(op Op, value any) error {
	_, text := value.(string)
	_, number := value.(json.Number)
	switch op {
	case Contains, StartsWith, EndsWith:
		if !text {
			return p.fail("The operator %s needs a text in quotes.", op)
		}
	case Greater, GreaterOrEqual, Less, LessOrEqual:
		if !text && !number {
			return p.fail("The operator %s needs a text or a number.", op)
		}
	}
	return nil
}

// Matches reports whether a resource, or one value of a multi-valued attribute, satisfies the filter.
func (f *Filter) Matches(o document.Object) bool {
	switch f.Op {
	case And:
		return f.Left.Matches(o) && f.Right.Matches(o)
	case Or:
		return f.Left.Matches(o) || f.Right.Matches(o)
	case Not:
		return !f.Left.Matches(o)
	case NotEqual:
		positive := *f
		positive.Op = Equal
		return !positive.Matches(o)
	}
	values := f.Path.Find(o)
	if f.Op == Equal && f.Value == nil {
		return len(values) == 0
	}
	for _, v := range values {
		if f.compare(v) {
			return true
		}
	}
	return false
}

// Find returns the values at a path. The value of a complex attribute without a sub-attribute is the whole object.
func (p Path) Find(o document.Object) []any {
	if p.Schema != "" {
		_, v, _ := document.Get(o, p.Schema)
		extension, ok := v.(document.Object)
		if !ok {
			return nil
		}
		if p.Attribute == "" {
			return []any{extension}
		}
		o = extension
	}
	_, v, ok := document.Get(o, p.Attribute)
	if !ok {
		return nil
	}
	values, several := v.([]any)
	if !several {
		values = []any{v}
	}
	var found []any
	for _, v := range values {
		if p.Values != nil && !p.Values.Matches(AsObject(v)) {
			continue
		}
		if p.Sub == "" {
			found = append(found, v)
			continue
		}
		if complexValue, ok := v.(document.Object); ok {
			if _, sub, ok := document.Get(complexValue, p.Sub); ok {
				found = append(found, sub)
			}
		}
	}
	return found
}

// AsObject returns a value of a multi-valued attribute as an object. A simple value becomes the sub-attribute value.
func AsObject(v any) document.Object {
	if o, ok := v.(document.Object); ok {
		return o
	}
	return document.Object{"value": v}
}

// name returns the name of the compared attribute.
func (p Path) name() string {
	if p.Sub != "" {
		return p.Sub
	}
	return p.Attribute
}

// compare compares one value with the filter's value.
func (f *Filter) compare(v any) bool {
	if f.Op == Present {
		return isPresent(v)
	}
	if f.Op == Has {
		return true
	}
	if o, ok := v.(document.Object); ok { // a complex value is compared by its sub-attribute value
		_, v, _ = document.Get(o, "value")
	}
	switch want := f.Value.(type) {
	case bool:
		is, ok := v.(bool)
		return ok && is == want
	case json.Number:
		is, ok := v.(json.Number)
		if !ok {
			return false
		}
		left, errLeft := is.Float64()
		right, errRight := want.Float64()
		return errLeft == nil && errRight == nil && f.Op.holds(left == right, left < right)
	case string:
		is, ok := v.(string)
		if b, isBool := v.(bool); isBool && f.Op == Equal { // some clients write active eq "True"
			return strings.EqualFold(want, "true") && b || strings.EqualFold(want, "false") && !b
		}
		return ok && f.Op.holdsText(is, want, document.IsCaseExact(f.Path.name()))
	}
	return false
}

func isPresent(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case string:
		return v != ""
	case document.Object:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	return true
}

// holds reports whether an operator of order holds for two values.
func (op Op) holds(equal, less bool) bool {
	switch op {
	case Equal:
		return equal
	case Greater:
		return !equal && !less
	case GreaterOrEqual:
		return equal || !less
	case Less:
		return less
	case LessOrEqual:
		return less || equal
	}
	return false
}

func (op Op) holdsText(is, want string, exact bool) bool {
	if !exact {
		is, want = strings.ToLower(is), strings.ToLower(want)
	}
	switch op {
	case Contains:
		return strings.Contains(is, want)
	case StartsWith:
		return strings.HasPrefix(is, want)
	case EndsWith:
		return strings.HasSuffix(is, want)
	}
	left, err := time.Parse(time.RFC3339, strings.ToUpper(is))
	if err == nil {
		if right, err := time.Parse(time.RFC3339, strings.ToUpper(want)); err == nil {
			return op.holds(left.Equal(right), left.Before(right))
		}
	}
	return op.holds(is == want, is < want)
}

// Required returns the comparisons that every match satisfies: the parts of the filter that and joins.
func (f *Filter) Required() []*Filter {
	if f == nil {
		return nil
	}
	if f.Op == And {
		return append(f.Left.Required(), f.Right.Required()...)
	}
	return []*Filter{f}
}

// EqualTo returns the text to which the filter compares an attribute with eq, and false if it does something else. sub
// is the name of a part of the attribute's values, which the filter may also name in brackets, or "".
func (f *Filter) EqualTo(attribute, sub string) (string, bool) {
	p := f.Path
	if f.Op == Has && sub != "" && p.Schema == "" && p.Sub == "" && strings.EqualFold(p.Attribute, attribute) {
		return p.Values.EqualTo(sub, "")
	}
	if f.Op != Equal || p.Schema != "" || p.Values != nil || !strings.EqualFold(p.Sub, sub) ||
		!strings.EqualFold(p.Attribute, attribute) {
		return "", false
	}
	text, ok := f.Value.(string)
	return text, ok
}

// Mentions returns how often a filter names an attribute of the resource.
func (f *Filter) Mentions(attribute string) (n int) {
	if f == nil {
		return 0
	}
	if strings.EqualFold(f.Path.Attribute, attribute) {
		n = 1
	}
	return n + f.Left.Mentions(attribute) + f.Right.Mentions(attribute)
}
