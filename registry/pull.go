package registry

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// A NamedPull is a pull in the words of people. What is gone has no name.
type NamedPull struct {
	resource.Pull
	Path string // of the repo: the names of the groups above it, and its own
	By   string // the name of the identity
}

// ListPulls returns a page of who pulled from which repo, or pushed to it. It
// tells about people, so the caller needs identity.list beside repo.list.
func (s *Service) ListPulls(ctx context.Context, f resource.Filter, p page.Params) (page.Page[NamedPull], error) {
	repos, err := s.authz.Reach(ctx, resource.RepoList)
	if err != nil {
		return page.Page[NamedPull]{}, err
	}
	people, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil {
		return page.Page[NamedPull]{}, err
	}
	got, err := page.Read(ctx, s.pages, pullList, store.Reach{Under: overlap(repos, people)}, f, p, s.store.Pulls)
	if err != nil {
		return page.Page[NamedPull]{}, err
	}
	out := page.Page[NamedPull]{Last: got.Last, Total: got.Total, Next: got.Next, Skipped: got.Skipped, Expired: got.Expired}
	out.Items, err = s.name(ctx, got.Items)
	return out, err
}

// name finds the names of what a page of pulls is about, in three questions.
func (s *Service) name(ctx context.Context, all []resource.Pull) ([]NamedPull, error) {
	repos, groups, people := map[resource.UID]string{}, map[resource.UID]string{}, map[resource.UID]string{}
	for _, p := range all {
		repos[p.Repo()], people[p.Identity] = "", ""
		for _, g := range p.Repo().Ancestors() {
			groups[g] = ""
		}
	}
	err := fill(ctx, repos, s.store.Repos, func(r resource.Repo) (resource.UID, string) { return r.UID, r.Name })
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, groups, s.store.Groups, func(g resource.Group) (resource.UID, string) { return g.UID, g.Name }); err != nil {
		return nil, err
	}
	if err := fill(ctx, people, s.store.Identities, func(i resource.Identity) (resource.UID, string) { return i.UID, i.Name }); err != nil {
		return nil, err
	}
	var named []NamedPull
	for _, p := range all {
		var path []string
		for _, g := range p.Repo().Ancestors() {
			path = append(path, groups[g])
		}
		named = append(named, NamedPull{p, strings.Join(append(path, repos[p.Repo()]), "/"), people[p.Identity]})
	}
	return named, nil
}

// fill looks up the names of the keys of a map.
func fill[T any](
	ctx context.Context, names map[resource.UID]string,
	read func(context.Context, store.Reach, resource.Filter, page.Request) (page.Page[T], error), of func(T) (resource.UID, string),
) error {
	delete(names, "") // nobody
	if len(names) == 0 {
		return nil
	}
	got, err := read(ctx, store.Reach{Also: slices.Sorted(maps.Keys(names))}, resource.Filter{}, page.Request{Size: len(names), Order: byUID})
	for _, v := range got.Items {
		uid, name := of(v)
		names[uid] = name
	}
	return err
}
