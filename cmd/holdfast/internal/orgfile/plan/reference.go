package plan

import (
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/format"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
)

// checkReferences returns a mistake for each path of a changed resource that nothing has.
func (p *Plan) checkReferences() error {
	var mistakes format.Mistakes
	for _, c := range p.Changes {
		if c.Wanted == nil || len(mistakes) > 20 {
			continue
		}
		if in := c.Wanted.In; in != "" && p.lookUp(parentKind(c.Kind), in) == "" {
			mistakes = append(mistakes, mistake(c.Wanted, "there is no %s %s", model.KindOf(parentKind(c.Kind)).One, in))
		}
		c.Wanted.References(func(f *model.Field, ref string) string {
			if model.IsRelative(ref) && p.Find(f, ref) == "" {
				mistakes = append(mistakes, mistake(c.Wanted, "%s: there is no %s %s", f.Name, one(f.Ref), ref))
			}
			return ref
		})
	}
	if len(mistakes) > 0 {
		return mistakes
	}
	return nil
}

// one returns the word for a resource that a field of a kind refers to.
func one(ref string) string {
	switch ref {
	case model.Identities:
		return "workload"
	case model.Targets:
		return "folder or repo"
	}
	return model.KindOf(ref).One
}

// Find returns the UID of the resource that a relative reference names, or change: and the
// ID of the change that creates it. It returns "" if nothing has the path, or if the plan
// deletes it.
func (p *Plan) Find(f *model.Field, ref string) string {
	switch f.Ref {
	case model.Identities:
		return p.lookUp(model.Workloads, ref)
	case model.Targets:
		if path, ok := model.CutRepo(ref); ok {
			return p.lookUp(model.Repos, path)
		}
		return p.lookUp(model.Folders, ref)
	}
	return p.lookUp(f.Ref, ref)
}

// lookUp is like Find, for the path of a resource of a kind.
func (p *Plan) lookUp(kind, path string) string {
	if path == "" {
		path = model.Root
	}
	if c := p.created[kind+"\x00"+path]; c != nil {
		return "change:" + c.ID
	}
	if r := p.current.Find(kind, path); r != nil && !p.deleted[r] {
		return r.UID
	}
	if path == model.Root && kind == model.Folders {
		return p.current.GroupUID
	}
	return ""
}

// Outside returns the references of a model that are not relative paths, by the kind that
// they refer to. Each has the first resource that contains it. It leaves out kinds that are
// not compared, because the current model does not have them.
func Outside(m, current *model.Model) map[string]map[string]*model.Resource {
	list := map[string]map[string]*model.Resource{}
	for _, k := range model.Kinds {
		if !m.Manages(k) || !current.Manages(k) {
			continue
		}
		for _, r := range m.Sorted(k) {
			r.References(func(f *model.Field, ref string) string {
				if !model.IsRelative(ref) {
					if list[f.Ref] == nil {
						list[f.Ref] = map[string]*model.Resource{}
					}
					if list[f.Ref][ref] == nil {
						list[f.Ref][ref] = r
					}
				}
				return ref
			})
		}
	}
	return list
}

// Respell replaces references of a model that have another spelling, by kind.
func Respell(m *model.Model, spellings map[string]map[string]string) {
	for _, k := range model.Kinds {
		resources := m.Sorted(k)
		changed := false
		for _, r := range resources {
			r.References(func(f *model.Field, ref string) string {
				if spelling := spellings[f.Ref][ref]; spelling != "" && spelling != ref {
					changed = true
					return spelling
				}
				return ref
			})
		}
		if changed {
			m.Add(k, resources)
		}
	}
}

// trimUID returns the UID of a reference that is one.
func trimUID(ref string) (string, bool) { return strings.CutPrefix(ref, "uid:") }
