package state

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
)

// build replaces UIDs by paths and fills the model.
func (s *State) build(ctx context.Context, rows [][]row) error {
	s.dropSharedAddresses()
	s.paths[s.GroupUID] = model.Root
	s.placeFolders(rows[slices.IndexFunc(model.Kinds, func(k *model.Kind) bool { return k.Name == model.Folders })])
	for i, k := range model.Kinds {
		if k.Name == model.Folders {
			continue
		}
		for _, r := range rows[i] {
			r.resource.In = s.parentPath(r.parent)
			if k.Named() {
				s.paths[r.resource.UID] = r.resource.Path()
			}
		}
	}
	if err := s.lookUp(ctx, rows); err != nil {
		return err
	}
	for i, k := range model.Kinds {
		resources := make([]*model.Resource, 0, len(rows[i]))
		for _, r := range rows[i] {
			s.rename(r.resource)
			resources = append(resources, r.resource)
		}
		s.Unclear = append(s.Unclear, s.Add(k, resources)...)
	}
	return nil
}

func (s *State) parentPath(uid string) string {
	path := s.paths[uid]
	if path == model.Root {
		return ""
	}
	return path
}

// placeFolders sets the paths of folders. A UID sorts after the UID of its parent.
func (s *State) placeFolders(rows []row) {
	slices.SortFunc(rows, func(x, y row) int { return strings.Compare(x.resource.UID, y.resource.UID) })
	for _, r := range rows {
		if r.resource.UID == s.GroupUID {
			continue
		}
		r.resource.In = s.parentPath(r.parent)
		s.paths[r.resource.UID] = r.resource.Path()
	}
}

// dropSharedAddresses forgets e-mail addresses that several people have, because they do
// not identify anybody.
func (s *State) dropSharedAddresses() {
	count := map[string]int{}
	for _, path := range s.paths {
		count[path]++
	}
	maps.DeleteFunc(s.paths, func(_, path string) bool { return count[path] > 1 && strings.Contains(path, "@") })
}

// maxLookups is the largest number of UIDs that the server looks up in one call.
const maxLookups = 100

// lookUp finds the paths of resources outside of the group.
func (s *State) lookUp(ctx context.Context, rows [][]row) error {
	missing := map[string]bool{}
	for _, page := range rows {
		for _, r := range page {
			r.resource.References(func(_ *model.Field, uid string) string {
				if s.paths[uid] == "" {
					missing[uid] = true
				}
				return uid
			})
		}
	}
	for uids := range slices.Chunk(slices.Sorted(maps.Keys(missing)), maxLookups) {
		got, err := accesspb.NewAccessServiceClient(s.app).LookupNames(ctx, &accesspb.LookupNamesRequest{Uids: uids})
		if err != nil {
			return signin.Refused(err, nil)
		}
		for _, n := range got.GetNames() {
			if isPerson := n.GetKind() == noun.Identities && !strings.Contains(n.GetUid(), "/"); !isPerson {
				s.paths[n.GetUid()] = "/" + cmp.Or(n.GetPath(), n.GetName())
			}
		}
	}
	return nil
}

// rename replaces the UIDs of references by paths. A resource without a path that the
// caller can see keeps its UID.
func (s *State) rename(r *model.Resource) {
	r.References(func(f *model.Field, uid string) string {
		path := s.paths[uid]
		switch {
		case path == "":
			path = "uid:" + uid
		case f.Ref == model.Targets && s.isRepo(uid):
			path = "repo:" + path
		}
		s.uids[s.space(f.Ref)+path] = uid
		return path
	})
	if t, ok := r.Fields["target"].(string); ok && t == cmp.Or(r.In, model.Root) {
		delete(r.Fields, "target")
	}
}

// isRepo reports whether the UID of a target is the UID of a repo. Only repos that the
// caller may list are known.
func (s *State) isRepo(uid string) bool {
	r := s.Find(model.Repos, s.paths[uid])
	return r != nil && r.UID == uid
}

// space returns the kinds whose references share names.
func (s *State) space(ref string) string {
	if ref == model.Identities {
		return model.Workloads + "\x00"
	}
	return ref + "\x00"
}
