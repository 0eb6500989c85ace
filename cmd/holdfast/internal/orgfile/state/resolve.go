package state

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/format"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// A Resolution is what references of a file to resources outside of its group mean.
type Resolution struct {
	UIDs      map[string]map[string]string // by kind and reference
	Spellings map[string]map[string]string // how the state writes the same reference
}

// Resolve finds the resources of references, by the kind that they refer to. Each reference
// has a resource of the file that contains it. It returns format.Mistakes if there are
// references that nothing has, or several people.
func (s *State) Resolve(ctx context.Context, outside map[string]map[string]*model.Resource) (Resolution, error) {
	r := Resolution{UIDs: map[string]map[string]string{}, Spellings: map[string]map[string]string{}}
	roles, err := s.ManagedRoles(ctx)
	if err != nil {
		return r, err
	}
	var mistakes format.Mistakes
	for kind, refs := range outside {
		r.UIDs[kind], r.Spellings[kind] = map[string]string{}, map[string]string{}
		for ref, from := range refs {
			uid, err := s.resolve(ctx, kind, ref, roles)
			if err != nil {
				if len(mistakes) < 20 && isMistake(err) {
					mistakes = append(mistakes, &format.Error{At: from.Source, Text: err.Error()})
					continue
				}
				return r, err
			}
			r.UIDs[kind][ref] = uid
			r.Spellings[kind][ref] = s.spelling(kind, uid)
		}
	}
	slices.SortFunc(mistakes, func(x, y *format.Error) int {
		if x.At.File != y.At.File {
			return strings.Compare(x.At.File, y.At.File)
		}
		return x.At.Line - y.At.Line
	})
	if len(mistakes) > 0 {
		return r, mistakes
	}
	return r, nil
}

// A missing is a reference that does not name exactly one resource.
type missing string

func (m missing) Error() string { return string(m) }

func isMistake(err error) bool {
	_, ok := err.(missing)
	return ok
}

// spelling returns how the state writes a reference, or "" if it does not have it.
func (s *State) spelling(kind, uid string) string {
	if path := s.paths[uid]; path != "" {
		return path
	}
	if s.uids[s.space(kind)+"uid:"+uid] != "" {
		return "uid:" + uid
	}
	return ""
}

func (s *State) resolve(ctx context.Context, kind, ref string, roles []*iampb.Role) (string, error) {
	if uid, ok := strings.CutPrefix(ref, "uid:"); ok {
		return uid, nil
	}
	if kind == model.Identities && !strings.Contains(ref, "/") {
		return s.person(ctx, ref)
	}
	path := strings.TrimPrefix(ref, "/")
	if kind == model.Roles && !strings.Contains(path, "/") {
		for _, role := range roles {
			if role.GetName() == path {
				return role.GetUid(), nil
			}
		}
		if uid := s.uids[s.space(kind)+ref]; uid != "" {
			return uid, nil // the caller may not list roles, but a binding names it
		}
		return "", missing(fmt.Sprintf("there is no managed role %s that you can see", path))
	}
	apiKind := map[string]string{model.Folders: "groups", model.Targets: "groups", model.Roles: "roles",
		model.Identities: noun.Identities, model.Repos: "repos", model.Providers: "identity_providers"}[kind]
	if repo, ok := model.CutRepo(ref); ok {
		apiKind, path = "repos", strings.TrimPrefix(repo, "/")
	}
	req := &accesspb.ResolvePathRequest{Kind: apiKind, Path: path}
	got, err := accesspb.NewAccessServiceClient(s.app).ResolvePath(ctx, req)
	found := got.GetResources()
	switch {
	case status.Code(err) == codes.NotFound || err == nil && len(found) == 0:
		return "", missing(fmt.Sprintf("there is no %s that you can see", ref))
	case err != nil:
		return "", signin.Refused(err, nil)
	case len(found) > 1:
		return "", missing(fmt.Sprintf("%d resources have the path %s: write uid: and the uid of one", len(found), ref))
	}
	return found[0].GetUid(), nil
}

// person returns the UID of the only person with an e-mail address.
func (s *State) person(ctx context.Context, email string) (string, error) {
	for uid, path := range s.paths {
		if path == email {
			return uid, nil
		}
	}
	list := accesspb.NewAccessServiceClient(s.app).ListPeople
	got, err := list(ctx, &accesspb.ListPeopleRequest{Query: email, PageSize: 200})
	if err != nil {
		return "", signin.Refused(err, nil)
	}
	var uids []string
	for _, p := range got.GetPeople() {
		if slices.ContainsFunc(p.GetEmails(), func(e string) bool { return strings.EqualFold(e, email) }) {
			uids = append(uids, p.GetUid())
		}
	}
	switch len(uids) {
	case 1:
		return uids[0], nil
	case 0:
		return "", missing(fmt.Sprintf("there is no person %s that you can see: a file does not invite people", email))
	}
	return "", missing(fmt.Sprintf("%d people have the address %s: write uid: and the uid of one", len(uids), email))
}

// Named replaces the UIDs in a sentence by paths, if they are known.
func (s *State) Named(text string) string {
	words := strings.Split(text, " ")
	for i, word := range words {
		uid := strings.TrimRight(word, ",:;)")
		path, known := s.paths[uid]
		switch {
		case uid == s.GroupUID:
			words[i] = s.Group + word[len(uid):]
		case known && strings.HasPrefix(uid, s.GroupUID+"/"):
			words[i] = s.Group + "/" + path + word[len(uid):]
		case known:
			words[i] = strings.TrimPrefix(path, "/") + word[len(uid):]
		}
	}
	return strings.Join(words, " ")
}

// ManagedRoles returns the roles that belong to the service.
func (s *State) ManagedRoles(ctx context.Context) (roles []*iampb.Role, _ error) {
	if s.managed != nil {
		return s.managed, nil
	}
	method := iampb.File_holdfast_iam_v2beta1_roles_proto.Services().ByName("RolesService").Methods().ByName("ListRoles")
	req := noun.NewMessage(method.Input())
	noun.Put(req, "uidp.in_root", true)
	for m, err := range s.app.Items(ctx, method, req, noun.Paging{}) {
		if err != nil {
			return nil, err
		}
		roles = append(roles, m.Interface().(*iampb.Role))
	}
	s.managed = roles
	return roles, nil
}

// SmallestRole returns the name of the managed role with the fewest capabilities among those
// that have all of needed, or "".
func (s *State) SmallestRole(ctx context.Context, needed []string) (string, error) {
	roles, err := s.ManagedRoles(ctx)
	if err != nil {
		return "", err
	}
	var best *iampb.Role
	for _, role := range roles {
		var has []string
		for _, c := range role.GetCapabilities() {
			has = append(has, output.EnumWord(c.Descriptor().Values().ByNumber(c.Number())))
		}
		lacks := slices.ContainsFunc(needed, func(c string) bool { return !slices.Contains(has, c) })
		if !lacks && (best == nil || len(role.GetCapabilities()) < len(best.GetCapabilities())) {
			best = role
		}
	}
	return best.GetName(), nil
}
