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

// A difference has the states before and after the changes.
type difference struct {
	limits        limits
	asOf          time.Time      // time for which both states are evaluated
	deadline      time.Time      // time at which the result must be returned
	affected      []resource.UID // identities that the changes may affect
	sessionIDs    []string       // sessions that the changes end
	before, after side
	reasons       []string // why the difference may be incomplete

	held map[resource.UID][]resource.UID // bindings of each identity before the changes
	uses map[resource.UID]map[resource.Capability]time.Time
}

// A side is the state of the affected identities before or after the changes.
type side struct {
	grants     map[resource.UID]iamdb.Grant // grants by the UIDs of their bindings
	roles      map[resource.UID]resource.Capabilities
	state      *authz.State
	identities map[resource.UID]resource.Identity
	sessions   map[string]resource.Session   // sessions by their ids
	unmapped   map[resource.UID]resource.UID // bindings that the next sign-in deletes, and the identity of each
}

// incomplete adds a reason why the difference may be incomplete.
func (d *difference) incomplete(reason string) {
	if !slices.Contains(d.reasons, reason) {
		d.reasons = append(d.reasons, reason)
	}
}

// late reports whether the deadline has passed.
func (d *difference) late() bool {
	if time.Now().Before(d.deadline) {
		return false
	}
	d.incomplete(reasonTime)
	return true
}

// apply makes the changes in a transaction that it rolls back, and reads both sides in that transaction.
func (s *Service) apply(ctx context.Context, c Changes, limits limits) (d *difference, err error) {
	bounded, cancel := context.WithTimeout(resource.WithDryRun(ctx), limits.apply)
	defer cancel()
	err = s.store.Simulate(bounded, func(ctx context.Context, r *store.Simulation) error {
		d = &difference{limits: limits}
		_, d.asOf = s.store.Clock()
		if err := c.Apply(ctx); err != nil {
			return err
		}
		if err := s.findAffected(ctx, d, r.Changes()); err != nil {
			return err
		}
		if err := s.readUnmapped(ctx, d, &d.after, c.Providers); err != nil {
			return err
		}
		d.addAffected(slices.Collect(maps.Values(d.after.unmapped)))
		if err := s.readSide(ctx, d, &d.after); err != nil {
			return err
		}
		if err := r.Undo(ctx); err != nil {
			return err
		}
		if err := s.readUnmapped(ctx, d, &d.before, c.Providers); err != nil {
			return err
		}
		return s.readSide(ctx, d, &d.before)
	})
	if bounded.Err() != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fault.New(fault.ResourceExhausted,
			"Resource exhausted: the changes take too long to simulate; simulate fewer changes together")
	}
	if err == nil {
		d.buildStates()
	}
	return d, err
}

// buildStates builds the states of both sides. A binding that the next sign-in deletes counts as lost.
func (d *difference) buildStates() {
	for uid := range d.after.unmapped {
		if _, before := d.before.unmapped[uid]; !before {
			delete(d.after.grants, uid)
		}
	}
	for _, to := range []*side{&d.before, &d.after} {
		to.state = authz.NewState(d.asOf, slices.Collect(maps.Values(to.grants)), to.roles)
	}
}

// findAffected finds the identities whose grants change, the identities that are bound to a role that changes, and the
// sessions that end.
func (s *Service) findAffected(ctx context.Context, d *difference, changes []store.GrantChange) error {
	var roles []resource.UID
	for _, c := range changes {
		id, session := strings.CutPrefix(string(c.Identity), string(resource.SessionSubject("")))
		switch {
		case c.Role != "":
			roles = append(roles, c.Role)
		case session:
			d.sessionIDs = append(d.sessionIDs, id)
		case c.Identity != "" && !strings.Contains(string(c.Identity), ":"):
			d.affected = append(d.affected, c.Identity)
		}
	}
	bound, err := s.store.BoundTo(ctx, roles, d.limits.identities+1)
	d.addAffected(bound)
	return err
}

// addAffected adds identities to the affected ones, up to the limit.
func (d *difference) addAffected(identities []resource.UID) {
	d.affected = append(d.affected, identities...)
	slices.Sort(d.affected)
	if d.affected = slices.Compact(d.affected); len(d.affected) > d.limits.identities {
		d.affected = d.affected[:d.limits.identities]
		d.incomplete(reasonIdentities)
	}
}

// readUnmapped reads the bindings that came from a mapping of these providers and that no mapping grants now.
func (s *Service) readUnmapped(ctx context.Context, d *difference, to *side, providers []resource.UID) error {
	to.unmapped = map[resource.UID]resource.UID{}
	for _, p := range providers {
		unmapped, err := s.store.Unmapped(ctx, p, d.limits.identities)
		if err != nil {
			return err
		}
		for _, b := range unmapped {
			to.unmapped[b.UID] = b.Identity
		}
	}
	return nil
}

// readSide reads the grants, roles and sessions of the affected identities.
func (s *Service) readSide(ctx context.Context, d *difference, to *side) (err error) {
	if to.grants, err = s.store.GrantsOfAll(ctx, d.affected); err != nil {
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
	if to.identities, err = s.store.IdentitiesByUID(ctx, d.affected); err != nil {
		return err
	}
	to.sessions, err = s.store.SessionsOf(ctx, d.affected, d.sessionIDs)
	return err
}

// A change is a capability that an identity gains or loses on a group.
type change struct {
	identity, group resource.UID
	capability      resource.Capability
}

// compare returns the capabilities that identities gain and lose. A change on a group includes everything below the
// group, so compare leaves out equal changes further down.
func (d *difference) compare() (gained, lost []change) {
	groups := d.changedGroups()
	for i, identity := range slices.Sorted(maps.Keys(groups)) {
		if i%64 == 0 && d.late() {
			break
		}
		up, down := map[resource.UID]resource.Capabilities{}, map[resource.UID]resource.Capabilities{}
		for _, group := range slices.Sorted(maps.Keys(groups[identity])) {
			want := groups[identity][group]
			had, has := d.before.state.Held(identity, group, want), d.after.state.Held(identity, group, want)
			gained = appendChanges(gained, up, identity, group, has.Without(had))
			lost = appendChanges(lost, down, identity, group, had.Without(has))
			if len(gained)+len(lost) > maxChanges {
				d.incomplete(reasonChanges)
				return gained, lost
			}
		}
	}
	return gained, lost
}

// appendChanges appends the changes of capabilities of an identity on a group, except capabilities that done has for a
// group above it. It adds the appended capabilities to done.
func appendChanges(
	changes []change, done map[resource.UID]resource.Capabilities, identity, group resource.UID,
	caps resource.Capabilities,
) []change {
	for _, above := range group.Ancestors() {
		caps = caps.Without(done[above])
	}
	done[group] = caps
	for _, c := range caps.All() {
		changes = append(changes, change{identity, group, c})
	}
	return changes
}

// changedGroups returns, for each identity, the groups on which a grant or the capabilities of its role change. Each
// group has the capabilities of the changed grants before and after the changes.
func (d *difference) changedGroups() map[resource.UID]map[resource.UID]resource.Capabilities {
	changed := map[resource.UID]map[resource.UID]resource.Capabilities{}
	add := func(from, to *side) {
		for uid, g := range from.grants {
			caps, active := from.state.Active(g)
			counterpart, equal := to.grants[uid]
			if equal {
				otherCaps, otherActive := to.state.Active(counterpart)
				equal = counterpart == g && otherCaps == caps && otherActive == active
			}
			if equal || !active {
				continue
			}
			if changed[g.Identity] == nil {
				changed[g.Identity] = map[resource.UID]resource.Capabilities{}
			}
			changed[g.Identity][g.Group] = changed[g.Identity][g.Group].Union(caps)
		}
	}
	add(&d.before, &d.after)
	add(&d.after, &d.before)
	return changed
}

// usesBatch is the number of bindings in one query for their uses.
const usesBatch = 2000

// readUses reads the last uses of the bindings of identities that lose a capability.
func (s *Service) readUses(ctx context.Context, d *difference, lost []change) error {
	d.held, d.uses = map[resource.UID][]resource.UID{}, map[resource.UID]map[resource.Capability]time.Time{}
	losers := map[resource.UID]bool{}
	for _, p := range lost {
		losers[p.identity] = true
	}
	var bindings []resource.UID
	for uid, g := range d.before.grants {
		if losers[g.Identity] {
			d.held[g.Identity], bindings = append(d.held[g.Identity], uid), append(bindings, uid)
		}
	}
	for batch := range slices.Chunk(bindings, usesBatch) {
		if d.late() {
			break
		}
		found, err := s.past.UsesOf(ctx, batch)
		if err != nil {
			return err
		}
		maps.Copy(d.uses, found)
	}
	return nil
}

// lastUse returns the time of the last use of a lost capability through a binding that gives it on the group, or the
// zero time.
func (d *difference) lastUse(c change) (last time.Time) {
	for _, uid := range d.held[c.identity] {
		if used := d.uses[uid][c.capability]; used.After(last) && uid.Parent().Covers(c.group) {
			last = used
		}
	}
	return last
}
