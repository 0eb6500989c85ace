package simulation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

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
func (s *Service) rehearse(ctx context.Context, sim Changes) (d *difference, err error) {
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
		found, err := s.past.UsesOf(ctx, some)
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
