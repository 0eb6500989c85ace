package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

const (
	maxRoles      = 20_000 // maximum number of roles that are read to find owners
	maxNamesAsked = 500    // maximum number of names in one call of iam.Service.LookupNames
)

// A Share contains the findings of the repos whose nearest owner is an identity.
type Share struct {
	Identity          resource.UID
	Name, DisplayName string // empty if the caller may not see them
	Repos             int    // number of repos with an open finding
	Open              query.BySeverity
	Limited           int // open findings that must be fixed within a time
	Overdue, Fixed    int
}

// addOwners adds the owners of the repos with findings. It leaves out owners of groups on which the caller may not list
// role bindings.
func (s *Service) addOwners(ctx context.Context, r *Report, c *collection) error {
	owners, gap, err := s.ownersOf(ctx, c)
	if gap != "" {
		r.Gaps = append(r.Gaps, gap)
	}
	if err != nil {
		return err
	}
	shares, without := map[resource.UID]*Share{}, 0
	nearest := map[resource.UID][]resource.UID{} // owners by repo
	for repo, n := range c.byRepo {
		g := repo.Parent()
		for ; g != "" && len(owners[g]) == 0; g = g.Parent() { // until the nearest group with an owner
		}
		if nearest[repo] = owners[g]; len(owners[g]) == 0 {
			without++
		}
		for _, identity := range owners[g] {
			if shares[identity] == nil {
				shares[identity] = &Share{Identity: identity}
			}
			shares[identity].count(n)
		}
	}
	if without > 0 && gap == "" {
		r.Gaps = append(r.Gaps, fmt.Sprintf("%d repos with findings have no owner that you can see", without))
	}
	names, err := s.namesOf(ctx, slices.Sorted(maps.Keys(shares)))
	if err != nil {
		return err
	}
	for identity, v := range shares {
		v.Name, v.DisplayName = names[identity].Name, names[identity].DisplayName
		r.Owners = append(r.Owners, *v)
	}
	slices.SortFunc(r.Owners, func(a, b Share) int {
		return cmp.Or(-cmp.Compare(a.Overdue, b.Overdue), -cmp.Compare(a.Open.Sum(), b.Open.Sum()),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Identity, b.Identity))
	})
	r.All = len(r.Owners)
	r.Owners = r.Owners[:min(len(r.Owners), maxOwners)]
	for _, list := range [][]Entry{r.Open, r.Closed} {
		for i := range list {
			list[i].Owners = shown(nearest[list[i].Repo], names)
		}
	}
	return nil
}

// count adds the findings of a repo.
func (v *Share) count(n *repoCount) {
	v.Repos += word(n.open.Sum() > 0)
	for severity, count := range n.open {
		v.Open[severity] += count
	}
	v.Limited += n.limited
	v.Overdue += n.overdue
	v.Fixed += n.fixed
}

// shown returns the names of identities that the caller may see.
func shown(identities []resource.UID, names map[resource.UID]iam.Name) (texts []string) {
	for _, uid := range identities {
		if n := names[uid]; len(texts) < maxNames && cmp.Or(n.DisplayName, n.Name) != "" {
			texts = append(texts, cmp.Or(n.DisplayName, n.Name))
		}
	}
	return texts
}

// ownersOf returns the owners of the groups above the repos with findings, by group. gap says why some are missing.
func (s *Service) ownersOf(
	ctx context.Context, c *collection,
) (owners map[resource.UID][]resource.UID, gap string, _ error) {
	above := map[resource.UID]bool{}
	for repo := range c.byRepo {
		for _, g := range repo.Ancestors() {
			if _, ok := above[g]; !ok {
				above[g] = s.authz.Sees(ctx, resource.RoleBindingsList, g)
			}
		}
	}
	groups := len(above)
	maps.DeleteFunc(above, func(_ resource.UID, seen bool) bool { return !seen })
	switch {
	case groups == 0:
		return nil, "", nil
	case len(above) == 0:
		return nil, "you may not list role bindings, so owners are missing", nil
	case len(above) < groups:
		gap = "you may not list the role bindings of the groups above, so their owners are missing"
	}
	held, err := s.roles.RolesOn(ctx, slices.Sorted(maps.Keys(above)), maxRoles+1)
	if err != nil {
		return nil, "", err
	}
	if len(held) > maxRoles {
		held, gap = held[:maxRoles], fmt.Sprintf("only %d role bindings were read, so owners are missing", maxRoles)
	}
	owners = map[resource.UID][]resource.UID{}
	for _, v := range held {
		if v.Role == store.Segment(resource.OwnerRole) {
			owners[v.Group] = append(owners[v.Group], v.Identity)
		}
	}
	return owners, gap, nil
}

// namesOf returns the names of identities that the caller may see.
func (s *Service) namesOf(ctx context.Context, uids []resource.UID) (map[resource.UID]iam.Name, error) {
	names := map[resource.UID]iam.Name{}
	for batch := range slices.Chunk(uids, maxNamesAsked) {
		found, err := s.iam.LookupNames(ctx, batch)
		if err != nil {
			return nil, err
		}
		for _, n := range found {
			names[n.UID] = n
		}
	}
	return names, nil
}
