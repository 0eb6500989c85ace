package blast

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/pulldb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// allowed returns the part of reach in which the caller also holds the capability want. If this is not all of reach, it
// also returns a gap.
func (b *radius) allowed(ctx context.Context, want resource.Capability) (reach []resource.UID, gaps []Gap, _ error) {
	held, err := b.authz.Reach(ctx, want)
	if err != nil {
		return nil, nil, err
	}
	reach = store.Overlap(b.reach, held)
	switch {
	case len(reach) == 0:
		gaps = []Gap{{Code: "NOT_ALLOWED", Text: "you need the capability " + want.String()}}
	case !slices.Equal(reach, b.reach):
		gaps = []Gap{{Code: "PARTLY_ALLOWED", Text: "only groups and repos on which you have " + want.String()}}
	}
	return reach, gaps, nil
}

// running returns where the images run according to the inventories of their organizations, and how their repos are
// deployed.
func (b *radius) running(ctx context.Context) (found stageItems, _ error) {
	held, gaps, err := b.allowed(ctx, resource.DeploymentsList)
	if err != nil || len(held) == 0 {
		return stageItems{gaps: gaps}, err
	}
	found.gaps = gaps
	if err := b.inInventories(ctx, &found); err != nil {
		return found, err
	}
	var repos []resource.UID
	for r := range b.repos {
		if store.Covered(held, r) {
			repos = append(repos, r)
		}
	}
	deployed, err := b.repoStore.Deployments(ctx, repos)
	for _, d := range deployed {
		found.items = append(found.items, Item{Deployment: &AffectedDeployment{Deployment: d}, key: "1" + string(d.UID)})
	}
	found.total += int64(len(deployed))
	return found, err
}

// inInventories adds the images that run at places that the caller may list. It ignores places of other organizations,
// because anyone can report any digest.
func (b *radius) inInventories(ctx context.Context, found *stageItems) error {
	held, err := b.authz.Reach(ctx, resource.DeploymentsList)
	if err != nil {
		return err
	}
	places, err := b.packages.Places(ctx, held)
	if err != nil {
		return err
	}
	organizations := finding.Organizations(b.reach)
	asOf, withInventory, expired, unknown := b.packages.Time(), map[resource.UID]bool{}, 0, 0
	for _, root := range organizations {
		current := slices.Clone(places)
		current = slices.DeleteFunc(current, func(p findingdb.Place) bool {
			if p.Group.Root() != root {
				return true
			}
			if p.Expired(asOf) {
				expired++
				return true
			}
			withInventory[root], unknown = true, unknown+p.Unknown
			return false
		})
		digests, err := b.packages.RunningDigests(ctx, root, b.spread.Has)
		if err != nil {
			return err
		}
		total, entries, err := b.packages.RunningAt(ctx, current, digests, maxRunning)
		if err != nil {
			return err
		}
		found.total += total
		for _, e := range entries {
			found.items = append(found.items, Item{Running: &e,
				key: strings.Join([]string{"0" + e.Place.Name, string(e.Place.Group), fmt.Sprintf("%020d", e.ID)}, "\x00")})
		}
	}
	found.gaps = append(found.gaps, inventoryGaps(len(withInventory) < len(organizations), expired, unknown)...)
	if found.total > int64(len(found.items)) {
		found.gaps = append(found.gaps, Gap{"TOO_MANY", fmt.Sprintf("only %d entries are listed", maxRunning),
			found.total - int64(len(found.items))})
	}
	return nil
}

func inventoryGaps(missing bool, expired, unknown int) (gaps []Gap) {
	if missing {
		gaps = append(gaps, Gap{Code: "NO_INVENTORY", Text: "no inventory was pushed; see holdfast inventory push"})
	}
	if expired > 0 {
		gaps = append(gaps, Gap{"INVENTORY_EXPIRED", fmt.Sprintf("the inventories of %d places are out of date", expired),
			int64(expired)})
	}
	if unknown > 0 {
		gaps = append(gaps, Gap{"NOT_KNOWN_BY_DIGEST", fmt.Sprintf("the digests of %d containers are not known", unknown),
			int64(unknown)})
	}
	return gaps
}

// pulled returns the identities that have pulled the images.
func (b *radius) pulled(ctx context.Context) (found stageItems, _ error) {
	reach, gaps, err := b.allowed(ctx, resource.IdentityList)
	if err != nil || len(reach) == 0 {
		return stageItems{gaps: gaps}, err
	}
	asOf := b.packages.Time()
	since := asOf.AddDate(0, 0, -cmp.Or(b.query.Days, 30))
	who, missing, err := b.pullers(ctx, reach, since)
	if err != nil {
		return found, err
	}
	found.gaps = append(gaps, missing...)
	if b.keepPulls > 0 && since.Before(asOf.Add(-b.keepPulls)) {
		found.gaps = append(found.gaps, Gap{Code: "RECORDS_PRUNED",
			Text: fmt.Sprintf("records of pulls are kept for only %d days", int(b.keepPulls.Hours()/24))})
	}
	mixed, err := b.pulls.MixedPulls(ctx, slices.Collect(maps.Keys(b.repos)), since)
	if err != nil {
		return found, err
	}
	if mixed > 0 {
		found.gaps = append(found.gaps,
			Gap{"RECORDED_TOGETHER", fmt.Sprintf("pulls by callers without a role in %d repos are recorded together, "+
				"without the image", mixed), int64(mixed)})
	}
	last, lost, err := b.pulls.PullsLost(ctx, since)
	if lost {
		found.gaps = append(found.gaps, Gap{Code: "RECORDS_LOST",
			Text: "records of pulls were lost, the last on " + last.Format(time.DateOnly)})
	}
	for identity, moment := range who {
		found.items = append(found.items, Item{Identity: &Identity{UID: identity, LastPull: moment},
			// The key sorts the latest pull first.
			key: fmt.Sprintf("%020d\x00%s", math.MaxInt64-moment.UnixMilli(), identity)})
	}
	return found, err
}

// pullers returns the identities that have pulled images in reach since a time. It looks up pulls by image, or by
// identity if there are many images.
func (b *radius) pullers(
	ctx context.Context, reach []resource.UID, since time.Time,
) (who map[resource.UID]time.Time, gaps []Gap, _ error) {
	spread, numbers := b.spread, b.number
	if !slices.Equal(reach, b.reach) {
		var err error
		if spread, err = b.packages.SpreadOf(ctx, reach, slices.Collect(maps.Keys(b.spread.Packages))); err != nil {
			return nil, nil, err
		}
		numbers = spread.Numbers()
	}
	if len(numbers) <= maxPullImages {
		who, err := b.pulls.Pullers(ctx, numbers, since)
		return who, nil, err
	}
	who = map[resource.UID]time.Time{}
	for _, root := range finding.Organizations(reach) {
		pullers, done, err := b.pulls.SearchPullers(ctx, pulldb.PullerSearch{Root: root, Since: since, Has: spread.Has,
			Most: maxPullRecords})
		if err != nil {
			return nil, nil, err
		}
		for identity, asOf := range pullers {
			if asOf.After(who[identity]) {
				who[identity] = asOf
			}
		}
		if !done {
			gaps = []Gap{{Code: "TOO_MANY_RECORDS",
				Text: fmt.Sprintf("only %d records of pulls were read; select a group "+
					"or fewer days", maxPullRecords)}}
		}
	}
	return who, gaps, nil
}

// A holderIndex contains the roles that identities hold on the groups above affected repos.
type holderIndex struct {
	held  []iamdb.GroupRole
	repos map[resource.UID]int // number of affected repos, by group
	gaps  []Gap
}

// holders returns the roles on groups above the repos, if the caller may list them. It reads them only once.
func (b *radius) holders(ctx context.Context) (holderIndex, error) {
	if b.held != nil {
		return *b.held, nil
	}
	h, err := b.readHolders(ctx)
	b.held = &h
	return h, err
}

func (b *radius) readHolders(ctx context.Context) (h holderIndex, _ error) {
	reach, gaps, err := b.allowed(ctx, resource.RoleBindingsList)
	if err != nil || len(reach) == 0 {
		return holderIndex{gaps: gaps}, err
	}
	h.gaps, h.repos = gaps, map[resource.UID]int{}
	above, hidden := map[resource.UID]bool{}, false
	for repo := range b.repos {
		if !store.Covered(reach, repo) {
			continue
		}
		h.repos[repo.Parent()]++
		for _, g := range repo.Ancestors() {
			if _, ok := above[g]; !ok {
				above[g] = b.authz.Sees(ctx, resource.RoleBindingsList, g)
			}
			hidden = hidden || !above[g]
		}
	}
	maps.DeleteFunc(above, func(_ resource.UID, seen bool) bool { return !seen })
	if h.held, err = b.roles.RolesOn(ctx, slices.Sorted(maps.Keys(above)), maxGroupRoles+1); err != nil {
		return h, err
	}
	if hidden {
		h.gaps = append(h.gaps, Gap{Code: "GROUPS_ABOVE",
			Text: "roles in groups above that you cannot see are missing"})
	}
	if len(h.held) > maxGroupRoles {
		h.held = h.held[:maxGroupRoles]
		h.gaps = append(h.gaps, Gap{Code: "TOO_MANY_ROLES", Text: fmt.Sprintf("only %d roles were read; select a group",
			maxGroupRoles)})
	}
	return h, nil
}

// who returns the identities that hold one of the roles, each with the number of repos. If also is not 0, an identity
// must hold this capability, too.
func (b *radius) who(h holderIndex, roles []resource.UID, also resource.Capability) (items []Item) {
	wanted := map[int64]bool{}
	for _, r := range roles {
		wanted[store.Segment(r)] = true
	}
	groups := map[resource.UID][]resource.UID{} // groups on which an identity holds one of the roles, by identity
	for _, v := range h.held {
		if g := groups[v.Identity]; wanted[v.Role] && (len(g) == 0 || g[len(g)-1] != v.Group) {
			groups[v.Identity] = append(g, v.Group)
		}
	}
	for identity, on := range groups {
		repos := 0
		for parent, n := range h.repos {
			if store.Covered(on, parent) && (also == 0 || b.authz.Holds(identity, also, parent)) {
				repos += n
			}
		}
		if repos > 0 {
			items = append(items, identityItem(identity, on, repos))
		}
	}
	return items
}

func identityItem(identity resource.UID, on []resource.UID, repos int) Item {
	return Item{Identity: &Identity{UID: identity, Groups: on[:min(len(on), shownGroups)], Repos: repos},
		key: fmt.Sprintf("%010d\x00%s", 1<<30-repos, identity)}
}

// canPull returns the identities that can pull from the repos. If a group is public, it adds an item without a UID.
func (b *radius) canPull(ctx context.Context) (found stageItems, _ error) {
	h, err := b.holders(ctx)
	if err != nil || h.repos == nil {
		return stageItems{gaps: h.gaps}, err
	}
	found.gaps = h.gaps
	found.items = b.who(h, b.authz.RolesWith(resource.RepoBlobsGet), resource.ManifestList)
	public, groups := 0, slices.Sorted(maps.Keys(h.repos))
	for _, g := range groups[:min(len(groups), maxBlastGroups)] {
		set, err := b.repoStore.RegistrySettings(ctx, g)
		if err != nil {
			return found, err
		}
		if set.Public {
			public += h.repos[g]
		}
	}
	if len(groups) > maxBlastGroups {
		found.gaps = append(found.gaps,
			Gap{"TOO_MANY_GROUPS", fmt.Sprintf("only %d groups were checked for public access",
				maxBlastGroups), int64(len(groups) - maxBlastGroups)})
	}
	if public > 0 {
		found.items = append(found.items, identityItem("", nil, public))
	}
	return found, nil
}

// canPush returns the identities that can push to the repos, and so replace the images.
func (b *radius) canPush(ctx context.Context) (stageItems, error) {
	h, err := b.holders(ctx)
	if err != nil || h.repos == nil {
		return stageItems{gaps: h.gaps}, err
	}
	return stageItems{items: b.who(h, b.authz.RolesWith(resource.ManifestCreate), 0), gaps: h.gaps}, nil
}

// owners returns the nearest owners of each repo.
func (b *radius) owners(ctx context.Context) (found stageItems, _ error) {
	h, err := b.holders(ctx)
	if err != nil || h.repos == nil {
		return stageItems{gaps: h.gaps}, err
	}
	owners := map[resource.UID][]resource.UID{} // owners by group
	for _, v := range h.held {
		if v.Role == store.Segment(resource.OwnerRole) {
			owners[v.Group] = append(owners[v.Group], v.Identity)
		}
	}
	type share struct {
		groups []resource.UID
		repos  int
	}
	shares, without := map[resource.UID]*share{}, 0
	for parent, n := range h.repos {
		g := parent
		for g != "" && len(owners[g]) == 0 {
			g = g.Parent()
		}
		if g == "" {
			without += n
			continue
		}
		for _, identity := range owners[g] {
			if shares[identity] == nil {
				shares[identity] = &share{}
			}
			s := shares[identity]
			if s.repos += n; !slices.Contains(s.groups, g) && len(s.groups) < shownGroups {
				s.groups = append(s.groups, g)
			}
		}
	}
	for identity, s := range shares {
		slices.Sort(s.groups)
		found.items = append(found.items, identityItem(identity, s.groups, s.repos))
	}
	if found.gaps = h.gaps; without > 0 {
		found.gaps = append(slices.Clone(found.gaps), Gap{"NO_OWNER",
			fmt.Sprintf("%d repos have no owner that you can see", without),
			int64(without)})
	}
	return found, nil
}
