// Package reference reads an OpenAPI document for people: the services with their calls, and the types that they use.
package reference

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// A document contains the parts of an OpenAPI document that the reference shows.
type document struct {
	Info       struct{ Title, Version string }
	Tags       []tag
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type tag struct{ Name, Description string }

type operation struct {
	ID          string `json:"operationId"`
	Tags        []string
	Summary     string
	Description string
	Parameters  []parameter
	RequestBody body
	Responses   map[string]body
	Security    *[]any
	Deprecated  bool
}

type parameter struct {
	Name, In, Description string
	Required              bool
	Schema                schema
}

type body struct {
	Description string
	Content     map[string]struct {
		Schema  schema
		Example json.RawMessage
	}
}

type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any    // the name of a type, or a list of names
	Format, Description  string
	Properties           map[string]schema
	Required             []string
	Items                *schema
	AdditionalProperties json.RawMessage
	Enum                 []string
	ReadOnly, WriteOnly  bool
	AllOf                []schema
}

// A Reference is what an OpenAPI document says about the API.
type Reference struct {
	Version  string
	Services []Service
}

// A Service is a group of calls, and the types of the bodies and answers of these calls.
type Service struct {
	Name, Description string
	Calls             []Call
	Types             []Type
}

// A Call is one operation.
type Call struct {
	ID, Name, Method, Path, Summary string
	Open, Deprecated                bool // an open call needs no token
	Parameters                      []Field
	Body, Answer                    TypeName // the text is "" if the call has no body or answer
	Curl                            string   // an example
}

// A Type is a type of message or enum.
type Type struct {
	Name, Anchor, Description string
	Fields                    []Field
	Values                    []string
}

// A Field is a parameter of a call or a member of a type.
type Field struct {
	Name, Where, Description string
	Type                     TypeName
	Required, Out, In        bool
}

// A TypeName is the name of a type, and its anchor on the page of a service if it is a message or enum.
type TypeName struct{ Text, Anchor string }

// Read reads an OpenAPI document. Deprecated services come last.
func Read(openapi []byte) (Reference, error) {
	var d document
	if err := json.Unmarshal(openapi, &d); err != nil {
		return Reference{}, fmt.Errorf("read the API's description: %w", err)
	}
	byName := types(d)
	r := Reference{Version: d.Info.Version, Services: services(d)}
	for i := range r.Services {
		r.Services[i].Types = used(r.Services[i].Calls, byName)
	}
	return r, nil
}

// used returns the types that calls refer to, and the types to which these refer, sorted by name.
func used(calls []Call, byName map[string]Type) (out []Type) {
	seen := map[string]bool{"": true}
	var add func(TypeName)
	add = func(n TypeName) {
		if seen[n.Anchor] {
			return
		}
		seen[n.Anchor] = true
		t := byName[n.Anchor]
		out = append(out, t)
		for _, f := range t.Fields {
			add(f.Type)
		}
	}
	for _, c := range calls {
		add(c.Body)
		add(c.Answer)
		for _, p := range c.Parameters {
			add(p.Type)
		}
	}
	slices.SortFunc(out, func(a, b Type) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Anchor, b.Anchor))
	})
	return out
}

// methods are the HTTP methods in the order in which a path shows its calls.
var methods = []string{"get", "post", "patch", "put", "delete"}

func services(d document) []Service {
	byTag := map[string]*Service{}
	var out []*Service
	for _, t := range d.Tags {
		s := &Service{Name: t.Name, Description: t.Description}
		byTag[t.Name], out = s, append(out, s)
	}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, m := range methods {
			op, ok := d.Paths[path][m]
			if !ok || len(op.Tags) == 0 || byTag[op.Tags[0]] == nil {
				continue
			}
			byTag[op.Tags[0]].Calls = append(byTag[op.Tags[0]].Calls, callOf(path, m, op))
		}
	}
	var current, deprecated []Service
	for _, s := range out {
		switch {
		case len(s.Calls) == 0:
		case s.Calls[0].Deprecated:
			deprecated = append(deprecated, *s)
		default:
			current = append(current, *s)
		}
	}
	return append(current, deprecated...)
}

func callOf(path, method string, op operation) Call {
	_, name, _ := strings.Cut(op.ID, "_")
	c := Call{
		ID: op.ID, Name: name, Method: strings.ToUpper(method), Path: path,
		Summary: strings.TrimSpace(op.Summary + " " + op.Description), Open: op.Security != nil && len(*op.Security) == 0,
		Deprecated: op.Deprecated,
	}
	for _, p := range op.Parameters {
		c.Parameters = append(c.Parameters, Field{Name: p.Name, Where: p.In, Description: p.Description,
			Type: typeOf(p.Schema), Required: p.Required})
	}
	sent := op.RequestBody.Content["application/json"]
	if len(op.RequestBody.Content) > 0 {
		c.Body = typeOf(sent.Schema)
	}
	if s, ok := op.Responses["200"].Content["application/json"]; ok {
		c.Answer = typeOf(s.Schema)
	}
	c.Curl = curl(c, sent.Example)
	return c
}

// curl returns an example of a call.
func curl(c Call, body json.RawMessage) string {
	var b strings.Builder
	b.WriteString("curl")
	if c.Method != http.MethodGet && (c.Method != http.MethodPost || body == nil) {
		b.WriteString(" -X " + c.Method)
	}
	if !c.Open {
		b.WriteString(` -H "Authorization: Bearer $TOKEN"`)
	}
	b.WriteString(` "$API` + strings.ReplaceAll(c.Path, "{uid}", "$UID") + `"`)
	if body != nil {
		var short bytes.Buffer
		_ = json.Compact(&short, body) // never fails, because body was decoded from JSON
		b.WriteString(` -d '` + strings.ReplaceAll(short.String(), "'", `'\\''`) + `'`)
	}
	return b.String()
}

// types returns the types of a document by their full names.
func types(d document) map[string]Type {
	out := map[string]Type{}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		k := Type{Name: short(name), Anchor: name, Description: s.Description, Values: s.Enum}
		for _, f := range slices.Sorted(maps.Keys(s.Properties)) {
			p := s.Properties[f]
			k.Fields = append(k.Fields, Field{
				Name: f, Description: p.Description, Type: typeOf(p), Required: slices.Contains(s.Required, f), Out: p.ReadOnly,
				In: p.WriteOnly,
			})
		}
		out[name] = k
	}
	return out
}

// typeOf returns the name of a type for people.
func typeOf(s schema) TypeName {
	var values schema
	switch {
	case s.Ref != "":
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		return TypeName{Text: short(name), Anchor: name}
	case len(s.AllOf) > 0:
		return typeOf(s.AllOf[0])
	case s.Items != nil:
		r := typeOf(*s.Items)
		r.Text = "list of " + r.Text
		return r
	case len(s.AdditionalProperties) > 0 && json.Unmarshal(s.AdditionalProperties, &values) == nil:
		r := typeOf(values)
		r.Text = "map to " + r.Text
		return r
	case s.Format != "":
		return TypeName{Text: fmt.Sprintf("%v (%s)", s.Type, s.Format)}
	}
	return TypeName{Text: fmt.Sprint(s.Type)}
}

// short returns the name of a type without its package.
func short(name string) string {
	parts := strings.Split(name, ".")
	i := slices.IndexFunc(parts, func(p string) bool { return p != "" && p[0] >= 'A' && p[0] <= 'Z' })
	if i < 0 {
		return name
	}
	return strings.Join(parts[i:], ".")
}
