package patch

import (
	"maps"
	"reflect"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/filter"
)

// set adds or replaces the value at a path of an object.
func (op Operation) set(target document.Object, path filter.Path, value any) error {
	key, v, exists := document.Get(target, path.Attribute)
	if path.Values != nil {
		return op.setSelected(target, key, v, path, value)
	}
	if path.Sub != "" {
		return op.setSub(target, key, v, path.Sub, value)
	}
	switch current := v.(type) {
	case []any:
		return op.setValues(target, key, current, value)
	case document.Object:
		if parts, ok := value.(document.Object); ok { // other sub-attributes stay
			merged := maps.Clone(current)
			maps.Copy(merged, parts)
			target[key] = merged
			return nil
		}
	}
	if !exists && document.IsMultiValued(key) {
		return op.setValues(target, key, nil, value)
	}
	target[key] = value
	return nil
}

// setValues adds values to a multi-valued attribute, or replaces all of its values.
func (op Operation) setValues(target document.Object, key string, current []any, value any) error {
	values, ok := value.([]any)
	if !ok {
		values = []any{value}
	}
	if op.Op == Replace {
		current = nil
	}
	if len(current)+len(values) > 2*document.MaxValues {
		return document.Bad(document.TooMany, "The attribute %s would have too many values.", key)
	}
	for _, v := range values {
		if !containsValue(current, v) {
			current = unsetPrimary(current, v)
			current = append(current, v)
		}
	}
	if delete(target, key); len(current) > 0 {
		target[key] = current
	}
	return nil
}

func containsValue(values []any, v any) bool {
	for _, other := range values {
		if reflect.DeepEqual(other, v) {
			return true
		}
	}
	return false
}

// unsetPrimary returns values without a primary one if the new value v is primary.
func unsetPrimary(values []any, v any) []any {
	o, ok := v.(document.Object)
	if primary, _ := o["primary"].(bool); !ok || !primary {
		return values
	}
	for _, other := range values {
		if o, ok := other.(document.Object); ok && o["primary"] == true {
			o["primary"] = false
		}
	}
	return values
}

// setSub sets a sub-attribute of a complex attribute, in all of its values if it has several.
func (op Operation) setSub(target document.Object, key string, v any, sub string, value any) error {
	switch current := v.(type) {
	case nil:
		inner := document.Object{sub: value}
		if target[key] = inner; document.IsMultiValued(key) {
			target[key] = []any{inner}
		}
		return nil
	case document.Object:
		subKey, _, _ := document.Get(current, sub)
		current[subKey] = value
		return nil
	case []any:
		for _, v := range current {
			if o, ok := v.(document.Object); ok {
				subKey, _, _ := document.Get(o, sub)
				o[subKey] = value
			}
		}
		return nil
	}
	return document.Bad(document.InvalidPath, "The attribute %s has no sub-attributes.", document.Short(key))
}

// setSelected changes the values of a multi-valued attribute that the path selects. If there are none, it adds a value
// with the sub-attributes that the filter requires, because directories set emails[type eq "work"].value before such an
// address exists.
func (op Operation) setSelected(target document.Object, key string, v any, path filter.Path, value any) error {
	values, ok := v.([]any)
	if !ok && v != nil {
		values = []any{v}
	}
	found := false
	for i, v := range values {
		o, isObject := v.(document.Object)
		if !path.Values.Matches(filter.AsObject(v)) {
			continue
		}
		found = true
		switch parts, ok := value.(document.Object); {
		case path.Sub != "" && isObject:
			subKey, _, _ := document.Get(o, path.Sub)
			o[subKey] = value
		case path.Sub == "" && isObject && ok && op.Op == Add:
			maps.Copy(o, parts)
		case path.Sub == "":
			values[i] = value
		default:
			return document.Bad(document.InvalidPath, "The values of %s have no sub-attributes.", document.Short(key))
		}
	}
	if !found {
		created, ok := implied(path.Values)
		if !ok {
			return document.Bad(document.NoTarget, "No value of %s matches the filter of the path.", document.Short(key))
		}
		if parts, isObject := value.(document.Object); isObject && path.Sub == "" {
			maps.Copy(created, parts)
		} else if path.Sub != "" {
			created[path.Sub] = value
		}
		if len(values) >= 2*document.MaxValues {
			return document.Bad(document.TooMany, "The attribute %s would have too many values.", key)
		}
		values = append(values, created)
	}
	target[key] = values
	return nil
}

// implied returns the value that a filter describes completely, such as {"type": "work"} for type eq "work".
func implied(f *filter.Filter) (document.Object, bool) {
	o := document.Object{}
	for _, part := range f.Required() {
		p := part.Path
		if part.Op != filter.Equal || part.Value == nil || p.Schema != "" || p.Sub != "" || p.Values != nil {
			return nil, false
		}
		v, err := document.NormalizeValue(p.Attribute, part.Value)
		if err != nil {
			return nil, false
		}
		o[p.Attribute] = v
	}
	return o, true
}

// remove removes what a path selects. A list of values, which some directories send with the path members, selects only
// those values.
func remove(target document.Object, path filter.Path, value any) error {
	key, v, ok := document.Get(target, path.Attribute)
	if !ok {
		return nil
	}
	values, several := v.([]any)
	switch {
	case !several && path.Values == nil && path.Sub != "":
		if o, ok := v.(document.Object); ok {
			subKey, _, _ := document.Get(o, path.Sub)
			if delete(o, subKey); len(o) == 0 {
				delete(target, key)
			}
		}
		return nil
	case !several || path.Values == nil && path.Sub == "" && value == nil:
		delete(target, key)
		return nil
	}
	listed, err := listedValues(value)
	if err != nil {
		return err
	}
	var kept []any
	for _, v := range values {
		o := filter.AsObject(v)
		selected := path.Values == nil || path.Values.Matches(o)
		if value != nil && path.Values == nil {
			selected = listed[strings.ToLower(document.Text(o, "value"))]
		}
		if selected && path.Sub == "" {
			continue
		}
		if selected {
			subKey, _, _ := document.Get(o, path.Sub)
			delete(o, subKey)
		}
		kept = append(kept, v)
	}
	if delete(target, key); len(kept) > 0 {
		target[key] = kept
	}
	return nil
}

// listedValues returns the values that a remove operation lists: one or several, as objects or texts.
func listedValues(value any) (map[string]bool, error) {
	values, ok := value.([]any)
	if !ok && value != nil {
		values = []any{value}
	}
	listed := map[string]bool{}
	for _, v := range values {
		text := document.Text(filter.AsObject(v), "value")
		if text == "" {
			return nil, document.Bad(document.InvalidValue, "The values to remove must each have a value.")
		}
		listed[strings.ToLower(text)] = true
	}
	return listed, nil
}
