package search

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// addPaths sets the paths of results. They have the names of all groups above, as those of iam.LookupNames have,
// and that of a repo if the caller may get the repo.
func (s *Service) addPaths(ctx context.Context, all []Result) error {
	var above, repos []resource.UID
	for _, r := range all {
		above = append(append(above, r.Parent.Ancestors()...), r.Parent)
		if (r.Kind == Tag || r.Kind == Manifest) && s.authz.Sees(ctx, resource.RepoList, r.Parent) {
			repos = append(repos, r.Parent)
		}
	}
	slices.Sort(above)
	names, err := s.db.NamesOf(ctx, "groups", false, slices.Compact(above))
	if err != nil {
		return err
	}
	of, err := s.db.NamesOf(ctx, "repos", false, repos)
	if err != nil {
		return err
	}
	for uid, repo := range of {
		names[uid] = repo
	}
	for i := range all {
		if all[i].Path == "" {
			all[i].Path = all[i].path(names)
		}
	}
	return nil
}

// path returns the path of a result, or "" if there is a resource on the way that has no name or is not to be told.
func (r Result) path(names map[resource.UID]resource.Info) string {
	if r.Parent == "" {
		if r.Kind == Identity { // people are nowhere
			return ""
		}
		return r.Name
	}
	var path []string
	for _, uid := range append(r.Parent.Ancestors(), r.Parent) {
		above, ok := names[uid]
		if !ok {
			return ""
		}
		path = append(path, above.Name)
	}
	in := strings.Join(path, "/")
	switch {
	case r.Kind == AuditEntry || r.Name == "":
		return in
	case r.Kind == Tag:
		return in + ":" + r.Name
	case r.Kind == Manifest:
		return in + "@" + r.Name
	}
	return in + "/" + r.Name
}
