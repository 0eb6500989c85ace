// Package plan compares two models of an organization and lists the changes from one to the
// other, in an order in which they can be applied.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/format"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
)

// An Action is what a change does to a resource.
type Action string

// The actions. Replace deletes a resource that cannot be changed and creates it again.
const (
	Create  Action = "create"
	Update  Action = "update"
	Rename  Action = "rename"
	Replace Action = "replace"
	Delete  Action = "delete"
)

// A Change is a change of one resource.
type Change struct {
	ID      string
	Action  Action
	Kind    *model.Kind
	Wanted  *model.Resource // nil if it is deleted
	Current *model.Resource // nil if it is created; with its new path if a folder above it is renamed
	Was     string          // path before a rename
	Fields  []FieldChange
}

// A FieldChange is the change of a field. A value that is nil is absent.
type FieldChange struct {
	Name     string
	Old, New model.Value
}

// Label describes the resource.
func (c *Change) Label() string {
	if c.Wanted != nil {
		return c.Wanted.Label()
	}
	return c.Current.Label()
}

// A Plan is the changes, and what they leave alone.
type Plan struct {
	Changes []*Change
	// Unnamed counts the resources of managed kinds that the file does not name, and that
	// are not deleted, by kind.
	Unnamed map[string]int
	// Unread are managed kinds that were not compared, because the caller may not read them.
	Unread []*model.Kind

	current, wanted *model.Model
	created         map[string]*Change // by kind and key
	deleted         map[*model.Resource]bool
}

// Options are the choices of the person who asks for a plan.
type Options struct {
	Prune   bool // delete resources of managed kinds that the file does not name
	Secrets bool // send the secrets of existing resources again, because nobody can compare them
}

// Diff returns the changes that make current equal to wanted in the kinds that wanted
// manages. It renames resources of current. It returns format.Mistakes if wanted contradicts
// itself.
func Diff(current, wanted *model.Model, o Options) (*Plan, error) {
	p := &Plan{Unnamed: map[string]int{}, current: current, wanted: wanted, created: map[string]*Change{},
		deleted: map[*model.Resource]bool{}}
	renames, err := p.renames()
	if err != nil {
		return nil, err
	}
	var creates, updates, replaces, deletes []*Change
	for _, k := range model.Kinds {
		if !wanted.Manages(k) {
			continue
		}
		if !current.Manages(k) {
			p.Unread = append(p.Unread, k)
			continue
		}
		for _, r := range wanted.Sorted(k) {
			switch c := compare(current.Resources[k.Name][r.Key()], r, o); {
			case c == nil:
			case c.Action == Create:
				creates = append(creates, c)
				p.created[k.Name+"\x00"+r.Key()] = c
			case c.Action == Replace:
				replaces = append(replaces, c)
				p.created[k.Name+"\x00"+r.Key()] = c
			default:
				updates = append(updates, c)
			}
		}
		deletes = append(deletes, p.unnamed(k, o.Prune)...)
	}
	slices.Reverse(deletes)
	p.Changes = slices.Concat(renames, replaces, p.sourcesFirst(creates), updates, deletes)
	for i, c := range p.Changes {
		c.ID = fmt.Sprintf("c%d", i+1)
	}
	return p, p.checkReferences()
}

// compare returns the change that makes current equal to wanted, or nil if it is.
func compare(current, wanted *model.Resource, o Options) *Change {
	c := &Change{Action: Create, Kind: wanted.Kind, Wanted: wanted, Current: current}
	var old map[string]model.Value
	if current != nil {
		c.Action, old = Update, current.Fields
		if !wanted.Kind.Changeable() {
			c.Action = Replace
		}
	}
	for i := range wanted.Kind.Fields {
		f := &wanted.Kind.Fields[i]
		was, is := old[f.Name], wanted.Fields[f.Name]
		switch {
		case f.Secret && (is == nil || current != nil && !o.Secrets):
		case is == nil && wanted.Derives(f):
		case f.Secret || !model.Equal(was, is):
			c.Fields = append(c.Fields, FieldChange{f.Name, was, is})
		}
	}
	if current != nil && len(c.Fields) == 0 {
		return nil
	}
	return c
}

// unnamed returns the deletions of resources of a kind that the file does not name, or only
// counts them.
func (p *Plan) unnamed(k *model.Kind, prune bool) (deletes []*Change) {
	named := p.wanted.Resources[k.Name]
	for _, r := range p.current.Sorted(k) {
		if named[r.Key()] != nil || r.Over || r.Name == model.Root && k.Name == model.Folders {
			continue
		}
		if !prune {
			p.Unnamed[k.Name]++
			continue
		}
		p.deleted[r] = true
		deletes = append(deletes, &Change{Action: Delete, Kind: k, Current: r})
	}
	return deletes
}

// sourcesFirst orders creations so that a resource comes after the resources of its
// kind that it refers to.
func (p *Plan) sourcesFirst(creates []*Change) []*Change {
	ordered := make([]*Change, 0, len(creates))
	visited := make(map[*Change]bool, len(creates))
	var visit func(c *Change)
	visit = func(c *Change) {
		if visited[c] {
			return
		}
		visited[c] = true
		for i := range c.Kind.Fields {
			if f := &c.Kind.Fields[i]; f.Ref == c.Kind.Name {
				if ref, _ := c.Wanted.Fields[f.Name].(string); p.created[f.Ref+"\x00"+ref] != nil {
					visit(p.created[f.Ref+"\x00"+ref])
				}
			}
		}
		ordered = append(ordered, c)
	}
	for _, c := range creates {
		visit(c)
	}
	return ordered
}

// Count returns the number of changes with an action.
func (p *Plan) Count(a Action) (n int) {
	for _, c := range p.Changes {
		if c.Action == a {
			n++
		}
	}
	return n
}

func mistake(r *model.Resource, text string, args ...any) *format.Error {
	return &format.Error{At: r.Source, Text: fmt.Sprintf(text, args...)}
}

// parentKind returns the kind of the resources that contain resources of a kind.
func parentKind(k *model.Kind) string { return cmp.Or(k.Parent, model.Folders) }
