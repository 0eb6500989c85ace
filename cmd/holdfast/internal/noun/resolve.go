package noun

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
)

// MaxCandidates is how many resources of the same name are shown.
const MaxCandidates = 10

// Resolve finds the uid of what a person has named. That can be
//
//   - a uid,
//   - a path of names from the organization down, acme/platform/ci, which may
//     start with a slash: /acme is the organization, and /viewer a built-in role,
//   - a name alone, if only one resource of the kind has it.
func (a *App) Resolve(ctx context.Context, n Noun, text string) (string, error) {
	if n.Named != nil {
		n = n.Named()
	}
	switch {
	case settings.IsUID(text):
		return text, nil
	case text == "":
		return "", problem.Usage("%s has no empty name", article(n.One))
	case n.Locate != nil:
		return n.Locate(ctx, a, text)
	case !n.hasName():
		return "", problem.Usage("%q is not a uid, and %s have no names", text, n.plural())
	}
	path := strings.Split(strings.TrimPrefix(text, "/"), "/")
	if len(path) == 1 && !strings.HasPrefix(text, "/") {
		return a.FindOne(ctx, n, text, nil, text)
	}
	parent, err := a.walkDown(ctx, path[:len(path)-1])
	if err != nil {
		return "", err
	}
	return a.FindOne(ctx, n, path[len(path)-1], &parent, text)
}

// ResolveAny is like Resolve, but returns "" for "".
func (a *App) ResolveAny(ctx context.Context, n Noun, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	return a.Resolve(ctx, n, text)
}

// walkDown follows names of groups from an organization down. Without names it
// returns the root, "".
func (a *App) walkDown(ctx context.Context, path []string) (uid string, err error) {
	for i, name := range path {
		if uid, err = a.FindOne(ctx, Groups(), name, &uid, strings.Join(path[:i+1], "/")); err != nil {
			return "", err
		}
	}
	return uid, nil
}

// FindOne returns the uid of the only resource that has a name directly below a
// parent. text is what the person wrote.
func (a *App) FindOne(ctx context.Context, n Noun, name string, parent *string, text string) (string, error) {
	method := n.Method("List")
	req := NewMessage(method.Input())
	Put(req, "name", name)
	childrenOf(req, parent)
	var found []protoreflect.Message
	for m, err := range a.Items(ctx, method, req, Paging{limit: MaxCandidates + 1}) {
		if err != nil {
			return "", err
		}
		found = append(found, m)
	}
	return a.single(ctx, n, text, found)
}

// Within narrows a list to what is at any depth below a group, if one is named.
func (a *App) Within(ctx context.Context, group string, req proto.Message) error {
	uid, err := a.ResolveAny(ctx, Groups(), group)
	if uid != "" {
		Put(req.ProtoReflect(), "uidp.descendants_of", uid)
	}
	return err
}

// childrenOf narrows a list to what is directly below a parent, if that is not nil.
// The root is "".
func childrenOf(req protoreflect.Message, parent *string) {
	switch {
	case parent == nil:
	case *parent == "":
		Put(req, "uidp.in_root", true)
	default:
		Put(req, "uidp.children_of", *parent)
	}
}

// single returns the uid of the only resource, or a problem if there is not one.
func (a *App) single(ctx context.Context, n Noun, text string, found []protoreflect.Message) (string, error) {
	switch len(found) {
	case 0:
		return "", problem.New(problem.ExitNotFound, "there is no %s %q that you can see", n.One, text).
			Hint("those there are: holdfast " + cmp.Or(n.Area, "iam") + " " + n.Use + " list")
	case 1:
		return UIDOf(found[0]), nil
	}
	count := fmt.Sprint(len(found))
	if len(found) > MaxCandidates {
		found = found[:MaxCandidates]
		count = fmt.Sprintf("more than %d", MaxCandidates)
	}
	p := problem.Usage("%s %s are called %q", count, n.plural(), text)
	p.Hints = []string{"give the path or uid of one:"}
	paths := a.pathsOf(ctx, found)
	for i, m := range found {
		p.Hints = append(p.Hints, paths[i]+"  "+UIDOf(m))
	}
	slices.Sort(p.Hints[1:])
	return "", p
}

// UIDOf returns the uid of a resource.
func UIDOf(m protoreflect.Message) string {
	return m.Get(m.Descriptor().Fields().ByName("uid")).String()
}

func nameOf(m protoreflect.Message) string {
	return m.Get(m.Descriptor().Fields().ByName("name")).String()
}

// ParentUID returns the uid of what a resource is in, or "".
func ParentUID(uid string) string {
	return uid[:max(0, strings.LastIndexByte(uid, '/'))]
}

// pathsOf returns the paths of resources. A group that the caller cannot see is
// written as three dots.
func (a *App) pathsOf(ctx context.Context, all []protoreflect.Message) []string {
	method := Groups().Method("List")
	req := NewMessage(method.Input())
	_, fd := open(req, "uidp.ids")
	ids := req.Mutable(req.Descriptor().Fields().ByName("uidp")).Message().Mutable(fd).List()
	for _, m := range all {
		for uid := ParentUID(UIDOf(m)); uid != ""; uid = ParentUID(uid) {
			ids.Append(protoreflect.ValueOfString(uid))
		}
	}
	names := map[string]string{}
	if ids.Len() > 0 {
		for m, err := range a.Items(ctx, method, req, Paging{}) {
			if err != nil {
				break // the uids are enough to go on with
			}
			names[UIDOf(m)] = nameOf(m)
		}
	}
	paths := make([]string, len(all))
	for i, m := range all {
		paths[i] = pathOf(m, names)
	}
	return paths
}

func pathOf(m protoreflect.Message, names map[string]string) string {
	path := nameOf(m)
	for uid := ParentUID(UIDOf(m)); uid != ""; uid = ParentUID(uid) {
		name, ok := names[uid]
		if !ok {
			name = "..."
		}
		path = name + "/" + path
	}
	return "/" + path
}
