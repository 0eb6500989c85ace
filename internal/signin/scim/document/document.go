// Package document reads and writes SCIM resources (RFC 7643) as JSON objects. It knows the names of attributes, and
// nothing about storage.
package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// The schemas of this service.
const (
	UserSchema       = "urn:ietf:params:scim:schemas:core:2.0:User"
	GroupSchema      = "urn:ietf:params:scim:schemas:core:2.0:Group"
	EnterpriseSchema = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"

	messages      = "urn:ietf:params:scim:api:messages:2.0:"
	ListSchema    = messages + "ListResponse"
	ErrorSchema   = messages + "Error"
	PatchSchema   = messages + "PatchOp"
	SearchSchema  = messages + "SearchRequest"
	configSchema  = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
	typeSchema    = "urn:ietf:params:scim:schemas:core:2.0:ResourceType"
	schemaSchema  = "urn:ietf:params:scim:schemas:core:2.0:Schema"
	extensionMark = "urn:"
)

// The limits of a resource. MaxValues also bounds the work of a comparison of all values with each other.
const (
	MaxSize   = 64 << 10 // stored JSON in bytes
	MaxDepth  = 8        // nested objects and arrays
	MaxValues = 500      // values of one attribute
	maxPhoto  = 2 << 10  // bytes of a photo that is stored; a longer one is dropped
)

// An Object is a resource or a complex value. Numbers are json.Number. Names of attributes that this package knows have
// the spelling of the RFC; other names have the spelling of the client.
type Object = map[string]any

// An Error is a refusal in the terms of RFC 7644, section 3.12.
type Error struct {
	Status int    // HTTP status
	Type   string // scimType, or ""
	Detail string
}

func (e *Error) Error() string { return e.Detail }

// The values of scimType.
const (
	InvalidFilter = "invalidFilter"
	InvalidPath   = "invalidPath"
	InvalidSyntax = "invalidSyntax"
	InvalidValue  = "invalidValue"
	Mutability    = "mutability"
	NoTarget      = "noTarget"
	TooMany       = "tooMany"
	Uniqueness    = "uniqueness"
)

// Bad returns an error with status 400.
func Bad(scimType, format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, scimType, fmt.Sprintf(format, args...)}
}

// Parse reads a JSON object and normalizes it. It returns an *Error if body is not one JSON object within the limits.
func Parse(body []byte) (Object, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil, Bad(InvalidSyntax, "The body is not valid JSON.")
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, Bad(InvalidSyntax, "The body has more than one JSON value.")
	}
	o, ok := v.(Object)
	if !ok {
		return nil, Bad(InvalidSyntax, "The body must be a JSON object.")
	}
	if err := checkDepth(v, MaxDepth); err != nil {
		return nil, err
	}
	return Normalize(o)
}

func checkDepth(v any, depth int) error {
	if depth == 0 {
		return Bad(InvalidSyntax, "The body is nested more than %d levels deep.", MaxDepth)
	}
	switch v := v.(type) {
	case Object:
		for _, inner := range v {
			if err := checkDepth(inner, depth-1); err != nil {
				return err
			}
		}
	case []any:
		for _, inner := range v {
			if err := checkDepth(inner, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// Normalize returns a copy of o with the usual spelling of known names, and with real booleans in place of "True" and
// "False" in known boolean attributes. It returns an *Error if o has one name in two spellings.
func Normalize(o Object) (Object, error) {
	out := make(Object, len(o))
	seen := make(map[string]bool, len(o))
	for name, v := range o {
		key := strings.ToLower(name)
		if seen[key] {
			return nil, Bad(InvalidSyntax, "The attribute %s occurs twice.", Short(name))
		}
		seen[key] = true
		v, err := NormalizeValue(name, v)
		if err != nil {
			return nil, err
		}
		out[Name(name)] = v
	}
	return out, nil
}

// NormalizeValue is Normalize for the value of an attribute.
func NormalizeValue(name string, v any) (any, error) {
	switch v := v.(type) {
	case Object:
		return Normalize(v)
	case []any:
		out := make([]any, 0, len(v))
		for _, inner := range v {
			inner, err := NormalizeValue(name, inner)
			if err != nil {
				return nil, err
			}
			out = append(out, inner)
		}
		return out, nil
	case string:
		if booleans[strings.ToLower(name)] {
			switch strings.ToLower(strings.TrimSpace(v)) {
			case "true":
				return true, nil
			case "false":
				return false, nil
			}
			return nil, Bad(InvalidValue, "The attribute %s must be true or false.", Short(name))
		}
	case json.Number:
		if booleans[strings.ToLower(name)] {
			return nil, Bad(InvalidValue, "The attribute %s must be true or false.", Short(name))
		}
	}
	return v, nil
}

// Get returns the value of an attribute, whose name may have any capitals, and the key under which it is stored.
func Get(o Object, name string) (key string, v any, ok bool) {
	if v, ok := o[name]; ok {
		return name, v, true
	}
	if known := Name(name); known != name {
		v, ok := o[known]
		return known, v, ok
	}
	for key, v := range o {
		if strings.EqualFold(key, name) {
			return key, v, true
		}
	}
	return Name(name), nil, false
}

// Text returns a text attribute, or "" if o has no such text.
func Text(o Object, name string) string {
	_, v, _ := Get(o, name)
	text, _ := v.(string)
	return text
}

// Clone returns a deep copy of a value.
func Clone[T any](v T) T {
	c, _ := clone(v).(T)
	return c
}

func clone(v any) any {
	switch v := v.(type) {
	case Object:
		out := make(Object, len(v))
		for name, inner := range v {
			out[name] = clone(inner)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = clone(inner)
		}
		return out
	}
	return v
}

// compact returns a value without attributes and elements that are null.
func compact(v any) any {
	switch v := v.(type) {
	case Object:
		out := make(Object, len(v))
		for name, inner := range v {
			if inner != nil {
				out[name] = compact(inner)
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, inner := range v {
			if inner != nil {
				out = append(out, compact(inner))
			}
		}
		return out
	}
	return v
}

// Storable returns a copy of a resource without the attributes that are never stored: null, passwords, large photos,
// and the attributes that this service computes. It returns an *Error if the rest exceeds a limit.
func Storable(o Object) (Object, error) {
	out, _ := compact(o).(Object)
	for _, name := range []string{"id", "schemas", "meta", "groups", "password"} {
		delete(out, name)
	}
	if photos, ok := out["photos"].([]any); ok {
		var kept []any
		for _, p := range photos {
			if size(p) <= maxPhoto {
				kept = append(kept, p)
			}
		}
		delete(out, "photos")
		if len(kept) > 0 {
			out["photos"] = kept
		}
	}
	for name, v := range out {
		if list, ok := v.([]any); ok && len(list) > MaxValues {
			return nil, &Error{http.StatusRequestEntityTooLarge, "",
				fmt.Sprintf("The attribute %s has more than %d values.", Short(name), MaxValues)}
		}
	}
	if size(out) > MaxSize {
		return nil, &Error{http.StatusRequestEntityTooLarge, "",
			fmt.Sprintf("The resource has more than %d KiB.", MaxSize>>10)}
	}
	return out, nil
}

func size(v any) int {
	b, err := json.Marshal(v)
	if err != nil {
		return MaxSize + 1
	}
	return len(b)
}

// Short returns the beginning of a text of a client, for a message.
func Short(text string) string {
	const longest = 80
	text = strings.ToValidUTF8(text, "?")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}
