package search

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// addPaths sets the paths of results. As in the results of iam.LookupNames, a path contains the names of all groups
// above the resource. The path of a repo, or of something in a repo, is set only if the caller may get the repo.
func (s *Service) addPaths(ctx context.Context, results []Result) error {
	var above, repos []resource.UID
	for _, r := range results {
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
	repoNames, err := s.db.NamesOf(ctx, "repos", false, repos)
	if err != nil {
		return err
	}
	for uid, repo := range repoNames {
		names[uid] = repo
	}
	for i := range results {
		if results[i].Path == "" {
			results[i].Path = results[i].path(names)
		}
	}
	return nil
}

// path returns the path of a result. It returns "" if a resource above the result is missing in names, because the
// resource has no name, or because the caller must not learn its name.
func (r Result) path(names map[resource.UID]resource.Info) string {
	if r.Parent == "" {
		if r.Kind == Identity { // people are in no group
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
	parent := strings.Join(path, "/")
	switch {
	case r.Kind == AuditEntry || r.Name == "":
		return parent
	case r.Kind == Tag:
		return parent + ":" + r.Name
	case r.Kind == Manifest:
		return parent + "@" + r.Name
	}
	return parent + "/" + r.Name
}
