package simulation

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// nameChanges counts changes, and describes the first changes that the caller may see.
func (s *Service) nameChanges(ctx context.Context, d *difference, changes []change) (out AccessChanges, err error) {
	identities, visible := map[resource.UID]bool{}, map[resource.UID]bool{}
	var seen []usedChange
	out.Total = len(changes)
	recent := d.asOf.Add(-d.limits.usePeriod)
	for i, c := range changes {
		identities[c.identity] = true
		u := usedChange{change: c}
		if i%1024 != 0 || !d.late() {
			u.last = d.lastUse(c)
		}
		if u.last.After(recent) {
			out.Used++
		}
		if _, ok := visible[c.group]; !ok {
			visible[c.group] = s.authz.Sees(ctx, resource.RoleBindingsList, c.group)
		}
		if visible[c.group] || s.isSelf(ctx, c.identity) {
			seen = append(seen, u)
		}
	}
	out.Identities, out.Hidden = len(identities), len(changes)-len(seen)
	slices.SortStableFunc(seen, func(a, b usedChange) int {
		return cmp.Or(b.last.Compare(a.last), cmp.Compare(a.identity, b.identity), cmp.Compare(a.group, b.group),
			cmp.Compare(a.capability.String(), b.capability.String()))
	})
	seen = seen[:min(len(seen), maxShown)]
	out.Shown, err = s.describeChanges(ctx, d, seen)
	return out, err
}

// isSelf reports whether the identity is the caller and the caller's token is not narrowed.
func (s *Service) isSelf(ctx context.Context, identity resource.UID) bool {
	c, ok := authz.CallerFrom(ctx)
	return ok && c.Identity == identity && c.Narrowing().IsZero()
}

// A usedChange is a change with the time at which its capability was last used.
type usedChange struct {
	change
	last time.Time
}

// describeChanges adds the names of groups, and the names of identities that the caller may see.
func (s *Service) describeChanges(
	ctx context.Context, d *difference, changes []usedChange,
) (out []AccessChange, _ error) {
	var groups, people []resource.UID
	for _, c := range changes {
		groups, people = append(groups, c.group), append(people, c.identity)
	}
	names, err := s.store.NamesOf(ctx, "groups", true, groups)
	if err != nil {
		return nil, err
	}
	joined, err := s.store.Joined(ctx, people)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		b := resource.BoundRole{RoleBinding: resource.RoleBinding{UID: c.group.NewChild(), Identity: c.identity}}
		b.IdentityInfo = d.info(c.identity)
		b.IdentityInfo.Member = slices.Contains(joined[c.identity], c.group.Root())
		described := AccessChange{
			Identity: s.iam.Redact(ctx, b).IdentityInfo, Capability: c.capability, Group: names[c.group], LastUse: c.last,
		}
		described.Group.UID = c.group
		out = append(out, described)
	}
	return out, nil
}

// info describes the state of an identity before the changes, or after them if the identity is new.
func (d *difference) info(uid resource.UID) (info resource.IdentityInfo) {
	i, ok := d.before.identities[uid]
	if !ok {
		i = d.after.identities[uid]
	}
	info.UID, info.Name, info.DisplayName, info.Description = uid, i.Name, i.DisplayName, i.Description
	info.Issuer, info.Subject, info.Email = i.Relationship.Issuer(), i.Relationship.Subject(), i.Email
	return info
}

// visibleInfo describes an identity that the caller may get, and returns true. For any other identity, it returns only
// the UID, and false.
func (s *Service) visibleInfo(
	ctx context.Context, d *difference, uid resource.UID,
) (info resource.IdentityInfo, ok bool) {
	if s.isSelf(ctx, uid) || s.authz.Sees(ctx, resource.IdentityList, uid) {
		return d.info(uid), true
	}
	if found, err := s.iam.VisiblePeople(ctx, []resource.UID{uid}); uid.IsRoot() && err == nil && len(found) > 0 {
		return d.info(uid), true
	}
	return resource.IdentityInfo{Info: resource.Info{UID: uid}}, false
}

// collect calls describe for the first identities that the caller may see. count returns the number of items of an
// identity, for the totals.
func collect[T any](
	ctx context.Context, s *Service, d *difference, identities []resource.UID,
	describe func(resource.UID, resource.IdentityInfo) T, count func(resource.UID) int,
) (out Affected[T]) {
	for _, uid := range identities {
		n := count(uid)
		out.Total += n
		if len(out.Shown) >= maxShown {
			continue
		}
		info, ok := s.visibleInfo(ctx, d, uid)
		if !ok {
			out.Hidden += n
			continue
		}
		out.Shown = append(out.Shown, describe(uid, info))
	}
	return out
}

// lostWorkloads returns the workloads that could no longer exchange their tokens: workloads that are deleted or trust
// other tokens than before, and workloads that could be assumed through a deleted one.
func (s *Service) lostWorkloads(ctx context.Context, d *difference) (out Affected[resource.IdentityInfo], _ error) {
	var lost []resource.UID
	for _, uid := range slices.Sorted(maps.Keys(d.before.identities)) {
		i, stays := d.after.identities[uid]
		if uid.IsRoot() || stays && reflect.DeepEqual(i.Relationship, d.before.identities[uid].Relationship) {
			continue
		}
		lost = append(lost, uid)
		if stays {
			continue
		}
		through, err := s.authz.Assumable(ctx, uid)
		if fault.From(err).Code == fault.FailedPrecondition {
			d.incomplete(reasonIdentities)
			continue
		}
		if err != nil {
			return out, err
		}
		lost = append(lost, through[1:]...)
	}
	slices.Sort(lost)
	if err := s.addIdentities(ctx, d, lost); err != nil {
		return out, err
	}
	describe := func(_ resource.UID, info resource.IdentityInfo) resource.IdentityInfo { return info }
	return collect(ctx, s, d, slices.Compact(lost), describe, func(resource.UID) int { return 1 }), nil
}

// addIdentities reads identities that d does not have yet, so that d can describe them.
func (s *Service) addIdentities(ctx context.Context, d *difference, uids []resource.UID) error {
	missing := slices.DeleteFunc(slices.Clone(uids), func(uid resource.UID) bool {
		_, ok := d.before.identities[uid]
		return ok
	})
	found, err := s.store.IdentitiesByUID(ctx, missing)
	maps.Copy(d.before.identities, found)
	return err
}

// endedSessions returns the identities whose sessions end, with the number of their sessions.
func (s *Service) endedSessions(ctx context.Context, d *difference) (out Affected[EndedSessions], _ error) {
	count := map[resource.UID]int{}
	for id, n := range d.before.sessions {
		if _, stays := d.after.sessions[id]; !stays {
			count[n.Identity]++
		}
	}
	identities := slices.Sorted(maps.Keys(count))
	if err := s.addIdentities(ctx, d, identities); err != nil {
		return out, err
	}
	return collect(ctx, s, d, identities, func(uid resource.UID, info resource.IdentityInfo) EndedSessions {
		return EndedSessions{info, count[uid]}
	}, func(uid resource.UID) int { return count[uid] }), nil
}

// pullCapabilities are the capabilities that a pull needs.
var pullCapabilities = resource.NewCapabilities(resource.ManifestList, resource.RepoBlobsGet)

// refusedPulls returns the pulls of the last 30 days from repos on which an identity loses the capabilities for a pull.
// The totals are numbers of pulls. The caller sees only pulls that they may list.
func (s *Service) refusedPulls(
	ctx context.Context, d *difference, lost []change,
) (out Affected[RefusedPulls], _ error) {
	if s.cfg.Pulls == nil {
		return out, nil
	}
	type puller struct{ identity, org resource.UID }
	var pullers []puller
	for _, c := range lost {
		p := puller{c.identity, c.group.Root()}
		if !pullCapabilities.Has(c.capability) || slices.Contains(pullers, p) {
			continue
		}
		if len(pullers) == maxPullers {
			d.incomplete(reasonPulls)
			break
		}
		pullers = append(pullers, p)
	}
	since := s.cfg.Now().UTC().Truncate(time.Millisecond).Add(-pullPeriod)
	for _, p := range pullers {
		if d.late() {
			break
		}
		repos, complete, err := s.cfg.Pulls.PulledBy(ctx, p.org, p.identity, since, maxPullsOfUser)
		if err != nil {
			return out, err
		}
		if !complete {
			d.incomplete(reasonPulls)
		}
		for _, r := range repos {
			if !r.Public && d.before.mayPull(p.identity, r.Repo) && !d.after.mayPull(p.identity, r.Repo) {
				s.addPulls(ctx, d, &out, p.identity, r)
			}
		}
	}
	return out, nil
}

// mayPull reports whether an identity holds the capabilities for a pull on a repo.
func (s *side) mayPull(identity, repo resource.UID) bool {
	return s.state.Held(identity, repo, pullCapabilities) == pullCapabilities
}

// addPulls counts refused pulls from a repo, and adds them if the caller may list them.
func (s *Service) addPulls(
	ctx context.Context, d *difference, out *Affected[RefusedPulls], identity resource.UID, r registry.PulledRepo,
) {
	out.Total += int(r.Count)
	if !s.authz.Sees(ctx, resource.RepoList, r.Repo) || !s.authz.Sees(ctx, resource.IdentityList, r.Repo) {
		out.Hidden += int(r.Count)
		return
	}
	if len(out.Shown) < maxShown {
		info, _ := s.visibleInfo(ctx, d, identity)
		out.Shown = append(out.Shown, RefusedPulls{info, r})
	}
}
