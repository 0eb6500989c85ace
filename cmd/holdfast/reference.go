package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var uidPattern = regexp.MustCompile(`^[0-9a-f]{40}(/[0-9a-f]{16})*$`)

func isUID(s string) bool { return uidPattern.MatchString(s) }

// maxCandidates is how many resources of one name a person is shown.
const maxCandidates = 10

// resolve finds the uid of what a person has named. That can be
//
//   - a uid,
//   - a path of names from the organization down, acme/platform/ci, which may
//     start with a slash: /acme is the organization, and /viewer a built-in role,
//   - a name alone, if only one resource of the kind has it.
func (a *app) resolve(ctx context.Context, n noun, text string) (string, error) {
	if n.named != nil {
		n = n.named()
	}
	switch {
	case isUID(text):
		return text, nil
	case text == "":
		return "", usage("%s has no empty name", article(n.one))
	case n.locate != nil:
		return n.locate(ctx, a, text)
	case !n.hasName():
		return "", usage("%q is not a uid, and %s have no names", text, n.plural())
	}
	path := strings.Split(strings.TrimPrefix(text, "/"), "/")
	if len(path) == 1 && !strings.HasPrefix(text, "/") {
		return a.findOne(ctx, n, text, nil, text)
	}
	parent, err := a.walkDown(ctx, path[:len(path)-1])
	if err != nil {
		return "", err
	}
	return a.findOne(ctx, n, path[len(path)-1], &parent, text)
}

// resolveAny is like resolve, but "" stays "".
func (a *app) resolveAny(ctx context.Context, n noun, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	return a.resolve(ctx, n, text)
}

// walkDown follows names of groups from an organization down. No names lead to
// the root, "".
func (a *app) walkDown(ctx context.Context, path []string) (uid string, err error) {
	for i, name := range path {
		if uid, err = a.findOne(ctx, groups(), name, &uid, strings.Join(path[:i+1], "/")); err != nil {
			return "", err
		}
	}
	return uid, nil
}

// findOne finds the uid of the only one that has a name directly below a parent.
// text is how the person has named it.
func (a *app) findOne(ctx context.Context, n noun, name string, parent *string, text string) (string, error) {
	method := n.method("List")
	req := newMessage(method.Input())
	put(req, "name", name)
	childrenOf(req, parent)
	var found []protoreflect.Message
	for m, err := range a.items(ctx, method, req, paging{limit: maxCandidates + 1}) {
		if err != nil {
			return "", err
		}
		found = append(found, m)
	}
	return a.single(ctx, n, text, found)
}

// within narrows a list to what is at any depth below a group, if one is named.
func (a *app) within(ctx context.Context, group string, req proto.Message) error {
	uid, err := a.resolveAny(ctx, groups(), group)
	if uid != "" {
		put(req.ProtoReflect(), "uidp.descendants_of", uid)
	}
	return err
}

// childrenOf narrows a list to what is directly below a parent: nil is anywhere,
// and "" the root.
func childrenOf(req protoreflect.Message, parent *string) {
	switch {
	case parent == nil:
	case *parent == "":
		put(req, "uidp.in_root", true)
	default:
		put(req, "uidp.children_of", *parent)
	}
}

// single returns the uid of the one that was found, or a problem that says what
// to do when it is not one.
func (a *app) single(ctx context.Context, n noun, text string, found []protoreflect.Message) (string, error) {
	switch len(found) {
	case 0:
		return "", newProblem(exitNotFound, "there is no %s %q that you can see", n.one, text).hint("those there are: holdfast " + n.under() + " " + n.use + " list")
	case 1:
		return uidOf(found[0]), nil
	}
	count := fmt.Sprint(len(found))
	if len(found) > maxCandidates {
		found = found[:maxCandidates]
		count = fmt.Sprintf("more than %d", maxCandidates)
	}
	p := usage("%s %s are called %q", count, n.plural(), text)
	p.hints = []string{"give the path or uid of one:"}
	paths := a.pathsOf(ctx, found)
	for i, m := range found {
		p.hints = append(p.hints, paths[i]+"  "+uidOf(m))
	}
	slices.Sort(p.hints[1:])
	return "", p
}

func uidOf(m protoreflect.Message) string {
	return m.Get(m.Descriptor().Fields().ByName("uid")).String()
}

func nameOf(m protoreflect.Message) string {
	return m.Get(m.Descriptor().Fields().ByName("name")).String()
}

func parentUID(uid string) string {
	return uid[:max(0, strings.LastIndexByte(uid, '/'))]
}

// pathsOf writes the paths of resources. A group above that the caller cannot
// see is three dots.
func (a *app) pathsOf(ctx context.Context, all []protoreflect.Message) []string {
	method := groups().method("List")
	req := newMessage(method.Input())
	_, fd := open(req, "uidp.ids")
	ids := req.Mutable(req.Descriptor().Fields().ByName("uidp")).Message().Mutable(fd).List()
	for _, m := range all {
		for uid := parentUID(uidOf(m)); uid != ""; uid = parentUID(uid) {
			ids.Append(protoreflect.ValueOfString(uid))
		}
	}
	names := map[string]string{}
	if ids.Len() > 0 {
		for m, err := range a.items(ctx, method, req, paging{}) {
			if err != nil {
				break // the uids are enough to go on with
			}
			names[uidOf(m)] = nameOf(m)
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
	for uid := parentUID(uidOf(m)); uid != ""; uid = parentUID(uid) {
		name, ok := names[uid]
		if !ok {
			name = "..."
		}
		path = name + "/" + path
	}
	return "/" + path
}
