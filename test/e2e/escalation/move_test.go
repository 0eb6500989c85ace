package escalation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A script records every choice of one move by name. So the move can be repeated in another world, even if earlier
// moves are left out.
type script struct {
	n    int        // number of the move; the names of its resources contain it
	rng  *rand.Rand // makes the choices; nil if the move is repeated
	said []string
	next int
}

// A move is one call to the service by one side. If a choice has no candidates, the move is stuck and does nothing.
type move struct {
	*world
	*script
	ctx   context.Context // context with the actor as the caller
	side  side
	kind  string
	actor *held
	stuck bool
	text  string // description of the move for people

	before   []authz.Grant // grants that the actor had before the move
	operator bool          // whether the operator makes the move, who holds all capabilities
	// whether the capabilities that the attackers get by the move were meant for another identity
	unmeant bool
	limit   func(promise) bool // reports whether a promise was meant for the attackers; nil means all
	// The person who signed in for the first time in this move, with the roles that were promised to them.
	arrived resource.UID
	// By place, the capability that the actor must hold there, because the actor gives a role there.
	gives   map[resource.UID]resource.Capability
	founded resource.UID // the organization that the move created
}

// pick chooses a candidate. It chooses a preferred candidate most of the time, and always if strict is set.
func pick[T any](m *move, candidates, prefer []T, strict bool, name func(T) string) (none T) {
	if m.stuck {
		return none
	}
	if m.rng == nil {
		if m.next < len(m.said) {
			want := m.said[m.next]
			m.next++
			if i := slices.IndexFunc(candidates, func(v T) bool { return name(v) == want }); i >= 0 {
				return candidates[i]
			}
		}
		m.stuck = true
		return none
	}
	if strict || len(prefer) > 0 && m.rng.IntN(5) > 0 {
		candidates = prefer
	}
	if len(candidates) == 0 {
		m.stuck = true
		return none
	}
	chosen := candidates[m.rng.IntN(len(candidates))]
	m.said = append(m.said, name(chosen))
	return chosen
}

// word chooses one of the options. An option that is listed twice is chosen twice as often.
func (m *move) word(options ...string) string {
	return pick(m, options, options, false, func(s string) string { return s })
}

func (m *move) object(candidates []*object, prefer func(*object) bool) *object {
	var preferred []*object
	if m.rng != nil && prefer != nil {
		for _, o := range candidates {
			if prefer(o) {
				preferred = append(preferred, o)
			}
		}
	}
	if o := pick(m, candidates, preferred, false, func(o *object) string { return o.name }); o != nil {
		return o
	}
	return &object{}
}

// may reports whether the actor has a capability on a place.
func (m *move) may(want resource.Capability, place resource.UID) bool {
	return m.checker.Require(m.ctx, want, place) == nil
}

// where chooses a group in which the actor has the capability.
func (m *move) where(want resource.Capability) *object {
	return m.object(m.groups, func(g *object) bool { return m.may(want, g.uid) })
}

// role chooses a role that the actor can give in a group.
func (m *move) role(group resource.UID) *object {
	return m.object(m.roles, func(r *object) bool {
		return (r.uid.IsRoot() || r.uid.Parent().Covers(group)) &&
			m.checker.RequireAll(m.ctx, m.state.roles[r.uid].Capabilities, group) == nil
	})
}

// recipient chooses the identity that gets a role. The honest side prefers identities that the attackers do not
// control yet. It makes no other identity an owner, because then nothing would be left to attack.
func (m *move) recipient(role resource.UID) *object {
	if m.rng == nil || m.side == evil {
		return m.object(m.identities, nil)
	}
	controlled := m.control(evil)
	free := slices.DeleteFunc(slices.Clone(m.identities), func(o *object) bool { return controlled[o.uid] != "" })
	if role == resource.OwnerRole {
		return m.object(free, nil)
	}
	return m.object(m.identities, func(o *object) bool { return slices.Contains(free, o) })
}

// workload chooses a workload on which the actor has the capability.
func (m *move) workload(want resource.Capability) *object {
	identities := slices.DeleteFunc(slices.Clone(m.identities), func(o *object) bool { return o.uid.IsRoot() })
	return m.object(identities, func(o *object) bool { return m.may(want, o.uid) })
}

func (m *move) user(allowed func(user) bool) user {
	var can []user
	for _, u := range users {
		if allowed(u) {
			can = append(can, u)
		}
	}
	return pick(m, users, can, true, func(u user) string { return u.name })
}

// do calls act and records the description of the move. If the move is stuck, do does nothing.
func (m *move) do(act func() error, format string, args ...any) error {
	if m.stuck {
		return nil
	}
	m.text = fmt.Sprintf(format, args...)
	return m.disturb(act)
}

// giving records that the actor gives a role on a place, and therefore must hold want there.
func (m *move) giving(place resource.UID, want resource.Capability) {
	m.gives = map[resource.UID]resource.Capability{place: want}
}

// made adds an object for a created resource to a list, and returns the object.
func (m *move) made(list *[]*object, kind string, uid resource.UID) *object {
	o := &object{name: fmt.Sprintf("%s %d", kind, m.n), uid: uid}
	*list = append(*list, o)
	return o
}

// A kind is a kind of move. It has the relative frequency with which each side makes such moves.
type kind struct {
	name   string
	weight [2]int
	make   func(*move) error
}

var kinds = []kind{
	{"folder", [2]int{2, 1}, (*move).createFolder},
	{"role", [2]int{3, 2}, (*move).createRole},
	{"role update", [2]int{2, 3}, (*move).updateRole},
	{"bind", [2]int{12, 6}, (*move).bind},
	{"bind by lookup", [2]int{5, 0}, (*move).bindByLookup},
	{"hire", [2]int{5, 0}, (*move).hire},
	{"binding update", [2]int{2, 3}, (*move).updateBinding},
	{"unbind", [2]int{1, 1}, (*move).unbind},
	{"identity", [2]int{5, 3}, (*move).createIdentity},
	{"identity update", [2]int{4, 8}, (*move).updateIdentity},
	{"identity delete", [2]int{1, 1}, (*move).deleteIdentity},
	{"provider", [2]int{3, 4}, (*move).createProvider},
	{"provider update", [2]int{3, 8}, (*move).updateProvider},
	{"provider delete", [2]int{1, 1}, (*move).deleteProvider},
	{"provider trust", [2]int{3, 0}, (*move).trustProvider},
	{"mapping", [2]int{4, 5}, (*move).createMapping},
	{"mapping delete", [2]int{1, 1}, (*move).deleteMapping},
	{"invite", [2]int{3, 2}, (*move).createInvite},
	{"redeem", [2]int{3, 4}, (*move).redeem},
	{"account", [2]int{3, 2}, (*move).createAccount},
	{"account delete", [2]int{1, 1}, (*move).deleteAccount},
	{"link", [2]int{2, 5}, (*move).createLink},
	{"follow", [2]int{2, 4}, (*move).followLink},
	{"sign in", [2]int{6, 5}, (*move).signIn},
	{"hand", [2]int{4, 0}, (*move).handNarrowed},
	{"refresh", [2]int{0, 4}, (*move).refreshToken},
	{"again", [2]int{0, 3}, (*move).exchangeAgain},
	{"exchange", [2]int{0, 4}, (*move).tryExchange},
	{"end", [2]int{1, 1}, (*move).endSession},
	{"found", [2]int{0, 1}, (*move).found},
	{"leave", [2]int{1, 1}, (*move).leave},
	{"half-sent", [2]int{0, 4}, (*move).sendHalf},
}

// opening lists the first moves of a world, with the side in whose organization they are made. Without these moves
// there would be nothing to attack for a long time.
var opening = []struct {
	side side
	kind string
}{
	{good, "folder"}, {good, "role"}, {good, "role"}, {good, "role"}, {good, "identity"}, {good, "identity"},
	{good, "provider"}, {good, "mapping"},
	{evil, "identity"}, {evil, "provider"}, {good, "sign in"}, {good, "bind"}, {good, "bind"}, {good, "hire"},
	{good, "hire"}, {good, "hire"}, {good, "account"},
	{good, "identity"}, {good, "bind"},
}

// step makes one move, and returns an error if a rule is broken after it. If kindName is set, the planned side makes
// a move of that kind.
func (w *world) step(s *script, planned side, kindName string) (m *move, wrong error) {
	w.clock.Add(1)
	w.drop()
	m = &move{world: w, script: s, ctx: w.ctx}
	k := m.chooseKind(planned, kindName)
	m.kind = k.name
	m.chooseActor()
	if m.stuck {
		return m, nil
	}
	if err := k.make(m); err != nil || m.stuck {
		if fault.From(err).Code == fault.Internal && err != nil && m.text != "" {
			m.text += fmt.Sprintf(" (fails: %v)", err)
		} else {
			m.text += " (refused)"
		}
		return m, w.wrong
	}
	w.counts[m.side][k.name]++
	if err := w.read(); err != nil {
		return m, err
	}
	w.drop()
	if wrong = w.judge(m); wrong == nil {
		w.mint(good)
		w.mint(evil)
		wrong = w.observe()
	}
	return m, wrong
}

func (m *move) chooseKind(planned side, kindName string) kind {
	if m.rng != nil && kindName == "" {
		planned = good
		if m.rng.IntN(100) < 62 {
			planned = evil
		}
		total := 0
		for _, k := range kinds {
			total += k.weight[planned]
		}
		at := m.rng.IntN(total)
		for _, k := range kinds {
			if at -= k.weight[planned]; at < 0 {
				kindName = k.name
				break
			}
		}
	}
	both := []string{good.String(), evil.String()}
	chosen := pick(m, both, []string{planned.String()}, true, func(s string) string { return s })
	m.side = side(max(0, slices.Index(both, chosen)))
	var this []kind
	for _, k := range kinds {
		if k.name == kindName {
			this = append(this, k)
		}
	}
	return pick(m, kinds, this, true, func(k kind) string { return k.name })
}

// chooseActor chooses one of the tokens of the side. It prefers tokens whose identity has a grant. Half of the time,
// the attackers prefer tokens with a grant outside of their own organization.
func (m *move) chooseActor() {
	inside := m.rng != nil && m.side == evil && m.rng.IntN(2) == 0
	var powerful []*held
	for _, h := range m.tokens[m.side] {
		if slices.ContainsFunc(m.checker.GrantsOf(h.caller.Identity),
			func(g authz.Grant) bool { return !inside || g.Group.Root() != m.groups[evil].uid }) {
			powerful = append(powerful, h)
		}
	}
	tokens := m.tokens[m.side]
	if m.side == evil && !slices.Contains(undisturbed, m.kind) {
		tokens = slices.Concat(tokens, m.halfSent)
		powerful = append(powerful, m.halfSent...)
	}
	m.actor = pick(m, tokens, powerful, false, func(h *held) string { return h.name })
	if m.stuck {
		return
	}
	m.ctx = authz.WithCaller(m.world.ctx, m.actor.caller)
	m.before = m.checker.GrantsOf(m.actor.caller.Identity)
}
