package authz

import (
	"context"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A tree creates UIDs that look random and are the same in every run.
type tree struct{ *rand.Rand }

func newTree() tree { return tree{rand.New(rand.NewPCG(1, 2))} }

const digits = "0123456789abcdef"

func (t tree) hex(n int) resource.UID {
	b := make([]byte, n)
	for i := range b {
		b[i] = digits[t.IntN(len(digits))]
	}
	return resource.UID(b)
}

func (t tree) root() resource.UID                     { return t.hex(40) }
func (t tree) child(parent resource.UID) resource.UID { return parent + "/" + t.hex(16) }
func (t tree) of(all []resource.UID) resource.UID     { return all[t.IntN(len(all))] }
func (t tree) few(all []resource.UID, n int) []resource.UID {
	few := []resource.UID{}
	for range t.IntN(n + 1) {
		few = append(few, t.of(all))
	}
	return few
}

// groups returns n groups, a hundred in each organization. Some of them are many levels deep.
func (t tree) groups(n int) []resource.UID {
	var all []resource.UID
	for len(all) < n {
		organization := []resource.UID{t.root()}
		for len(organization) < 100 {
			organization = append(organization, t.child(t.of(organization)))
		}
		all = append(all, organization...)
	}
	return all[:n]
}

func systemClock() (earliest, latest time.Time) { return time.Now(), time.Now() }

func checkerOf(grants []iamdb.Grant, roles map[resource.UID]resource.Capabilities) *Checker {
	x := newIndex(systemClock)
	for _, g := range grants {
		x.add(g)
	}
	x.sort()
	x.setRoles(roles)
	return &Checker{index: x, now: time.Now}
}

func capabilitiesOf(roles []resource.Role) map[resource.UID]resource.Capabilities {
	all := map[resource.UID]resource.Capabilities{}
	for _, r := range roles {
		all[r.UID] = r.Capabilities
	}
	return all
}

// A world is a random index and the grants from which it was made.
type world struct {
	*Checker
	tree       tree
	groups     []resource.UID
	identities []resource.UID
	roles      map[resource.UID]resource.Capabilities
	grants     map[resource.UID][]iamdb.Grant
	second     int64 // current time in seconds
}

func newWorld() *world {
	w := &world{tree: newTree(), roles: capabilitiesOf(ManagedRoles()), grants: map[resource.UID][]iamdb.Grant{}}
	w.groups = w.tree.groups(300)
	w.Checker = checkerOf(nil, w.roles)
	w.second = 1000
	w.index.clock = func() (earliest, latest time.Time) {
		return time.Unix(w.second, 0), time.Unix(w.second, 999_999_999)
	}
	for range 20 {
		w.identities = append(w.identities, w.tree.root())
	}
	return w
}

// change replaces the grants of a random identity by random ones.
func (w *world) change() {
	identity, roles := w.tree.of(w.identities), slices.Sorted(maps.Keys(w.roles))
	var grants []iamdb.Grant
	for _, g := range w.tree.few(w.groups, 12) {
		grant := iamdb.Grant{Identity: identity, Group: g, Role: w.tree.of(roles)}
		if w.tree.IntN(2) == 0 {
			grant.StartMS = w.moment()
		}
		if w.tree.IntN(2) == 0 {
			grant.ExpireMS = w.moment()
		}
		grants = append(grants, grant)
	}
	w.second += int64(w.tree.IntN(3)) - 1
	w.grants[identity] = grants
	w.index.setGrants(identity, grants)
}

// moment returns a random time near the current one, in whole seconds.
func (w *world) moment() int64 { return (w.second + int64(w.tree.IntN(7)) - 3) * 1000 }

// holds reports, without an index, whether a caller holds a capability until a second. If until is 0, it asks for the
// present only, and if until is -1, for a permanent grant.
func (w *world) holds(c Caller, want resource.Capability, place resource.UID, until int64) bool {
	if c.Caps != nil && !c.Caps.Has(want) {
		return false
	}
	if c.Scopes != nil && !slices.ContainsFunc(c.Scopes, func(s resource.UID) bool { return s.Covers(place) }) {
		return false
	}
	return slices.ContainsFunc(w.grants[c.Identity], func(g iamdb.Grant) bool {
		now := w.second * 1000
		if g.StartMS > now || g.ExpireMS != 0 && (g.ExpireMS <= now || until < 0 || g.ExpireMS < until*1000) {
			return false
		}
		return g.Group.Covers(place) && w.roles[g.Role].Has(want)
	})
}

func (w *world) caller() Caller {
	c := Caller{Identity: w.tree.of(w.identities)}
	if w.tree.IntN(3) == 0 {
		caps := w.roles[resource.ManagedRoleUID("registry.pull")]
		c.Caps = &caps
	}
	if w.tree.IntN(3) == 0 {
		c.Scopes = w.tree.few(w.groups, 5)
	}
	return c
}

func TestChecksAgreeWithTheRule(t *testing.T) {
	w := newWorld()
	wants := []resource.Capability{resource.GroupsList, resource.GroupsCreate, resource.RolesList}
	for range 300 {
		w.change()
		c, want := w.caller(), wants[w.tree.IntN(len(wants))]
		ctx := WithCaller(t.Context(), c)
		var held []resource.UID
		for _, place := range w.groups {
			holds := w.holds(c, want, place, 0)
			if err := w.Require(ctx, want, place); (err == nil) != holds {
				t.Fatalf("Require(%v, %s) = %v, want held: %v", want, place, err, holds)
			}
			for _, until := range []int64{-1, w.second + 1, w.second + 3} {
				at := time.Unix(until, 0)
				if until < 0 {
					at = time.Time{}
				}
				err := w.RequireLasting(ctx, resource.NewCapabilities(want), place, at)
				if holds := w.holds(c, want, place, until); (err == nil) != holds {
					t.Fatalf("RequireLasting(%v, %s, %d) = %v at %d, want held: %v", want, place, until, err, w.second, holds)
				}
			}
			if holds {
				held = append(held, place)
			}
		}
		checkReach(t, w, c, want, held)
		if err := w.RequireAnywhere(ctx, want); (err == nil) != (len(held) > 0) {
			t.Fatalf("RequireAnywhere(%v) = %v, held on %d groups", want, err, len(held))
		}
	}
}

// checkReach fails unless Reach returns exactly the topmost groups on which the
// capability is held, without duplicates.
func checkReach(t *testing.T, w *world, c Caller, want resource.Capability, held []resource.UID) {
	t.Helper()
	var top []resource.UID
	slices.Sort(held)
	for _, g := range held {
		if !slices.ContainsFunc(top, func(u resource.UID) bool { return u.Covers(g) }) {
			top = append(top, g)
		}
	}
	got, err := w.Reach(WithCaller(t.Context(), c), want)
	if err != nil || !slices.Equal(top, got) {
		t.Fatalf("Reach(%v) = %v, %v, want %v", want, got, err, top)
	}
}

func TestIndexForgetsWhatNobodyHolds(t *testing.T) {
	w := newWorld()
	for range 500 {
		w.change()
	}
	for _, identity := range w.identities {
		w.index.setGrants(identity, nil)
	}
	w.index.setRoles(nil)
	if n := len(w.index.identities) + len(w.index.groups.ids) + len(w.index.roles.ids); n != 0 {
		t.Errorf("%d names are left", n)
	}
	if got, most := len(w.index.groups.uids), len(w.groups); got > most {
		t.Errorf("%d numbers were given to %d groups", got, most)
	}
}

func TestIndexNamesAreSafeToUseAgain(t *testing.T) {
	tr, x := newTree(), newIndex(systemClock)
	identity, role, other := tr.root(), tr.root(), tr.root()
	all := resource.CapabilitySet("groups.list")
	x.setRoles(map[resource.UID]resource.Capabilities{role: all})
	x.setRoles(nil)
	// The role other reuses the number of role.
	x.setGrants(identity, []iamdb.Grant{{Identity: identity, Group: tr.root(), Role: other}})
	for group := range x.active(identity) {
		if got := x.missing(identity, group, all, currently); got != all {
			t.Error("a role nobody described allows something")
		}
	}
}

func TestMalformedPlacesAreCoveredByNothing(t *testing.T) {
	tr, role := newTree(), resource.ManagedRoleUID("owner")
	identity, root := tr.root(), tr.root()
	c := checkerOf([]iamdb.Grant{{Identity: identity, Group: root, Role: role}}, capabilitiesOf(ManagedRoles()))
	ctx := WithCaller(t.Context(), Caller{Identity: identity})
	for _, place := range []resource.UID{"", "/", root[:39], root + "f", root + "0123456789abcdef",
		root + "x/0123456789abcdef"} {
		if c.Require(ctx, resource.GroupsList, place) == nil {
			t.Errorf("%q is allowed", place)
		}
	}
}

// BenchmarkRequire measures random checks with a million bindings of a hundred thousand identities on a hundred
// thousand groups.
func BenchmarkRequire(b *testing.B) {
	const bindings, identities = 1_000_000, 100_000
	t, roles := newTree(), capabilitiesOf(ManagedRoles())
	maps.DeleteFunc(roles, func(_ resource.UID, caps resource.Capabilities) bool {
		return !caps.Has(resource.GroupsList)
	})
	role := slices.Sorted(maps.Keys(roles))
	groups, people := t.groups(100_000), make([]resource.UID, identities)
	for i := range people {
		people[i] = t.root()
	}
	grants := make([]iamdb.Grant, bindings)
	for i := range grants {
		grants[i] = iamdb.Grant{Identity: people[i%identities], Group: t.of(groups), Role: t.of(role)}
	}
	rich, deep := t.root(), t.root()
	for range resource.MaxDepth - 1 {
		deep = t.child(deep)
	}
	for _, g := range append(slices.Clone(groups[:1000]), append(deep.Ancestors(), deep)...) {
		grants = append(grants, iamdb.Grant{Identity: rich, Group: g, Role: t.of(role)})
	}
	before := heap()
	start := time.Now()
	c := checkerOf(grants, roles)
	built := time.Since(start)
	size := heap() - before

	random := func() (context.Context, resource.UID) {
		g := grants[t.IntN(bindings)]
		return WithCaller(context.Background(), Caller{Identity: g.Identity}), t.child(g.Group)
	}
	b.Run("random", func(b *testing.B) {
		benchmark(b, c, false, random)
		b.ReportMetric(float64(size)/float64(len(grants)), "B/binding")
		b.ReportMetric(float64(built.Milliseconds()), "ms/build")
	})
	b.Run("denied", func(b *testing.B) { // the only allocation is the error
		benchmark(b, c, true, func() (context.Context, resource.UID) {
			return WithCaller(context.Background(), Caller{Identity: t.of(people)}), t.root()
		})
	})
	richly := WithCaller(context.Background(), Caller{Identity: rich})
	b.Run("thousand grants", func(b *testing.B) {
		benchmark(b, c, false, func() (context.Context, resource.UID) { return richly, t.child(t.of(groups[:1000])) })
	})
	b.Run("deepest", func(b *testing.B) {
		benchmark(b, c, false, func() (context.Context, resource.UID) { return richly, deep })
	})
	for i := range grants[:bindings/2] {
		grants[i*2].ExpireMS = time.Now().Add(time.Hour).UnixMilli()
	}
	timed := checkerOf(grants, roles)
	b.Run("half of them timed", func(b *testing.B) { benchmark(b, timed, false, random) })
	b.Run("shared", func(b *testing.B) {
		c.shared = true
		c.follow.lease.Begin(time.Now().Add(time.Hour))
		benchmark(b, c, false, random)
	})
}

func benchmark(b *testing.B, c *Checker, denied bool, ask func() (context.Context, resource.UID)) {
	type question struct {
		ctx   context.Context
		place resource.UID
	}
	questions := make([]question, 1<<14)
	for i := range questions {
		questions[i].ctx, questions[i].place = ask()
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		q := &questions[i&(len(questions)-1)]
		if err := c.Require(q.ctx, resource.GroupsList, q.place); (err != nil) != denied {
			b.Fatal(err)
		}
		i++
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
