package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Model is an organization, or a part of one.
type Model struct {
	Group    string   // path of the group that the model is about, from the organization down
	GroupUID string   // UID of the group; "" in a file
	Managed  []string // names of the kinds that the model has completely
	// Resources are the resources of each kind, by Key.
	Resources map[string]map[string]*Resource
}

// A Resource is one resource. Paths are relative to the model's group.
type Resource struct {
	Kind *Kind
	// In is the path of the parent, which is a folder or has the kind Kind.Parent. It is "" for
	// the model's group.
	In     string
	Name   string // "" if the kind has no names
	Nth    int    // counts resources of a parent with equal key fields, from 0
	UID    string // "" in a file
	Was    string // previous path; only in a file
	Over   bool   // whether it has ended
	Fields map[string]Value
	Source Position
}

// A Position is a place in a file.
type Position struct {
	File string
	Line int
}

// String returns the position as compilers write it.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Root is the path of the model's group among the folders.
const Root = "."

// New returns an empty model of a group.
func New(group string) *Model {
	return &Model{Group: group, Resources: map[string]map[string]*Resource{}}
}

// Path returns the path of a resource that has a name.
func (r *Resource) Path() string {
	if r.In == "" {
		return r.Name
	}
	return r.In + "/" + r.Name
}

// Split returns the parent's path and the name of a path.
func Split(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

// Key identifies a resource among all resources of its kind.
func (r *Resource) Key() string {
	if r.Kind.Named() {
		return r.Path()
	}
	return fmt.Sprintf("%s#%d", r.group(), r.Nth)
}

// group identifies the resources of a parent that have the same key fields.
func (r *Resource) group() string {
	parts := []string{r.In}
	for _, name := range r.Kind.Key {
		v := r.Fields[name]
		if v == nil {
			parts = append(parts, "")
			continue
		}
		parts = append(parts, Format(v))
	}
	return strings.Join(parts, "\x00")
}

// Label describes a resource for people.
func (r *Resource) Label() string {
	if r.Kind.Named() {
		return r.Path()
	}
	var parts []string
	for _, name := range r.Kind.Key {
		switch v := r.Fields[name].(type) {
		case nil:
		case string:
			parts = append(parts, v)
		default:
			parts = append(parts, name+" "+Format(v))
		}
	}
	return strings.Join(append(parts, "in", cmp.Or(r.In, Root)), " ")
}

// Derives reports whether the server chooses the value of a field that is absent.
func (r *Resource) Derives(f *Field) bool {
	return f.Derived || f.DerivedFrom != "" && r.Fields[f.DerivedFrom] != nil
}

// Add adds resources of one kind. It numbers those with equal key fields in the order of
// their other fields, so that the numbers do not depend on the order of the resources. It
// returns the resources that have the path of an earlier one, and does not add them.
func (m *Model) Add(k *Kind, resources []*Resource) (duplicates []*Resource) {
	list := make(map[string]*Resource, len(resources))
	m.Resources[k.Name] = list
	if !k.Named() && !k.Here {
		number(resources)
	}
	for _, r := range resources {
		if key := r.Key(); list[key] == nil {
			list[key] = r
			continue
		}
		duplicates = append(duplicates, r)
	}
	return duplicates
}

// number sets Nth.
func number(resources []*Resource) {
	groups := map[string][]*Resource{}
	for _, r := range resources {
		groups[r.group()] = append(groups[r.group()], r)
	}
	for _, equal := range groups {
		if len(equal) > 1 {
			slices.SortStableFunc(equal, func(x, y *Resource) int { return strings.Compare(x.text(), y.text()) })
		}
		for i, r := range equal {
			r.Nth = i
		}
	}
}

// text returns all fields, for a stable order.
func (r *Resource) text() string {
	var b strings.Builder
	for i := range r.Kind.Fields {
		f := &r.Kind.Fields[i]
		if v := r.Fields[f.Name]; v != nil && !f.Secret {
			b.WriteString(f.Name + Format(v) + "\x00")
		}
	}
	return b.String()
}

// Sorted returns the resources of a kind in the order of files: by parent, then by name or
// key. A folder comes before its contents.
func (m *Model) Sorted(k *Kind) []*Resource {
	list := make([]*Resource, 0, len(m.Resources[k.Name]))
	for _, r := range m.Resources[k.Name] {
		list = append(list, r)
	}
	slices.SortFunc(list, Compare)
	return list
}

// Compare orders resources of one kind.
func Compare(x, y *Resource) int {
	if x.Kind.Named() {
		return cmp.Or(comparePaths(x.Path(), y.Path()), strings.Compare(x.UID, y.UID))
	}
	return cmp.Or(comparePaths(x.In, y.In), strings.Compare(x.group(), y.group()), cmp.Compare(x.Nth, y.Nth))
}

// comparePaths orders paths by their parts, and the group of the model first.
func comparePaths(x, y string) int {
	if x == Root || y == Root {
		return cmp.Compare(btoi(x != Root), btoi(y != Root))
	}
	for x != "" && y != "" {
		a, restX, _ := strings.Cut(x, "/")
		b, restY, _ := strings.Cut(y, "/")
		if c := strings.Compare(a, b); c != 0 {
			return c
		}
		x, y = restX, restY
	}
	return cmp.Compare(len(x), len(y))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Manages reports whether the model has all resources of a kind.
func (m *Model) Manages(k *Kind) bool { return slices.Contains(m.Managed, k.Name) }

// Find returns the resource of a kind at a path, or nil.
func (m *Model) Find(kind, path string) *Resource { return m.Resources[kind][path] }

// Relative returns the canonical form of a reference in a model of a group: an absolute
// path below the group becomes relative, and an e-mail address lower case.
func Relative(group, ref string) string {
	prefix, path := "", ref
	if kind, rest, ok := strings.Cut(ref, ":"); ok && kind == "repo" {
		prefix, path = "repo:", rest
	}
	switch {
	case strings.Contains(path, "@") && !strings.Contains(path, "/"):
		return prefix + strings.ToLower(path)
	case path == "/"+group:
		return prefix + Root
	case strings.HasPrefix(path, "/"+group+"/"):
		return prefix + strings.TrimPrefix(path, "/"+group+"/")
	}
	return ref
}

// Put sets the resources of a kind, which already have different keys.
func (m *Model) Put(k *Kind, resources []*Resource) {
	list := make(map[string]*Resource, len(resources))
	for _, r := range resources {
		list[r.Key()] = r
	}
	m.Resources[k.Name] = list
}

// References calls f with each reference of a resource, and replaces the reference by the
// result.
func (r *Resource) References(f func(field *Field, ref string) string) {
	for i := range r.Kind.Fields {
		field := &r.Kind.Fields[i]
		if field.Ref == "" {
			continue
		}
		switch v := r.Fields[field.Name].(type) {
		case string:
			r.Fields[field.Name] = f(field, v)
		case []string:
			changed := make([]string, 0, len(v))
			for _, ref := range v {
				changed = append(changed, f(field, ref))
			}
			slices.Sort(changed)
			r.Fields[field.Name] = changed
		}
	}
}

// IsRelative reports whether a reference is a path below the model's group. The others are
// absolute paths, e-mail addresses and UIDs.
func IsRelative(ref string) bool {
	if path, ok := CutRepo(ref); ok {
		ref = path
	}
	return !strings.HasPrefix(ref, "/") && !strings.HasPrefix(ref, "uid:") && !strings.Contains(ref, "@")
}

// CutRepo returns the path of a repo, if a reference to a target names a repo.
func CutRepo(ref string) (path string, ok bool) { return strings.CutPrefix(ref, "repo:") }
