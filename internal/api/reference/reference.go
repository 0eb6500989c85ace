// Package reference serves the API reference for people: the OpenAPI document as a
// page with a search, without scripts and without content from other servers.
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
	"sync"
)

//go:embed reference.html
var page string

//go:embed reference.css
var style string

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

// maxQuery is the longest query, in bytes. maxFound is the number of matching calls,
// and of matching types, that a page shows.
const (
	maxQuery = 100
	maxFound = 50
)

// Handler serves the reference of an OpenAPI document. It reads the document and
// renders the page at the first request, because most servers get none. A page of
// search results shows at most maxFound calls and types.
func Handler(openapi []byte) http.Handler {
	made := sync.OnceValues(func() (*handler, error) { return newHandler(openapi) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, err := made()
		if err != nil {
			http.Error(w, "the reference cannot be rendered", http.StatusInternalServerError)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func newHandler(openapi []byte) (*handler, error) {
	var d document
	if err := json.Unmarshal(openapi, &d); err != nil {
		return nil, fmt.Errorf("read the API's description: %w", err)
	}
	t, err := template.New("page").Parse(page)
	if err != nil {
		return nil, fmt.Errorf("read the reference's page: %w", err)
	}
	h := &handler{template: t, all: view{Info: d.Info, Services: services(d), Types: types(d), Style: template.CSS(style)}}
	h.all.All = len(h.all.Types)
	for _, s := range h.all.Services {
		h.all.All += len(s.Calls)
	}
	if h.page, err = h.write(h.all); err != nil {
		return nil, fmt.Errorf("write the reference: %w", err)
	}
	return h, nil
}

type handler struct {
	template *template.Template
	all      view
	page     []byte // rendered page with all calls and types
}

// A view has the content of a page.
type view struct {
	Info       struct{ Title, Version string }
	Services   []service
	Types      []kind
	Style      template.CSS
	Query      string // text that was searched for
	All, Found int    // number of all calls and types, and number of search results
	More       bool   // whether some results are not shown
}

func (h *handler) write(v view) ([]byte, error) {
	var b bytes.Buffer
	err := h.template.Execute(&b, v)
	return b.Bytes(), err
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text := h.page
	if q := strings.TrimSpace(r.URL.Query().Get("q")); q != "" {
		q = strings.ToValidUTF8(q[:min(len(q), maxQuery)], "")
		var err error
		if text, err = h.write(h.all.search(q)); err != nil {
			http.Error(w, "the page cannot be written", http.StatusInternalServerError)
			return
		}
	}
	head := w.Header()
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action "+
		"'self'; frame-ancestors 'none'")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-cache")
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // fails only if the client has disconnected
	}
}

// search returns a view of the calls and types that contain every word of a query.
func (v view) search(query string) view {
	words := strings.Fields(strings.ToLower(query))
	has := func(text string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	}
	found := v
	found.Query, found.Services, found.Types = query, nil, nil
	shown := 0
	for _, s := range v.Services {
		hit := s
		hit.Calls = nil
		for _, c := range s.Calls {
			if !has(c.text) {
				continue
			}
			if found.Found++; shown < maxFound {
				hit.Calls, shown = append(hit.Calls, c), shown+1
			}
		}
		if len(hit.Calls) > 0 {
			found.Services = append(found.Services, hit)
		}
	}
	named := func(s service) bool { // reports whether a call of s has exactly the name that was searched for
		return slices.ContainsFunc(s.Calls, func(c call) bool {
			return strings.EqualFold(c.Name, strings.Join(words, ""))
		})
	}
	slices.SortStableFunc(found.Services, func(a, b service) int { return order(named(a), named(b)) })
	for _, k := range v.Types {
		if !has(k.text) {
			continue
		}
		if found.Found++; len(found.Types) < maxFound {
			found.Types = append(found.Types, k)
		}
	}
	found.More = found.Found > shown+len(found.Types)
	return found.linked()
}

// order compares two conditions. A true one comes first.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// linked returns a view whose links to types that it does not show lead to the whole
// page.
func (v view) linked() view {
	shown := map[string]bool{}
	for _, k := range v.Types {
		shown[k.Anchor] = true
	}
	link := func(fields []field) []field {
		fields = slices.Clone(fields)
		for i := range fields {
			fields[i].Type = fields[i].Type.from(shown)
		}
		return fields
	}
	for i, s := range v.Services {
		s.Calls = slices.Clone(s.Calls)
		for j, c := range s.Calls {
			c.Parameters, c.Body, c.Answer = link(c.Parameters), c.Body.from(shown), c.Answer.from(shown)
			s.Calls[j] = c
		}
		v.Services[i] = s
	}
	for i, k := range v.Types {
		v.Types[i].Fields = link(k.Fields)
	}
	return v
}

// A service is a tag with its calls.
type service struct {
	Name, Description string
	Calls             []call
}

// A call is one operation on the page.
type call struct {
	ID, Name, Method, Path, Summary string
	Open, Deprecated                bool // an open call needs no token
	Parameters                      []field
	Body, Answer                    reference // the text is "" if the call has no body or answer
	Curl                            string
	text                            string // text that a search examines
}

// A reference is a link to a type.
type reference struct {
	Text, Anchor string
	away         bool // whether the type is only on the whole page, and not on this page
}

// Link returns the address of the type.
func (r reference) Link() string {
	if r.away {
		return "/docs#" + r.Anchor
	}
	return "#" + r.Anchor
}

// from returns r for a page that shows only some types. If the type is not shown, the
// link leads to the whole page.
func (r reference) from(shown map[string]bool) reference {
	r.away = !shown[r.Anchor]
	return r
}

// A field is a parameter of a call or a member of a type.
type field struct {
	Name, Where, Description string
	Type                     reference
	Required, Out, In        bool
}

// methods are the HTTP methods in the order in which a path shows its calls.
var methods = []string{"get", "post", "patch", "put", "delete"}

func services(d document) []service {
	byTag := map[string]*service{}
	var out []*service
	for _, t := range d.Tags {
		s := &service{Name: t.Name, Description: t.Description}
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
	var full []service
	for _, s := range out {
		if len(s.Calls) > 0 {
			full = append(full, *s)
		}
	}
	slices.SortStableFunc(full, func(a, b service) int { return order(!a.Calls[0].Deprecated, !b.Calls[0].Deprecated) })
	return full
}

func callOf(path, method string, op operation) call {
	_, name, _ := strings.Cut(op.ID, "_")
	c := call{
		ID: op.ID, Name: name, Method: strings.ToUpper(method), Path: path,
		Summary: strings.TrimSpace(op.Summary + " " + op.Description), Open: op.Security != nil && len(*op.Security) == 0,
		Deprecated: op.Deprecated,
	}
	c.text = strings.ToLower(strings.Join([]string{c.ID, c.Method, c.Path, c.Summary}, " "))
	for _, p := range op.Parameters {
		c.Parameters = append(c.Parameters, field{Name: p.Name, Where: p.In, Description: p.Description,
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
func curl(c call, body json.RawMessage) string {
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

// A kind is a type of message or enum on the page.
type kind struct {
	Name, Anchor, Description string
	Fields                    []field
	Values                    []string
	text                      string // text that a search examines
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
		k.text = strings.ToLower(name + " " + s.Description)
		out = append(out, k)
	}
	return out
}

// typeOf returns the name of a type for people.
func typeOf(s schema) reference {
	var values schema
	switch {
	case s.Ref != "":
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		return reference{Text: short(name), Anchor: name}
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

// short returns the name of a type without its package.
func short(name string) string {
	parts := strings.Split(name, ".")
	i := slices.IndexFunc(parts, func(p string) bool { return p != "" && p[0] >= 'A' && p[0] <= 'Z' })
	if i < 0 {
		return name
	}
	return strings.Join(parts[i:], ".")
}
