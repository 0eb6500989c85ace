package plan

import (
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/format"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
)

// renames returns the renames that the key was of wanted resources asks for, and gives the
// resources of the current model their new paths.
func (p *Plan) renames() (changes []*Change, _ error) {
	names := newNames{}
	var mistakes format.Mistakes
	for _, k := range model.Kinds {
		if !k.Named() || !p.wanted.Manages(k) || !p.current.Manages(k) {
			continue
		}
		for _, r := range p.wanted.Sorted(k) {
			old := p.current.Find(k.Name, r.Was)
			if r.Was == "" || r.Was == r.Path() || old == nil {
				continue
			}
			if err := p.checkRename(names, r); err != nil {
				mistakes = append(mistakes, err)
				continue
			}
			names.set(k.Name, r.Was, r.Name)
			changes = append(changes, &Change{Action: Rename, Kind: k, Wanted: r, Current: old, Was: r.Was,
				Fields: []FieldChange{{"name", old.Name, r.Name}}})
		}
	}
	if len(mistakes) > 0 {
		return nil, mistakes
	}
	if len(changes) > 0 {
		names.apply(p.current)
	}
	return changes, nil
}

// checkRename refuses a rename that the API does not have, or that was made already while
// another resource got the old name.
func (p *Plan) checkRename(names newNames, r *model.Resource) *format.Error {
	k := r.Kind.Name
	parent, _ := model.Split(r.Was)
	switch {
	case names.path(parentKind(r.Kind), parent) != r.In:
		return mistake(r, "a %s cannot move from %s to another folder, only get another name there", r.Kind.One, r.Was)
	case p.current.Find(k, r.Path()) != nil:
		return mistake(r, "both %s and %s exist: remove was, or rename one of them first", r.Was, r.Path())
	case p.wanted.Find(k, r.Was) != nil:
		return mistake(r, "the file still has %s, so it cannot be renamed to %s", r.Was, r.Path())
	case names[k][r.Was] != "":
		return mistake(r, "%s is renamed twice", r.Was)
	}
	return nil
}

// newNames are the new names of resources, by kind and old path.
type newNames map[string]map[string]string

func (n newNames) set(kind, path, name string) {
	if n[kind] == nil {
		n[kind] = map[string]string{}
	}
	n[kind][path] = name
}

// path returns the new path of a resource of a kind.
func (n newNames) path(kind, path string) string {
	if path == "" || path == model.Root {
		return path
	}
	parent, name := model.Split(path)
	if renamed := n[kind][path]; renamed != "" {
		name = renamed
	}
	if parent = n.path(model.Folders, parent); parent == "" {
		return name
	}
	return parent + "/" + name
}

// reference returns the new form of a reference.
func (n newNames) reference(f *model.Field, ref string) string {
	if !model.IsRelative(ref) {
		return ref
	}
	switch f.Ref {
	case model.Identities:
		return n.path(model.Workloads, ref)
	case model.Targets:
		if path, ok := model.CutRepo(ref); ok {
			return "repo:" + n.path(model.Repos, path)
		}
		return n.path(model.Folders, ref)
	}
	return n.path(f.Ref, ref)
}

// apply renames the resources of a model.
func (n newNames) apply(m *model.Model) {
	for _, k := range model.Kinds {
		resources := m.Sorted(k)
		for _, r := range resources {
			if k.Named() && r.Name != model.Root {
				path := n.path(k.Name, r.Path())
				r.In, r.Name = model.Split(path)
			} else {
				r.In = n.path(parentKind(k), r.In)
			}
			r.References(n.reference)
		}
		m.Add(k, resources)
	}
}
