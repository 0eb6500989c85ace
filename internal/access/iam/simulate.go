package iam

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The bounds of a simulation.
const (
	MaxSimulated = 20 // changes

	simulationShown    = 50                  // of each list
	simulationPeriod   = 30 * 24 * time.Hour // in which use and pulls count
	simulationTime     = 5 * time.Second     // then the answer is what was found until then
	rehearsalTime      = 3 * time.Second     // to make the changes and to read what they did
	maxSimIdentities   = 2000
	maxSimPairs        = 200_000 // of an identity and a capability on a group
	maxSimPullers      = 100     // whose pulls are looked at
	maxPullsOfOne      = 2000
	reasonTime         = "TIME: the answer took too long; what was found until then is here"
	reasonIdentities   = "IDENTITIES: the changes are about too many identities; the first 2000 were looked at"
	reasonPairs        = "CHANGES: too many capabilities are gained and lost; not all were counted"
	reasonPulls        = "PULLS: there are too many pulls to look at; the newest were"
	reasonUnknownUsers = "UNKNOWN: who comes through a mapping, a provider or an invite is known only then"
)

// A PulledRepo is a repo that an identity has pulled from.
type PulledRepo struct {
	Repo   resource.UID
	Path   string // the names of its groups and its own
	Public bool   // anybody can pull from it
	Count  int64
	Last   time.Time
}

// Consequences are what changes would do.
type Consequences struct {
	Gained, Lost AccessChanges
	Workloads    Affected[resource.IdentityInfo] // that could no longer exchange
	Sessions     Affected[EndedSessions]
	Pulls        Affected[RefusedPulls]
	Incomplete   []string // why there may be more
}

// AccessChanges are capabilities that identities would gain or lose.
type AccessChanges struct {
	Affected[AccessChange]
	Identities int // whom it is about
	Used       int // of all, those used in the last 30 days
}

// Affected are the first of those that the caller may see, how many there are altogether, and how many of these the caller
// may not see.
type Affected[T any] struct {
	Shown         []T
	Total, Hidden int
}

// An AccessChange is a capability that an identity would gain or lose on a group.
type AccessChange struct {
	Identity   resource.IdentityInfo
	Capability resource.Capability
	Group      resource.Info
	LastUse    time.Time // zero if it is not known
}

// EndedSessions are the sessions of somebody that would end.
type EndedSessions struct {
	Identity resource.IdentityInfo
	Count    int
}

// RefusedPulls are pulls of the last 30 days from a repo that would have been refused.
type RefusedPulls struct {
	Identity resource.IdentityInfo
	PulledRepo
}

// A Simulation is what to simulate.
type Simulation struct {
	Apply     func(context.Context) error // makes the changes; it may be called again
	Providers []resource.UID              // whose mappings are deleted
	Open      bool                        // somebody unknown may gain something later
}

// Simulate reports what changes would do, and makes none of them. They are made in a transaction that is rolled back, by
// the methods that would make them, with their authorization and their errors. What the caller may not see is counted.
func (s *Service) Simulate(ctx context.Context, sim Simulation) (out Consequences, _ error) {
	caller, err := authz.RequireCaller(ctx)
	if err != nil {
		return out, err
	}
	end, err := s.rehearsals.Acquire(ctx, caller.Identity.Root())
	if err != nil {
		return out, err
	}
	defer end()
	ends := time.Now().Add(simulationTime)
	d, err := s.rehearse(ctx, sim)
	if err != nil {
		return out, err
	}
	d.ends = ends
	if sim.Open {
		d.incomplete(reasonUnknownUsers)
	}
	gained, lost := d.compare()
	if err := s.readUses(ctx, d, lost); err != nil {
		return out, err
	}
	if out.Gained, err = s.nameChanges(ctx, d, gained); err != nil {
		return out, err
	}
	if out.Lost, err = s.nameChanges(ctx, d, lost); err != nil {
		return out, err
	}
	if out.Workloads, err = s.lostWorkloads(ctx, d); err != nil {
		return out, err
	}
	if out.Sessions, err = s.endedSessions(ctx, d); err != nil {
		return out, err
	}
	if out.Pulls, err = s.refusedPulls(ctx, d, lost); err != nil {
		return out, err
	}
	out.Incomplete = d.reasons
	return out, nil
}

// A difference is what a rehearsal has found: the states before and after the changes.
type difference struct {
	at            time.Time // at which both are judged
	ends          time.Time // when the answer is due
	touched       []resource.UID
	sessionIDs    []string
	before, after side
	reasons       []string

	held map[resource.UID][]resource.UID // the bindings of each identity before the changes
	uses map[resource.UID]map[resource.Capability]time.Time
}

// A side is what identities hold before or after the changes.
type side struct {
	grants     map[resource.UID]iamdb.Grant // by binding
	roles      map[resource.UID]resource.Capabilities
	state      *authz.State
	identities map[resource.UID]resource.Identity
	sessions   map[string]resource.Session
	unmapped   map[resource.UID]resource.UID // identities by their bindings that go when they sign in again
}

func (d *difference) incomplete(reason string) {
	if !slices.Contains(d.reasons, reason) {
		d.reasons = append(d.reasons, reason)
	}
}

// late reports whether the answer is due.
func (d *difference) late() bool {
	if time.Now().Before(d.ends) {
		return false
	}
	d.incomplete(reasonTime)
	return true
}

// rehearse makes the changes in a transaction and reads both sides in it.
func (s *Service) rehearse(ctx context.Context, sim Simulation) (d *difference, err error) {
	bounded, cancel := context.WithTimeout(resource.WithDryRun(ctx), rehearsalTime)
	defer cancel()
	err = s.store.Simulate(bounded, func(ctx context.Context, r *store.Simulation) error {
		d = &difference{}
		_, d.at = s.store.Clock()
		if err := sim.Apply(ctx); err != nil {
			return err
		}
		if err := s.findTouched(ctx, d, r.Changes()); err != nil {
			return err
		}
		if err := s.readUnmapped(ctx, &d.after, sim.Providers); err != nil {
			return err
		}
		d.touch(slices.Collect(maps.Values(d.after.unmapped)))
		if err := s.readSide(ctx, d, &d.after); err != nil {
			return err
		}
		if err := r.Undo(ctx); err != nil {
			return err
		}
		if err := s.readUnmapped(ctx, &d.before, sim.Providers); err != nil {
			return err
		}
		return s.readSide(ctx, d, &d.before)
	})
	if bounded.Err() != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fault.New(fault.ResourceExhausted, "Resource exhausted: the changes take too long to try; simulate fewer at once")
	}
	if err == nil {
		d.judge()
	}
	return d, err
}

// judge makes the states of both sides. What goes when somebody signs in again counts as lost.
func (d *difference) judge() {
	for uid := range d.after.unmapped {
		if _, before := d.before.unmapped[uid]; !before {
			delete(d.after.grants, uid)
		}
	}
	for _, to := range []*side{&d.before, &d.after} {
		to.state = authz.NewState(d.at, slices.Collect(maps.Values(to.grants)), to.roles)
	}
}

// findTouched notes whom the changes are about: those whose grants change, and those who are bound to a role that does.
func (s *Service) findTouched(ctx context.Context, d *difference, changes []store.GrantChange) error {
	var roles []resource.UID
	for _, c := range changes {
		id, session := strings.CutPrefix(string(c.Identity), string(resource.SessionSubject("")))
		switch {
		case c.Role != "":
			roles = append(roles, c.Role)
		case session:
			d.sessionIDs = append(d.sessionIDs, id)
		case c.Identity != "" && !strings.Contains(string(c.Identity), ":"):
			d.touched = append(d.touched, c.Identity)
		}
	}
	bound, err := s.store.BoundTo(ctx, roles, maxSimIdentities+1)
	d.touch(bound)
	return err
}

// touch adds identities to those that are looked at.
func (d *difference) touch(all []resource.UID) {
	d.touched = append(d.touched, all...)
	slices.Sort(d.touched)
	if d.touched = slices.Compact(d.touched); len(d.touched) > maxSimIdentities {
		d.touched = d.touched[:maxSimIdentities]
		d.incomplete(reasonIdentities)
	}
}

// readUnmapped reads which bindings no mapping of these providers gives any more.
func (s *Service) readUnmapped(ctx context.Context, to *side, providers []resource.UID) error {
	to.unmapped = map[resource.UID]resource.UID{}
	for _, p := range providers {
		all, err := s.store.Unmapped(ctx, p, maxSimIdentities)
		if err != nil {
			return err
		}
		for _, b := range all {
			to.unmapped[b.UID] = b.Identity
		}
	}
	return nil
}

// readSide reads what those whom the changes are about hold.
func (s *Service) readSide(ctx context.Context, d *difference, to *side) (err error) {
	if to.grants, err = s.store.GrantsOfAll(ctx, d.touched); err != nil {
		return err
	}
	var roles []resource.UID
	for _, g := range to.grants {
		roles = append(roles, g.Role)
	}
	slices.Sort(roles)
	if to.roles, err = s.store.CapabilitiesOf(ctx, slices.Compact(roles)); err != nil {
		return err
	}
	if to.identities, err = s.store.IdentitiesByUID(ctx, d.touched); err != nil {
		return err
	}
	to.sessions, err = s.store.SessionsOf(ctx, d.touched, d.sessionIDs)
	return err
}

// A pair is an identity and a capability that it gains or loses on a group.
type pair struct {
	identity, group resource.UID
	capability      resource.Capability
}

// compare returns what identities gain and lose. A group is named for everything below it: where somebody gains or loses
// the same further down, only the uppermost group is.
func (d *difference) compare() (gained, lost []pair) {
	groups := d.changedGroups()
	for i, identity := range slices.Sorted(maps.Keys(groups)) {
		if i%64 == 0 && d.late() {
			break
		}
		up, down := map[resource.UID]resource.Capabilities{}, map[resource.UID]resource.Capabilities{}
		for _, group := range slices.Sorted(maps.Keys(groups[identity])) {
			want := groups[identity][group]
			had, has := d.before.state.Held(identity, group, want), d.after.state.Held(identity, group, want)
			gained = appendPairs(gained, up, identity, group, has.Without(had))
			lost = appendPairs(lost, down, identity, group, had.Without(has))
			if len(gained)+len(lost) > maxSimPairs {
				d.incomplete(reasonPairs)
				return gained, lost
			}
		}
	}
	return gained, lost
}

// appendPairs adds the capabilities of an identity on a group that are not done on a group above it.
func appendPairs(
	all []pair, done map[resource.UID]resource.Capabilities, identity, group resource.UID, caps resource.Capabilities,
) []pair {
	for _, above := range group.Ancestors() {
		caps = caps.Without(done[above])
	}
	done[group] = caps
	for _, c := range caps.All() {
		all = append(all, pair{identity, group, c})
	}
	return all
}

// changedGroups returns the groups on which each identity has another grant than before, or one of a role that allows
// something else, with all that its grants there have allowed or allow.
func (d *difference) changedGroups() map[resource.UID]map[resource.UID]resource.Capabilities {
	all := map[resource.UID]map[resource.UID]resource.Capabilities{}
	add := func(from, to *side) {
		for uid, g := range from.grants {
			caps, counts := from.state.Counts(g)
			other, ok := to.grants[uid]
			if ok {
				otherCaps, otherCounts := to.state.Counts(other)
				ok = other == g && otherCaps == caps && otherCounts == counts
			}
			if ok || !counts {
				continue
			}
			if all[g.Identity] == nil {
				all[g.Identity] = map[resource.UID]resource.Capabilities{}
			}
			all[g.Identity][g.Group] = all[g.Identity][g.Group].Union(caps)
		}
	}
	add(&d.before, &d.after)
	add(&d.after, &d.before)
	return all
}

// usesBatch is how many bindings are asked about at once.
const usesBatch = 2000

// readUses reads when those who lose something have last used what they held.
func (s *Service) readUses(ctx context.Context, d *difference, lost []pair) error {
	d.held, d.uses = map[resource.UID][]resource.UID{}, map[resource.UID]map[resource.Capability]time.Time{}
	losers := map[resource.UID]bool{}
	for _, p := range lost {
		losers[p.identity] = true
	}
	var all []resource.UID
	for uid, g := range d.before.grants {
		if losers[g.Identity] {
			d.held[g.Identity], all = append(d.held[g.Identity], uid), append(all, uid)
		}
	}
	for some := range slices.Chunk(all, usesBatch) {
		if d.late() {
			break
		}
		found, err := s.store.UsesOf(ctx, some)
		if err != nil {
			return err
		}
		maps.Copy(d.uses, found)
	}
	return nil
}

// lastUse returns when a capability was last used by a role binding that gives it on the group, or the zero time.
func (d *difference) lastUse(p pair) (last time.Time) {
	for _, uid := range d.held[p.identity] {
		if at := d.uses[uid][p.capability]; at.After(last) && uid.Parent().Covers(p.group) {
			last = at
		}
	}
	return last
}

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
		change := AccessChange{Identity: s.redact(ctx, b).IdentityInfo, Capability: p.capability, Group: names[p.group],
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
	if found, err := s.visiblePeople(ctx, []resource.UID{uid}); uid.IsRoot() && err == nil && len(found) > 0 {
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
	since := s.now().Add(-simulationPeriod)
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
