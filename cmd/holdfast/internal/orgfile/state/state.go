// Package state reads an organization through the API into the model that files have.
//
// Lists are read concurrently, page by page. A kind that the caller may not read completely
// is reported as unreadable and is not in the model, because hidden is not empty.
package state

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	annotationspb "github.com/holdfast-dev/holdfast/gen/annotations"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// A State is the part of an organization that the caller may read.
type State struct {
	*model.Model
	Unreadable []Unreadable
	// Unclear are resources that have the name of another one, so that no path identifies
	// them. They are not in the model.
	Unclear []*model.Resource

	app     *noun.App
	managed []*iampb.Role     // read when they are needed
	paths   map[string]string // paths of resources of this model, of managed roles and of people, by UID
	uids    map[string]string // UIDs by kind and reference
	mu      sync.Mutex
}

// Unreadable is a kind that the caller may not read completely.
type Unreadable struct {
	Kind       *model.Kind
	Capability string // what the caller lacks on the group
}

// String says what is not known.
func (u Unreadable) String() string {
	return fmt.Sprintf("%s: not read, because you do not have %s on the group", u.Kind.Name, u.Capability)
}

// A row is a resource with references that are still UIDs.
type row struct {
	resource *model.Resource
	parent   string // UID
}

// Read reads the kinds with the names of wanted. Folders are always read, because the
// paths of everything else are made of them.
func Read(ctx context.Context, a *noun.App, groupUID, groupPath string, wanted []string) (*State, error) {
	s := &State{Model: model.New(groupPath), app: a, paths: map[string]string{}, uids: map[string]string{}}
	s.GroupUID = groupUID
	kinds, err := s.readable(ctx, wanted)
	if err != nil {
		return nil, err
	}
	rows := make([][]row, len(model.Kinds))
	g, listing := errgroup.WithContext(ctx)
	g.SetLimit(6)
	for i, k := range model.Kinds {
		if !slices.Contains(kinds, k) {
			continue
		}
		g.Go(func() (err error) {
			rows[i], err = s.list(listing, k)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := s.build(ctx, rows); err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if slices.Contains(wanted, k.Name) {
			s.Managed = append(s.Managed, k.Name)
		}
	}
	return s, nil
}

// readable returns the kinds to read: the wanted kinds, and the kinds that they refer to. It
// notes the kinds that the caller may not read on the whole group.
func (s *State) readable(ctx context.Context, wanted []string) (kinds []*model.Kind, _ error) {
	me, err := s.self(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range model.Kinds {
		asked := slices.Contains(wanted, k.Name)
		if !asked && !referredTo(k, wanted) {
			continue
		}
		lack, err := s.lacks(ctx, me, k)
		switch {
		case err != nil:
			return nil, err
		case lack == "":
			kinds = append(kinds, k)
		case k.Name == model.Folders:
			return nil, problem.New(problem.ExitDenied, "you do not have %s on %s, so its folders are hidden", lack, s.Group)
		case asked:
			s.Unreadable = append(s.Unreadable, Unreadable{k, lack})
		}
	}
	return kinds, nil
}

// self returns the UID of the caller. It refuses a narrowed token, because its lists leave
// out what it is not narrowed to.
func (s *State) self(ctx context.Context) (string, error) {
	token, err := s.app.TokenFor(ctx, "")
	if err != nil {
		return "", err
	}
	var claims struct {
		Capabilities json.RawMessage `json:"cap"`
		Groups       json.RawMessage `json:"scopes"`
		Registry     json.RawMessage `json:"access"`
	}
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return "", problem.New(problem.ExitUnauthenticated, "the token does not say whether it is narrowed")
	}
	if claims.Capabilities != nil || claims.Groups != nil || claims.Registry != nil {
		return "", problem.New(problem.ExitDenied,
			"the token is narrowed, so what it hides cannot be told from what does not exist").Hint(
			"use a token that is not narrowed to capabilities, groups or repos")
	}
	return s.app.Self(ctx)
}

// referredTo reports whether the paths of a kind are needed to read the wanted kinds.
func referredTo(k *model.Kind, wanted []string) bool {
	if k.Name == model.Folders {
		return true
	}
	for _, w := range model.Kinds {
		if !slices.Contains(wanted, w.Name) {
			continue
		}
		if w.Parent == k.Name || slices.ContainsFunc(w.Fields, func(f model.Field) bool { return f.RefersTo(k.Name) }) {
			return true
		}
	}
	return false
}

// lacks returns the capability that the caller needs on the group to list all resources of
// a kind and does not have, or "".
func (s *State) lacks(ctx context.Context, me string, k *model.Kind) (string, error) {
	for _, capability := range Capabilities(k.Method("List")) {
		req := &accesspb.CheckAccessRequest{IdentityUid: me, Capability: capability, PlaceUid: s.GroupUID, VerdictOnly: true}
		got, err := accesspb.NewAccessServiceClient(s.app).CheckAccess(ctx, req)
		if status.Code(err) == codes.PermissionDenied || err == nil && !got.GetAllowed() {
			return capability, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// Capabilities returns the names of the capabilities that a method needs.
func Capabilities(m protoreflect.MethodDescriptor) (names []string) {
	rules, _ := proto.GetExtension(m.Options(), annotationspb.E_Iam).(*annotationspb.IAM)
	for _, c := range rules.GetEnabled().GetCapabilities() {
		names = append(names, output.EnumWord(c.Descriptor().Values().ByNumber(c.Number())))
	}
	return names
}

// list reads all resources of a kind in the group and below it.
func (s *State) list(ctx context.Context, k *model.Kind) (rows []row, _ error) {
	method := k.Method("List")
	req := noun.NewMessage(method.Input())
	noun.Put(req, "uidp.descendants_of", s.GroupUID)
	for m, err := range s.app.Items(ctx, method, req, noun.Paging{OrderBy: "uid"}) {
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", k.Name, err)
		}
		if r := s.row(k, m); !k.Here || len(r.resource.Fields) > 0 {
			rows = append(rows, r)
		}
	}
	if k.Name != model.Folders {
		return rows, nil
	}
	m, err := s.app.Get(ctx, noun.Groups(), s.GroupUID)
	if err != nil {
		return nil, err
	}
	r := s.row(k, m)
	r.resource.Name = model.Root
	return append(rows, r), nil
}

func (s *State) row(k *model.Kind, m protoreflect.Message) row {
	uid := noun.UIDOf(m)
	r := &model.Resource{Kind: k, UID: uid, Over: k.Over != nil && k.Over(m)}
	if k.Named() {
		r.Name = m.Get(m.Descriptor().Fields().ByName("name")).String()
	}
	for i := range k.Fields {
		f := &k.Fields[i]
		v := k.Take(f, m)
		if v == nil {
			continue
		}
		if r.Fields == nil {
			r.Fields = map[string]model.Value{}
		}
		r.Fields[f.Name] = v
		s.notice(f, m)
	}
	if k.Here {
		return row{r, uid}
	}
	return row{r, noun.ParentUID(uid)}
}

// notice remembers names that the answer has next to the UIDs of references: of managed
// roles, and e-mail addresses of people.
func (s *State) notice(f *model.Field, m protoreflect.Message) {
	outer, ok := strings.CutSuffix(f.Read, ".uid")
	if !ok {
		return
	}
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(outer))
	target := m.Get(fd).Message()
	uid := noun.UIDOf(target)
	if strings.Contains(uid, "/") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Ref == model.Roles {
		s.paths[uid] = "/" + target.Get(target.Descriptor().Fields().ByName("name")).String()
		return
	}
	if email := target.Descriptor().Fields().ByName("email"); email != nil && target.Get(email).String() != "" {
		s.paths[uid] = strings.ToLower(target.Get(email).String())
	}
}
