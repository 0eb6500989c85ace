package format

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
)

// A File is the name and the text of a file.
type File struct {
	Name string
	Text []byte
}

// Parse reads the files of one organization. It returns Mistakes or an *Error, if a file
// is not valid.
func Parse(files ...File) (*model.Model, error) {
	m := model.New("")
	var first *document
	resources := map[string][]*model.Resource{}
	for _, f := range files {
		d, err := parse(f)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first, m.Group = d, d.group
		}
		if d.group != first.group {
			return nil, &Error{d.groupAt, fmt.Sprintf(
				"the file is about %s, but %s is about %s", d.group, first.file, first.group)}
		}
		if d.limited != first.limited || d.limited && !slices.Equal(d.manage, first.manage) {
			return nil, &Error{d.groupAt, "all files of a folder need the same manage; " + first.file + " has another"}
		}
		for _, name := range d.manage {
			if !slices.Contains(m.Managed, name) {
				m.Managed = append(m.Managed, name)
			}
		}
		for _, e := range d.entries {
			name := e.resource.Kind.Name
			resources[name] = append(resources[name], e.resource)
		}
	}
	return m, collect(m, resources)
}

// collect adds the resources of all files to a model.
func collect(m *model.Model, resources map[string][]*model.Resource) error {
	var mistakes Mistakes
	for _, k := range model.Kinds {
		for _, r := range m.Add(k, resources[k.Name]) {
			first := m.Resources[k.Name][r.Key()].Source
			mistakes = append(mistakes, &Error{r.Source, fmt.Sprintf("the %s %s is already in %s", k.One, r.Label(), first)})
			if len(mistakes) == maxMistakes {
				return mistakes
			}
		}
	}
	if len(mistakes) > 0 {
		return mistakes
	}
	return nil
}

// A document is a parsed file.
type document struct {
	file    string
	group   string
	groupAt model.Position
	manage  []string // kinds
	limited bool     // whether the file says what it manages
	entries []entry
	root    *yaml.Node
}

// An entry is a resource and its node.
type entry struct {
	resource *model.Resource
	node     *yaml.Node
}

func parse(f File) (*document, error) {
	p := &parser{file: f.Name}
	root, err := p.load(f.Text)
	if err != nil {
		return nil, err
	}
	d := &document{file: f.Name, root: root, groupAt: p.at(root)}
	sections := p.header(d)
	if err := p.err(); err != nil {
		return nil, err
	}
	for _, s := range sections {
		p.section(d, s)
	}
	return d, p.err()
}

// A section is the list of the resources of a kind.
type section struct {
	kind *model.Kind
	key  *yaml.Node
	list *yaml.Node
}

// header reads everything but the resources.
func (p *parser) header(d *document) (sections []section) {
	version := ""
	for i := 0; i < len(d.root.Content); i += 2 {
		key, value := d.root.Content[i], d.root.Content[i+1]
		switch key.Value {
		case "apiVersion":
			version = value.Value
			if version != Version {
				p.fail(value, "the apiVersion is not %s, the only one that this program reads", Version)
			}
		case "group":
			d.group, d.groupAt = strings.Trim(p.text(value), "/"), p.at(value)
		case "manage":
			d.limited = true
			d.manage = p.kinds(value)
		default:
			k := model.KindOf(key.Value)
			if k == nil {
				p.unknown(key, "a kind that files can contain", names())
				continue
			}
			sections = append(sections, section{k, key, value})
		}
	}
	if version == "" && len(p.mistakes) == 0 {
		p.fail(d.root, "apiVersion is missing: %s", Version)
	}
	if d.group == "" && len(p.mistakes) == 0 {
		p.fail(d.root, "group is missing: the path of the group that the file is about")
	}
	for _, s := range sections {
		switch {
		case !d.limited:
			d.manage = append(d.manage, s.kind.Name)
		case !slices.Contains(d.manage, s.kind.Name):
			p.fail(s.key, "the file has %s, but its manage does not", s.kind.Name)
		}
	}
	return sections
}

func names() (list []string) {
	for _, k := range model.Kinds {
		list = append(list, k.Name)
	}
	return list
}

func (p *parser) kinds(n *yaml.Node) (list []string) {
	for _, name := range p.list(n) {
		if model.KindOf(name) == nil {
			p.fail(n, "%q is not a kind that files can contain: %s", clip(name), strings.Join(names(), ", "))
			continue
		}
		list = append(list, name)
	}
	return list
}

// unknown reports an unknown key, with the most similar one.
func (p *parser) unknown(key *yaml.Node, what string, known []string) {
	near := noun.Nearest(key.Value, known)
	if near != "" {
		near = "; did you mean " + near + "?"
	}
	p.fail(key, "%q is not %s%s", clip(key.Value), what, cmp.Or(near, ": "+strings.Join(known, ", ")))
}

func (p *parser) section(d *document, s section) {
	if s.list.Kind != yaml.SequenceNode {
		p.fail(s.list, "%s is a list: write [] for none", s.kind.Name)
		return
	}
	for _, n := range s.list.Content {
		if len(p.mistakes) >= maxMistakes {
			return
		}
		if n.Kind != yaml.MappingNode {
			p.fail(n, "a %s is a mapping", s.kind.One)
			continue
		}
		d.entries = append(d.entries, entry{p.resource(d, s.kind, n), n})
	}
}

func (p *parser) resource(d *document, k *model.Kind, n *yaml.Node) *model.Resource {
	r := &model.Resource{Kind: k, Source: p.at(n), Fields: map[string]model.Value{}}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Value == "path" && k.Named():
			r.In, r.Name = model.Split(p.path(value, k.Name == model.Folders))
		case key.Value == "was" && k.Named() && k.Changeable():
			r.Was = p.path(value, false)
		case key.Value == "in" && !k.Named():
			if r.In = p.path(value, true); r.In == model.Root {
				r.In = ""
			}
		default:
			p.field(d, r, key, value, "")
		}
	}
	switch {
	case k.Named() && r.Name == "":
		p.fail(n, "the %s has no path", k.One)
	case r.In == "" && (k.Here || k.Parent != "" && k.Parent != model.Folders):
		p.fail(n, "the %s needs in: the path of its %s", k.One, model.KindOf(k.Parent).One)
	}
	// A target that is the resource's own folder is what the server assumes.
	if t, ok := r.Fields["target"].(string); ok && t == cmp.Or(r.In, model.Root) {
		delete(r.Fields, "target")
	}
	return r
}

// field reads a field, or the fields of a nested mapping whose name is prefix.
func (p *parser) field(d *document, r *model.Resource, key, value *yaml.Node, prefix string) {
	name := prefix + key.Value
	f := r.Kind.Field(name)
	if f == nil {
		if prefix == "" && value.Kind == yaml.MappingNode && hasPrefix(r.Kind, name+".") {
			for i := 0; i < len(value.Content); i += 2 {
				p.field(d, r, value.Content[i], value.Content[i+1], name+".")
			}
			return
		}
		p.unknown(key, "a field of a "+r.Kind.One, fieldNames(r.Kind, prefix))
		return
	}
	v := p.value(r.Kind, f, value)
	v, err := r.Kind.Clean(f, v)
	if err != nil {
		p.fail(value, "%s: %s", name, err)
		return
	}
	if v = canonical(d.group, f, v); v != nil {
		r.Fields[name] = v
	}
}

// canonical makes the references of a value canonical.
func canonical(group string, f *model.Field, v model.Value) model.Value {
	if f.Ref == "" {
		return v
	}
	switch v := v.(type) {
	case string:
		return model.Relative(group, v)
	case []string:
		for i := range v {
			v[i] = model.Relative(group, v[i])
		}
		slices.Sort(v)
		return v
	}
	return v
}

func hasPrefix(k *model.Kind, prefix string) bool {
	return slices.ContainsFunc(k.Fields, func(f model.Field) bool { return strings.HasPrefix(f.Name, prefix) })
}

// fieldNames returns the keys that a mapping can have.
func fieldNames(k *model.Kind, prefix string) (list []string) {
	if prefix == "" {
		list = append(list, placeKeys(k)...)
	}
	for _, f := range k.Fields {
		if rest, ok := strings.CutPrefix(f.Name, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			if !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

// placeKeys returns the keys that say where a resource is.
func placeKeys(k *model.Kind) []string {
	switch {
	case !k.Named():
		return []string{"in"}
	case k.Changeable():
		return []string{"path", "was"}
	}
	return []string{"path"}
}

func (p *parser) value(k *model.Kind, f *model.Field, n *yaml.Node) model.Value {
	switch k.Type(f) {
	case model.Flag:
		if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" {
			b, _ := strconv.ParseBool(strings.ToLower(n.Value))
			return b
		}
		p.fail(n, "%s is true or false", f.Name)
	case model.Number:
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Kind == yaml.ScalarNode && n.Tag == "!!int" && err == nil {
			return i
		}
		p.fail(n, "%s is a whole number", f.Name)
	case model.Texts, model.Words:
		return p.list(n)
	case model.Table:
		return p.table(n)
	default:
		return p.text(n)
	}
	return nil
}

// text returns a text. Numbers and times need no quotes.
func (p *parser) text(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		p.fail(n, "a text is expected here")
	case n.Tag == "!!null":
		p.fail(n, "a value is missing here")
	case n.Tag == "!!bool":
		p.fail(n, "a text is expected here: write %q in quotes", n.Value)
	}
	return n.Value
}

func (p *parser) list(n *yaml.Node) (list []string) {
	if n.Kind != yaml.SequenceNode {
		p.fail(n, "a list is expected here: write [] for none")
		return nil
	}
	for _, child := range n.Content {
		list = append(list, p.text(child))
	}
	return list
}

func (p *parser) table(n *yaml.Node) map[string]string {
	if n.Kind != yaml.MappingNode {
		p.fail(n, "a mapping is expected here")
		return nil
	}
	list := map[string]string{}
	for i := 0; i < len(n.Content); i += 2 {
		list[n.Content[i].Value] = p.text(n.Content[i+1])
	}
	return list
}

// path returns a path relative to the group of the file. The path of that group itself is
// allowed only if root is set.
func (p *parser) path(n *yaml.Node, root bool) string {
	path := p.text(n)
	if root && path == model.Root {
		return path
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			p.fail(n, "%q is not a path of names below the group of the file", clip(path))
			return "?"
		}
	}
	return path
}
