package document

import "strings"

// A Projection selects the attributes of a response: RFC 7644, section 3.9.
type Projection struct {
	only, without []selection
}

// A selection is the name of an attribute, with its schema and its sub-attribute if given.
type selection struct{ schema, name, sub string }

// maxSelections is the greatest number of names in a projection.
const maxSelections = 100

// NewProjection returns the projection for the values of attributes and excludedAttributes.
func NewProjection(attributes, excluded []string) (p Projection, _ error) {
	if len(attributes)+len(excluded) > maxSelections {
		return p, Bad(InvalidValue, "There are more than %d names of attributes.", maxSelections)
	}
	for _, name := range attributes {
		if name = strings.TrimSpace(name); name != "" {
			p.only = append(p.only, parseSelection(name))
		}
	}
	for _, name := range excluded {
		if name = strings.TrimSpace(name); name != "" {
			p.without = append(p.without, parseSelection(name))
		}
	}
	return p, nil
}

func parseSelection(text string) (s selection) {
	if IsSchema(text) {
		if IsCore(text) {
			return s
		}
		return selection{schema: Name(text)}
	}
	if len(text) > len(extensionMark) && strings.EqualFold(text[:len(extensionMark)], extensionMark) {
		i := strings.LastIndexByte(text, ':')
		s.schema, text = Name(text[:i]), text[i+1:]
		if IsCore(s.schema) {
			s.schema = ""
		}
	}
	s.name, s.sub, _ = strings.Cut(text, ".")
	return s
}

// Excludes reports whether the projection leaves out an attribute of the core schema completely.
func (p Projection) Excludes(name string) bool {
	matches := func(s selection) bool { return s.schema == "" && strings.EqualFold(s.name, name) }
	for _, s := range p.without {
		if matches(s) && s.sub == "" {
			return true
		}
	}
	for _, s := range p.only {
		if matches(s) {
			return false
		}
	}
	return len(p.only) > 0
}

// Apply returns the selected attributes of a resource. id and schemas are always selected, and meta unless it is
// excluded.
func (p Projection) Apply(o Object) Object {
	out := o
	if len(p.only) > 0 {
		out = Object{}
		for _, name := range []string{"id", "schemas"} {
			if v, ok := o[name]; ok {
				out[name] = v
			}
		}
		for _, s := range p.only {
			s.copy(o, out)
		}
	}
	if len(p.without) > 0 {
		out = Clone(out)
		for _, s := range p.without {
			s.remove(out)
		}
	}
	return out
}

// copy adds the selected attribute of from to the object to.
func (s selection) copy(from, to Object) {
	if s.schema != "" {
		key, v, ok := Get(from, s.schema)
		inner, isObject := v.(Object)
		if !ok || !isObject {
			return
		}
		if s.name == "" {
			to[key] = v
			return
		}
		part, _ := to[key].(Object)
		if part == nil {
			part = Object{}
		}
		selection{name: s.name, sub: s.sub}.copy(inner, part)
		if len(part) > 0 {
			to[key] = part
		}
		return
	}
	key, v, ok := Get(from, s.name)
	if !ok {
		return
	}
	if s.sub == "" {
		to[key] = v
		return
	}
	to[key] = mergeSub(to[key], v, s.sub)
}

// mergeSub adds the sub-attribute sub of v to what was already selected of v.
func mergeSub(selected, v any, sub string) any {
	switch v := v.(type) {
	case Object:
		out, _ := selected.(Object)
		if out == nil {
			out = Object{}
		}
		if key, inner, ok := Get(v, sub); ok {
			out[key] = inner
		}
		return out
	case []any:
		out, _ := selected.([]any)
		if len(out) != len(v) {
			out = make([]any, len(v))
		}
		for i := range v {
			out[i] = mergeSub(out[i], v[i], sub)
		}
		return out
	}
	return v
}

func (s selection) remove(o Object) {
	if s.schema != "" {
		key, v, ok := Get(o, s.schema)
		if inner, isObject := v.(Object); ok && isObject && s.name != "" {
			selection{name: s.name, sub: s.sub}.remove(inner)
		} else if ok && s.name == "" {
			delete(o, key)
		}
		return
	}
	key, v, ok := Get(o, s.name)
	switch {
	case !ok || key == "id" || key == "schemas":
	case s.sub == "":
		delete(o, key)
	default:
		removeSub(v, s.sub)
	}
}

func removeSub(v any, sub string) {
	switch v := v.(type) {
	case Object:
		if key, _, ok := Get(v, sub); ok {
			delete(v, key)
		}
	case []any:
		for _, inner := range v {
			removeSub(inner, sub)
		}
	}
}
