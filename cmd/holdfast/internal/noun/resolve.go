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

// Me is the word for the caller's own identity. Identities is the kind of all identities.
const (
	Me         = "me"
	Identities = "identities"
)

// MaxCandidates is the largest number of resources of the same name that are shown.
const MaxCandidates = 10

// Resolve returns the UID of the resource that text identifies. text can be
//
//   - a UID,
//   - a path of names starting at the organization, acme/platform/ci. It may start
//     with a slash: /acme is the organization, and /viewer a built-in role,
//   - for a person, an e-mail address, the part of it before the @, or a name,
//   - a name, if only one resource of the kind has it. The name of an organization
//     is found even if other groups have the same name.
func (a *App) Resolve(ctx context.Context, n Noun, text string) (string, error) {
	if n.Named != nil {
		n = n.Named()
	}
	switch {
	case settings.IsUID(text):
		return text, nil
	case text == "":
		return "", problem.Usage("the name of %s cannot be empty", article(n.One))
	case text == Me && n.Kind == Identities:
		return a.Self(ctx)
	case n.Locate != nil:
		return n.Locate(ctx, a, text)
	case !n.hasName():
		return "", problem.Usage("%q is not a uid, and %s have no names", text, n.plural())
	}
	path := strings.Split(strings.TrimPrefix(text, "/"), "/")
	if n.Kind == Identities && len(path) == 1 {
		return a.findIdentity(ctx, n, path[0])
	}
	if len(path) == 1 && !strings.HasPrefix(text, "/") {
		return a.FindOne(ctx, n, text, nil, text)
	}
	if n.Kind != "" {
		return a.resolvePath(ctx, n, path, text)
	}
	parent, err := a.groupAt(ctx, path[:len(path)-1])
	if err != nil {
		return "", err
	}
	return a.FindOne(ctx, n, path[len(path)-1], &parent, text)
}

// findIdentity returns the UID of the only person or workload that a text names.
func (a *App) findIdentity(ctx context.Context, n Noun, text string) (string, error) {
	access := accesspb.NewAccessServiceClient(a)
	people, err := access.ResolvePath(ctx, &accesspb.ResolvePathRequest{Kind: n.Kind, Path: text})
	if err != nil && status.Code(err) != codes.NotFound {
		return "", signin.Refused(err, nil)
	}
	uid, err := a.FindOne(ctx, n, text, nil, text)
	found := people.GetResources()
	switch {
	case len(found) == 0 || err == nil && len(found) == 1 && found[0].GetUid() == uid:
		return uid, err
	case len(found) == 1 && err != nil && problem.From(ctx, err).Code == problem.ExitNotFound:
		return found[0].GetUid(), nil
	}
	var lines []string
	for _, p := range found {
		lines = append(lines, a.describePerson(ctx, p.GetUid()))
	}
	if err == nil {
		lines = append(lines, "the workload "+text+"  "+uid)
	}
	return "", n.ambiguous(text, lines)
}

// describePerson returns the name, the e-mail addresses and the UID of a person.
func (a *App) describePerson(ctx context.Context, uid string) string {
	list := accesspb.NewAccessServiceClient(a).ListPeople
	found, err := list(ctx, &accesspb.ListPeopleRequest{Query: uid})
	if err != nil || len(found.GetPeople()) == 0 {
		return uid // the uid is enough to choose
	}
	p := found.GetPeople()[0]
	return cmp.Or(p.GetDisplayName(), p.GetName()) + "  " + strings.Join(p.GetEmails(), ", ") + "  " + uid
}

// resolvePath returns the UID of the only resource at a path. It makes one call, because the
// caller may be allowed to see the resource but none of its parent groups. Errors quote
// text, which is what the person typed.
func (a *App) resolvePath(ctx context.Context, n Noun, path []string, text string) (string, error) {
	req := &accesspb.ResolvePathRequest{Kind: n.Kind, Path: strings.Join(path, "/")}
	resp, err := accesspb.NewAccessServiceClient(a).ResolvePath(ctx, req)
	found := resp.GetResources()
	switch {
	case status.Code(err) == codes.NotFound:
		return "", n.Missing(text)
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

// groupAt returns the UID of the group at a path. It returns "", the root, if path is
// empty.
func (a *App) groupAt(ctx context.Context, path []string) (string, error) {
	if len(path) == 0 {
		return "", nil
	}
	return a.resolvePath(ctx, Groups(), path, strings.Join(path, "/"))
}

// ResolveAny is like Resolve, but returns "" if text is "".
func (a *App) ResolveAny(ctx context.Context, n Noun, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	return a.Resolve(ctx, n, text)
}

// FindOne returns the UID of the only resource with a name directly below parent. If
// parent is nil, the resource can be anywhere, and an organization is preferred to other
// groups. Errors quote text, which is what the person typed.
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

// Within limits a list to the resources at any depth below a group, if group is not "".
func (a *App) Within(ctx context.Context, group string, req proto.Message) error {
	uid, err := a.ResolveAny(ctx, Groups(), group)
	if uid != "" {
		Put(req.ProtoReflect(), "uidp.descendants_of", uid)
	}
	return err
}

// childrenOf limits a list to the resources directly below a parent, if parent is not
// nil. The root is "".
func childrenOf(req protoreflect.Message, parent *string) {
	switch {
	case parent == nil:
	case *parent == "":
		Put(req, "uidp.in_root", true)
	default:
		Put(req, "uidp.children_of", *parent)
	}
}

// single returns the UID of the only resource in found, or a problem if found does not
// have exactly one.
func (a *App) single(ctx context.Context, n Noun, text string, found []protoreflect.Message) (string, error) {
	switch len(found) {
	case 0:
		return "", n.Missing(text)
	case 1:
		return UIDOf(found[0]), nil
	}
	lines := a.pathsOf(ctx, found)
	for i, m := range found {
		lines[i] += "  " + UIDOf(m)
	}
	return "", n.ambiguous(text, lines)
}

// Missing returns the problem that there is no resource called text.
func (n Noun) Missing(text string) *problem.Problem {
	p := problem.New(problem.ExitNotFound, "there is no %s %q that you can see", n.One, text)
	if n.Kind == Identities {
		p = p.Hint("list people: holdfast iam people list")
	}
	return p.Hint("list them: holdfast " + cmp.Or(n.Area, "iam") + " " + n.Use + " list")
}

// ambiguous returns the problem that several resources are called text. lines contains
// the path and UID of each. If it has more than MaxCandidates lines, only so many are
// shown.
func (n Noun) ambiguous(text string, lines []string) *problem.Problem {
	count := fmt.Sprint(len(lines))
	if len(lines) > MaxCandidates {
		lines, count = lines[:MaxCandidates], fmt.Sprintf("more than %d", MaxCandidates)
	}
	slices.Sort(lines)
	p := problem.Usage("%s %s are called %q", count, n.plural(), text)
	return p.Hint("use the path or uid of one of these:").Hint(lines...)
}

// UIDOf returns the UID of a resource.
func UIDOf(m protoreflect.Message) string {
	return m.Get(m.Descriptor().Fields().ByName("uid")).String()
}

func nameOf(m protoreflect.Message) string {
	return m.Get(m.Descriptor().Fields().ByName("name")).String()
}

// ParentUID returns the UID of a resource's parent, or "" if it has none.
func ParentUID(uid string) string {
	return uid[:max(0, strings.LastIndexByte(uid, '/'))]
}

// pathsOf returns the paths of resources. Three dots replace the name of a group that the
// caller cannot see.
func (a *App) pathsOf(ctx context.Context, resources []protoreflect.Message) []string {
	method := Groups().Method("List")
	req := NewMessage(method.Input())
	_, fd := open(req, "uidp.ids")
	ids := req.Mutable(req.Descriptor().Fields().ByName("uidp")).Message().Mutable(fd).List()
	for _, m := range resources {
		for uid := ParentUID(UIDOf(m)); uid != ""; uid = ParentUID(uid) {
			ids.Append(protoreflect.ValueOfString(uid))
		}
	}
	names := map[string]string{}
	if ids.Len() > 0 {
		for m, err := range a.Items(ctx, method, req, Paging{}) {
			if err != nil {
				break // paths in which names are missing are good enough
			}
			names[UIDOf(m)] = nameOf(m)
		}
	}
	paths := make([]string, len(resources))
	for i, m := range resources {
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
