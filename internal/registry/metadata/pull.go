package metadata

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A NamedPull is a pull or push with the names of its repo and identity. A name is "" if the resource was deleted, and
// the name and the address of an identity are "" if the caller may not see it.
type NamedPull struct {
	registry.Pull
	Path string // path of the repo: the names of its groups and its own name
	By   string // name of the identity
}

// ListPulls returns a page of the pulls from repos and the pushes to them. The caller needs repo.list and
// identity.list, because the result contains the names of identities.
func (s *Service) ListPulls(ctx context.Context, f resource.Filter, p page.Params) (page.Page[NamedPull], error) {
	repos, err := s.authz.Reach(ctx, resource.RepoList)
	if err != nil {
		return page.Page[NamedPull]{}, err
	}
	people, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil {
		return page.Page[NamedPull]{}, err
	}
	reach := store.Reach{Under: store.Overlap(repos, people)}
	got, err := page.Read(ctx, s.pages, registrydb.PullList, reach, f, p, s.store.Pulls)
	if err != nil {
		return page.Page[NamedPull]{}, err
	}
	named, err := s.addNames(ctx, got.Items)
	return page.With(got, named), err
}

// addNames adds the names of repos, and of those identities that the caller may see. It removes the addresses of other
// identities: strangers can pull from a public repo, and their names and addresses belong to their organization.
func (s *Service) addNames(ctx context.Context, all []registry.Pull) ([]NamedPull, error) {
	var people, repos []resource.UID
	for _, p := range all {
		people = append(people, p.Identity)
		repos = append(repos, p.Repo())
	}
	paths, err := s.Paths(ctx, repos)
	if err != nil {
		return nil, err
	}
	names, err := s.identityNames(ctx, people)
	if err != nil {
		return nil, err
	}
	var named []NamedPull
	for _, p := range all {
		name, seen := names[p.Identity]
		if !seen && p.Identity != "" {
			p.Remote = ""
		}
		named = append(named, NamedPull{p, paths[p.Repo()], name})
	}
	return named, nil
}

// identityNames returns the names of those identities that the caller may see.
func (s *Service) identityNames(ctx context.Context, all []resource.UID) (map[resource.UID]string, error) {
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(uid resource.UID) bool { return uid == "" })
	if len(all) == 0 || s.cfg.IdentityNames == nil {
		return nil, nil
	}
	return s.cfg.IdentityNames(ctx, all)
}

// Paths returns the paths of repos in the registry: the names of their groups and their own
// name. It does not authorize the caller.
func (s *Service) Paths(ctx context.Context, all []resource.UID) (map[resource.UID]string, error) {
	repos, groups := map[resource.UID]string{}, map[resource.UID]string{}
	for _, r := range all {
		repos[r] = ""
		for _, g := range r.Ancestors() {
			groups[g] = ""
		}
	}
	err := errors.Join(
		fill(ctx, repos, s.store.Repos, func(r registry.Repo) { repos[r.UID] = r.Name }),
		fill(ctx, groups, s.iam.Groups, func(g resource.Group) { groups[g.UID] = g.Name }),
	)
	paths := map[resource.UID]string{}
	for r, name := range repos {
		var path []string
		for _, g := range r.Ancestors() {
			path = append(path, groups[g])
		}
		paths[r] = strings.Join(append(path, name), "/")
	}
	return paths, err
}

// fill reads the resources whose UIDs are the keys of names, and calls set for each resource.
func fill[T any](
	ctx context.Context, names map[resource.UID]string,
	read func(context.Context, store.Reach, resource.Filter, page.Request) (page.Page[T], error), set func(T),
) error {
	delete(names, "") // anonymous pulls have no identity
	if len(names) == 0 {
		return nil
	}
	reach := store.Reach{Also: slices.Sorted(maps.Keys(names))}
	got, err := read(ctx, reach, resource.Filter{}, page.Request{Size: len(names), Order: registrydb.RepoList.Default})
	for _, v := range got.Items {
		set(v)
	}
	return err
}
