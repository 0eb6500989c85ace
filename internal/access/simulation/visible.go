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
)

// nameChanges counts pairs and describes the first of those that the caller may see.
func (s *Service) nameChanges(ctx context.Context, d *difference, all []pair) (out AccessChanges, err error) {
	identities, visible := map[resource.UID]bool{}, map[resource.UID]bool{}
	var seen []usedPair
	out.Total = len(all)
	recent := d.at.Add(-simulationPeriod)
	for i, p := range all {
		identities[p.identity] = true
		u := usedPair{pair: p}
		if i%1024 != 0 || !d.late() {
			u.last = d.lastUse(p)
		}
		if u.last.After(recent) {
			out.Used++
		}
		if _, ok := visible[p.group]; !ok {
			visible[p.group] = s.authz.Sees(ctx, resource.RoleBindingsList, p.group)
		}
		if visible[p.group] || s.isSelf(ctx, p.identity) {
			seen = append(seen, u)
		}
	}
	out.Identities, out.Hidden = len(identities), len(all)-len(seen)
	slices.SortStableFunc(seen, func(a, b usedPair) int {
		return cmp.Or(b.last.Compare(a.last), cmp.Compare(a.identity, b.identity), cmp.Compare(a.group, b.group),
			cmp.Compare(a.capability.String(), b.capability.String()))
	})
	seen = seen[:min(len(seen), simulationShown)]
	out.Shown, err = s.describePairs(ctx, d, seen)
	return out, err
}

// isSelf reports whether an identity is the caller's own, and their token is not narrowed.
func (s *Service) isSelf(ctx context.Context, identity resource.UID) bool {
	c, ok := authz.CallerFrom(ctx)
	return ok && c.Identity == identity && c.Narrowing().IsZero()
}

// A usedPair is a pair with its last use.
type usedPair struct {
	pair
	last time.Time
}

// describePairs adds names, as far as the caller may see them.
func (s *Service) describePairs(ctx context.Context, d *difference, all []usedPair) (out []AccessChange, _ error) {
	var groups []resource.UID
	var people []resource.UID
	for _, p := range all {
		groups, people = append(groups, p.group), append(people, p.identity)
	}
	names, err := s.store.NamesOf(ctx, "groups", true, groups)
	if err != nil {
		return nil, err
	}
	joined, err := s.store.Joined(ctx, people)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		b := resource.BoundRole{RoleBinding: resource.RoleBinding{UID: p.group.NewChild(), Identity: p.identity}}
		b.IdentityInfo = d.info(p.identity)
		b.IdentityInfo.Member = slices.Contains(joined[p.identity], p.group.Root())
		change := AccessChange{Identity: s.iam.Redact(ctx, b).IdentityInfo, Capability: p.capability, Group: names[p.group],
			LastUse: p.last}
		change.Group.UID = p.group
		out = append(out, change)
	}
	return out, nil
}

// info describes an identity as it is before the changes, or after them if it is new.
func (d *difference) info(uid resource.UID) (info resource.IdentityInfo) {
	i, ok := d.before.identities[uid]
	if !ok {
		i = d.after.identities[uid]
	}
	info.UID, info.Name, info.DisplayName, info.Description = uid, i.Name, i.DisplayName, i.Description
	info.Issuer, info.Subject, info.Email = i.Relationship.Issuer(), i.Relationship.Subject(), i.Email
	return info
}

// visibleInfo describes an identity, if the caller may get it.
func (s *Service) visibleInfo(ctx context.Context, d *difference, uid resource.UID) (info resource.IdentityInfo, ok bool) {
	if s.isSelf(ctx, uid) || s.authz.Sees(ctx, resource.IdentityList, uid) {
		return d.info(uid), true
	}
	if found, err := s.iam.VisiblePeople(ctx, []resource.UID{uid}); uid.IsRoot() && err == nil && len(found) > 0 {
		return d.info(uid), true
	}
	return resource.IdentityInfo{Info: resource.Info{UID: uid}}, false
}

// collect counts things about identities, and has describe make the first of those that the caller may see.
func collect[T any](
	ctx context.Context, s *Service, d *difference, all []resource.UID,
	describe func(resource.UID, resource.IdentityInfo) T, weight func(resource.UID) int,
) (out Affected[T]) {
	for _, uid := range all {
		n := weight(uid)
		out.Total += n
		if len(out.Shown) >= simulationShown {
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

// lostWorkloads returns the workloads that could no longer exchange: those that are gone or trust something else, and
// those that could be assumed through one that is gone.
func (s *Service) lostWorkloads(ctx context.Context, d *difference) (out Affected[resource.IdentityInfo], _ error) {
	var all []resource.UID
	for _, uid := range slices.Sorted(maps.Keys(d.before.identities)) {
		i, stays := d.after.identities[uid]
		if uid.IsRoot() || stays && reflect.DeepEqual(i.Relationship, d.before.identities[uid].Relationship) {
			continue
		}
		all = append(all, uid)
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
		all = append(all, through[1:]...)
	}
	slices.Sort(all)
	if err := s.addIdentities(ctx, d, all); err != nil {
		return out, err
	}
	return collect(ctx, s, d, slices.Compact(all), func(_ resource.UID, info resource.IdentityInfo) resource.IdentityInfo {
		return info
	}, func(resource.UID) int { return 1 }), nil
}

// addIdentities reads the identities that were not touched, to describe them.
func (s *Service) addIdentities(ctx context.Context, d *difference, all []resource.UID) error {
	missing := slices.DeleteFunc(slices.Clone(all), func(uid resource.UID) bool {
		_, ok := d.before.identities[uid]
		return ok
	})
	found, err := s.store.IdentitiesByUID(ctx, missing)
	maps.Copy(d.before.identities, found)
	return err
}

// endedSessions returns whose sessions end.
func (s *Service) endedSessions(ctx context.Context, d *difference) (out Affected[EndedSessions], _ error) {
	count := map[resource.UID]int{}
	for id, n := range d.before.sessions {
		if _, stays := d.after.sessions[id]; !stays {
			count[n.Identity]++
		}
	}
	all := slices.Sorted(maps.Keys(count))
	if err := s.addIdentities(ctx, d, all); err != nil {
		return out, err
	}
	return collect(ctx, s, d, all, func(uid resource.UID, info resource.IdentityInfo) EndedSessions {
		return EndedSessions{info, count[uid]}
	}, func(uid resource.UID) int { return count[uid] }), nil
}

// pulls are the capabilities that a pull needs.
var pulls = resource.NewCapabilities(resource.ManifestList, resource.RepoBlobsGet)

// refusedPulls returns which pulls of the last 30 days were of those who lose what a pull needs, from repos where they do.
// The total is of pulls. The caller sees those that they could list.
func (s *Service) refusedPulls(ctx context.Context, d *difference, lost []pair) (out Affected[RefusedPulls], _ error) {
	if s.cfg.Pulls == nil {
		return out, nil
	}
	type puller struct{ identity, org resource.UID }
	var pullers []puller
	for _, p := range lost {
		if q := (puller{p.identity, p.group.Root()}); pulls.Has(p.capability) && !slices.Contains(pullers, q) {
			if len(pullers) == maxSimPullers {
				d.incomplete(reasonPulls)
				break
			}
			pullers = append(pullers, q)
		}
	}
	since := s.cfg.Now().UTC().Truncate(time.Millisecond).Add(-simulationPeriod)
	for _, p := range pullers {
		if d.late() {
			break
		}
		repos, all, err := s.cfg.Pulls(ctx, p.org, p.identity, since, maxPullsOfOne)
		if err != nil {
			return out, err
		}
		if !all {
			d.incomplete(reasonPulls)
		}
		for _, r := range repos {
			if r.Public || d.before.state.Held(p.identity, r.Repo, pulls) != pulls || d.after.state.Held(p.identity, r.Repo, pulls) == pulls {
				continue
			}
			s.addPulls(ctx, d, &out, p.identity, r)
		}
	}
	return out, nil
}

// addPulls counts refused pulls, and adds them if the caller could list them.
func (s *Service) addPulls(ctx context.Context, d *difference, out *Affected[RefusedPulls], identity resource.UID, r PulledRepo) {
	out.Total += int(r.Count)
	if !s.authz.Sees(ctx, resource.RepoList, r.Repo) || !s.authz.Sees(ctx, resource.IdentityList, r.Repo) {
		out.Hidden += int(r.Count)
		return
	}
	if len(out.Shown) < simulationShown {
		info, _ := s.visibleInfo(ctx, d, identity)
		out.Shown = append(out.Shown, RefusedPulls{info, r})
	}
}
