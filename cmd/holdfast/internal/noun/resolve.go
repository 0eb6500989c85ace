package noun

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
)

// Me is how a person names the identity that they act as, and Identities the kind of all
// identities.
const (
	Me         = "me"
	Identities = "identities"
)

// MaxCandidates is how many resources of the same name are shown.
const MaxCandidates = 10

// Resolve finds the uid of what a person has named. That can be
//
//   - a uid,
//   - a path of names from the organization down, acme/platform/ci, which may
//     start with a slash: /acme is the organization, and /viewer a built-in role,
//   - a name alone, if only one resource of the kind has it, or if it is that of an
//     organization, whatever others call their groups.
func (a *App) Resolve(ctx context.Context, n Noun, text string) (string, error) {
	if n.Named != nil {
		n = n.Named()
	}
	switch {
	case settings.IsUID(text):
		return text, nil
	case text == "":
		return "", problem.Usage("%s has no empty name", article(n.One))
	case text == Me && n.Kind == Identities:
		return a.Self(ctx)
	case n.Locate != nil:
		return n.Locate(ctx, a, text)
	case !n.hasName():
		return "", problem.Usage("%q is not a uid, and %s have no names", text, n.plural())
	}
	path := strings.Split(strings.TrimPrefix(text, "/"), "/")
	if len(path) == 1 && !strings.HasPrefix(text, "/") {
		return a.FindOne(ctx, n, text, nil, text)
	}
	if n.Kind != "" {
		return a.at(ctx, n, path, text)
	}
	parent, err := a.groupAt(ctx, path[:len(path)-1])
	if err != nil {
		return "", err
	}
	return a.FindOne(ctx, n, path[len(path)-1], &parent, text)
}

// at returns the uid of the only resource at a path. The server finds it in one call,
// because the caller may see it and none of the groups above. text is what the person
// wrote.
func (a *App) at(ctx context.Context, n Noun, path []string, text string) (string, error) {
	req := &accesspb.ResolvePathRequest{Kind: n.Kind, Path: strings.Join(path, "/")}
	resp, err := accesspb.NewAccessServiceClient(a).ResolvePath(ctx, req)
	found := resp.GetResources()
	switch {
	case status.Code(err) == codes.Unimplemented: // a server of an earlier version
		return a.walkDown(ctx, n, path, text)
	case status.Code(err) == codes.NotFound:
		return "", n.missing(text)
	case err != nil:
		return "", signin.Refused(err, nil)
	case len(found) == 1:
		return found[0].GetUid(), nil
	}
	var lines []string
	for _, r := range found {
		lines = append(lines, r.GetPath()+"  "+r.GetUid())
	}
	return "", n.ambiguous(text, lines)
}

// groupAt returns the uid of the group at a path. Without names it returns the root, "".
func (a *App) groupAt(ctx context.Context, path []string) (string, error) {
	if len(path) == 0 {
		return "", nil
	}
	return a.at(ctx, Groups(), path, strings.Join(path, "/"))
}

// ResolveAny is like Resolve, but returns "" for "".
func (a *App) ResolveAny(ctx context.Context, n Noun, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	return a.Resolve(ctx, n, text)
}

// walkDown follows a path a name at a time. It finds what is below groups that the
// caller can see.
func (a *App) walkDown(ctx context.Context, n Noun, path []string, text string) (uid string, err error) {
	last := len(path) - 1
	for i, name := range path[:last] {
		if uid, err = a.FindOne(ctx, Groups(), name, &uid, strings.Join(path[:i+1], "/")); err != nil {
			return "", err
		}
	}
	return a.FindOne(ctx, n, path[last], &uid, text)
}

// FindOne returns the uid of the only resource that has a name directly below a
// parent; without one, of the only one that has it anywhere, or of the organization.
// text is what the person wrote.
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
	if len(found) > 1 && parent == nil && n.Kind == Groups().Kind {
		if uid, err := a.FindOne(ctx, n, name, new(""), text); err == nil {
			return uid, nil
		}
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
		return "", n.missing(text)
	case 1:
		return UIDOf(found[0]), nil
	}
	lines := a.pathsOf(ctx, found)
	for i, m := range found {
		lines[i] += "  " + UIDOf(m)
	}
	return "", n.ambiguous(text, lines)
}

// missing is the problem that nothing is called text.
func (n Noun) missing(text string) *problem.Problem {
	return problem.New(problem.ExitNotFound, "there is no %s %q that you can see", n.One, text).
		Hint("those there are: holdfast " + cmp.Or(n.Area, "iam") + " " + n.Use + " list")
}

// ambiguous is the problem that several are called text. lines has the path and uid of
// each, one more than are shown if there are more than that.
func (n Noun) ambiguous(text string, lines []string) *problem.Problem {
	count := fmt.Sprint(len(lines))
	if len(lines) > MaxCandidates {
		lines, count = lines[:MaxCandidates], fmt.Sprintf("more than %d", MaxCandidates)
	}
	slices.Sort(lines)
	p := problem.Usage("%s %s are called %q", count, n.plural(), text)
	return p.Hint("give the path or uid of one:").Hint(lines...)
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
			name = unknownGroup
		}
		path = name + "/" + path
	}
	return "/" + path
}
