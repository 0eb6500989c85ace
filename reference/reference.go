// Package reference is the API reference people read: the OpenAPI document as
// pages, without scripts and without anything from elsewhere.
package reference

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
)

//go:embed reference.html
var page string

//go:embed reference.css
var style string

// A document is what of OpenAPI the reference shows.
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
}

type parameter struct {
	Name, In, Description string
	Required              bool
	Schema                schema
}

type body struct {
	Description string
	Content     map[string]struct{ Schema schema }
}

type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any    // a name, or a list of names
	Format, Description  string
	Properties           map[string]schema
	Required             []string
	Items                *schema
	AdditionalProperties json.RawMessage
	Enum                 []string
	ReadOnly, WriteOnly  bool
	AllOf                []schema
}

// Handler serves the reference of an OpenAPI document. The page is made once.
func Handler(openapi []byte) (http.Handler, error) {
	var d document
	if err := json.Unmarshal(openapi, &d); err != nil {
		return nil, fmt.Errorf("read the API's description: %w", err)
	}
	t, err := template.New("page").Parse(page)
	if err != nil {
		return nil, fmt.Errorf("read the reference's page: %w", err)
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{"Info": d.Info, "Services": services(d), "Types": types(d),
		"Style": template.CSS(style)})
	if err != nil {
		return nil, fmt.Errorf("write the reference: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action "+
			"'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache")
		if r.Method != http.MethodHead {
			_, _ = w.Write(b.Bytes()) // whoever went away does not read it
		}
	}), nil
}

// A service is a tag with its calls.
type service struct {
	Name, Description string
	Calls             []call
}

// A call is one operation, as the page shows it.
type call struct {
	ID, Name, Method, Path, Summary string
	Open                            bool // needs no token
	Parameters                      []field
	Body, Answer                    *reference
	Curl                            string
}

// A reference names a type and where on the page it is.
type reference struct{ Text, Anchor string }

// A field is a parameter of a call or a member of a type.
type field struct {
	Name, Where, Description string
	Type                     reference
	Required, Out, In        bool
}

// methods is the order in which the calls of a path are read.
var methods = []string{"get", "post", "patch", "put", "delete"}

func services(d document) []service {
	all := map[string]*service{}
	var out []*service
	for _, t := range d.Tags {
		s := &service{Name: t.Name, Description: t.Description}
		all[t.Name], out = s, append(out, s)
	}
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, m := range methods {
			op, ok := d.Paths[path][m]
			if !ok || len(op.Tags) == 0 || all[op.Tags[0]] == nil {
				continue
			}
			all[op.Tags[0]].Calls = append(all[op.Tags[0]].Calls, callOf(path, m, op))
		}
	}
	var full []service
	for _, s := range out {
		if len(s.Calls) > 0 {
			full = append(full, *s)
		}
	}
	return full
}

func callOf(path, method string, op operation) call {
	_, name, _ := strings.Cut(op.ID, "_")
	c := call{
		ID: op.ID, Name: name, Method: strings.ToUpper(method), Path: path,
		Summary: strings.TrimSpace(op.Summary + " " + op.Description), Open: op.Security != nil && len(*op.Security) == 0,
	}
	for _, p := range op.Parameters {
		c.Parameters = append(c.Parameters, field{Name: p.Name, Where: p.In, Description: p.Description,
			Type: typeOf(p.Schema), Required: p.Required})
	}
	if s, ok := op.RequestBody.Content["application/json"]; ok {
		r := typeOf(s.Schema)
		c.Body = &r
	}
	if s, ok := op.Responses["200"].Content["application/json"]; ok {
		r := typeOf(s.Schema)
		c.Answer = &r
	}
	c.Curl = curl(c)
	return c
}

// curl is an example of a call.
func curl(c call) string {
	var b strings.Builder
	b.WriteString("curl")
	if c.Method != http.MethodGet && (c.Method != http.MethodPost || c.Body == nil) {
		b.WriteString(" -X " + c.Method)
	}
	if !c.Open {
		b.WriteString(` -H "Authorization: Bearer $TOKEN"`)
	}
	b.WriteString(` "$API` + strings.ReplaceAll(c.Path, "{uid}", "$UID") + `"`)
	if c.Body != nil {
		b.WriteString(` -d '{…}'`)
	}
	return b.String()
}

// A kind is a type of message or enum, as the page shows it.
type kind struct {
	Name, Anchor, Description string
	Fields                    []field
	Values                    []string
}

func types(d document) []kind {
	var out []kind
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		k := kind{Name: short(name), Anchor: name, Description: s.Description, Values: s.Enum}
		for _, f := range slices.Sorted(maps.Keys(s.Properties)) {
			p := s.Properties[f]
			k.Fields = append(k.Fields, field{
				Name: f, Description: p.Description, Type: typeOf(p), Required: slices.Contains(s.Required, f), Out: p.ReadOnly,
				In: p.WriteOnly,
			})
		}
		out = append(out, k)
	}
	return out
}

// typeOf names a type for people.
func typeOf(s schema) reference {
	var values schema
	switch {
	case s.Ref != "":
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		return reference{short(name), name}
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
		return reference{Text: fmt.Sprintf("%v (%s)", s.Type, s.Format)}
	}
	return reference{Text: fmt.Sprint(s.Type)}
}

// short is a type's name without its package.
func short(name string) string {
	parts := strings.Split(name, ".")
	i := slices.IndexFunc(parts, func(p string) bool { return p != "" && p[0] >= 'A' && p[0] <= 'Z' })
	if i < 0 {
		return name
	}
	return strings.Join(parts[i:], ".")
}
