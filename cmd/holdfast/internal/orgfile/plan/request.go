package plan

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
)

// A Request is a request of the API that makes a change, or a part of it.
type Request struct {
	ID      string // the ID of the change; a deletion that precedes a creation has a suffix
	Source  string // position in the file, or ""
	Method  protoreflect.MethodDescriptor
	Message proto.Message
}

// A Maker turns changes into requests.
type Maker struct {
	// Outside has the UIDs of references that are not relative paths, by kind.
	Outside map[string]map[string]string
	// Secret returns the value of a reference to a secret.
	Secret func(ref string) (string, error)
}

// Requests returns the requests of a plan, in order.
func (m Maker) Requests(p *Plan) (all []Request, _ error) {
	for _, c := range p.Changes {
		requests, err := m.requests(p, c)
		if err != nil {
			return nil, err
		}
		all = append(all, requests...)
	}
	return all, nil
}

func (m Maker) requests(p *Plan, c *Change) ([]Request, error) {
	switch c.Action {
	case Create:
		return m.create(p, c)
	case Delete:
		return []Request{remove(c, "")}, nil
	case Rename:
		return []Request{rename(c)}, nil
	case Replace:
		created, err := m.create(p, c)
		return slices.Concat([]Request{remove(c, "-old")}, created), err
	}
	return m.update(p, c, c.Current.UID)
}

func (m Maker) create(p *Plan, c *Change) ([]Request, error) {
	parent := p.lookUp(parentKind(c.Kind), c.Wanted.In)
	if c.Kind.Here {
		return m.update(p, c, parent)
	}
	method := c.Kind.Method("Create")
	req := noun.NewMessage(method.Input())
	noun.Put(req, "parent", parent)
	body := req.Mutable(c.Kind.Body(method.Input())).Message()
	if c.Kind.Named() {
		noun.Put(body, "name", c.Wanted.Name)
	}
	if err := m.fill(p, c, body); err != nil {
		return nil, err
	}
	return []Request{{c.ID, c.Wanted.Source.String(), method, req.Interface()}}, nil
}

func (m Maker) update(p *Plan, c *Change, uid string) ([]Request, error) {
	method := c.Kind.Method("Update")
	req := noun.NewMessage(method.Input())
	body := req.Mutable(c.Kind.Body(method.Input())).Message()
	noun.Put(body, "uid", uid)
	if err := m.fill(p, c, body); err != nil {
		return nil, err
	}
	mask := &fieldmaskpb.FieldMask{}
	for _, change := range c.Fields {
		path := maskPath(c.Kind, c.Kind.Field(change.Name))
		if !slices.Contains(mask.Paths, path) {
			mask.Paths = append(mask.Paths, path)
		}
	}
	noun.Put(req, "update_mask", mask.ProtoReflect())
	return []Request{{c.ID, c.Wanted.Source.String(), method, req.Interface()}}, nil
}

// maskPath returns the path of a field in an update mask. A message is replaced as a whole,
// unless it contains a secret, which would be lost.
func maskPath(k *model.Kind, f *model.Field) string {
	outer, _, nested := strings.Cut(f.Path, ".")
	secret := func(f model.Field) bool { return f.Secret && strings.HasPrefix(f.Path, outer+".") }
	if nested && slices.ContainsFunc(k.Fields, secret) {
		return f.Path
	}
	return outer
}

// fill sets the fields of a resource. A field that the server would choose keeps its
// current value.
func (m Maker) fill(p *Plan, c *Change, body protoreflect.Message) error {
	for i := range c.Kind.Fields {
		f := &c.Kind.Fields[i]
		v := c.Wanted.Fields[f.Name]
		if v == nil && c.Wanted.Derives(f) && c.Current != nil {
			v = c.Current.Fields[f.Name]
		}
		sent := !f.Secret || slices.ContainsFunc(c.Fields, func(change FieldChange) bool { return change.Name == f.Name })
		if v == nil || !sent {
			continue
		}
		v, err := m.final(p, f, v)
		if err == nil {
			err = c.Kind.Put(f, body, v)
		}
		if err != nil {
			return mistake(c.Wanted, "%s: %s", f.Name, err)
		}
	}
	return nil
}

// final returns a value as the API has it: UIDs instead of paths, and secrets.
func (m Maker) final(p *Plan, f *model.Field, v model.Value) (model.Value, error) {
	switch v := v.(type) {
	case string:
		if f.Secret {
			return m.Secret(v)
		}
		if f.Ref != "" {
			return m.uid(p, f, v)
		}
	case []string:
		if f.Ref == "" {
			return v, nil
		}
		var uids []string
		for _, ref := range v {
			uid, err := m.uid(p, f, ref)
			if err != nil {
				return nil, err
			}
			uids = append(uids, uid)
		}
		return uids, nil
	}
	return v, nil
}

func (m Maker) uid(p *Plan, f *model.Field, ref string) (string, error) {
	uid := ""
	if model.IsRelative(ref) {
		uid = p.Find(f, ref)
	} else if uid = m.Outside[f.Ref][ref]; uid == "" {
		uid, _ = trimUID(ref)
	}
	if uid == "" {
		return "", fmt.Errorf("there is no %s", ref)
	}
	return uid, nil
}

func remove(c *Change, suffix string) Request {
	method := c.Kind.Method("Delete")
	req := noun.NewMessage(method.Input())
	noun.Put(req, "uid", c.Current.UID)
	source := ""
	if c.Wanted != nil {
		source = c.Wanted.Source.String()
	}
	return Request{c.ID + suffix, source, method, req.Interface()}
}

func rename(c *Change) Request {
	method := c.Kind.Method("Update")
	req := noun.NewMessage(method.Input())
	body := req.Mutable(c.Kind.Body(method.Input())).Message()
	noun.Put(body, "uid", c.Current.UID)
	noun.Put(body, "name", c.Wanted.Name)
	noun.Put(req, "update_mask", (&fieldmaskpb.FieldMask{Paths: []string{"name"}}).ProtoReflect())
	return Request{c.ID, c.Wanted.Source.String(), method, req.Interface()}
}
