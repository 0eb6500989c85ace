package authz

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A snapshot has the grants that the database had from the time at until the next snapshot.
type snapshot struct {
	at     int64
	grants []iamdb.Grant
	uids   map[resource.UID]iamdb.Grant // grants by the UIDs of their bindings
	roles  map[resource.UID]resource.Capabilities
}

// A past is a database with a random history, and a snapshot of every state.
type past struct {
	*storetest.Store
	*rand.Rand
	t          *testing.T
	groups     []resource.Group
	identities []resource.UID
	roles      []resource.Role
	bindings   []resource.RoleBinding
	states     []snapshot
}

func pick[T any](p *past, all []T) T { return all[p.IntN(len(all))] }

// ignore fails the test unless err is nil or the refusal of a change.
func (p *past) ignore(err error) {
	p.t.Helper()
	if err != nil && !errors.Is(err, fault.FailedPrecondition) && !errors.Is(err, fault.NotFound) &&
		!errors.Is(err, fault.AlreadyExists) {
		p.t.Fatal(err)
	}
}

// now returns the time of the last change.
func (p *past) now() (ms int64) {
	p.t.Helper()
	if err := p.Row(p.t.Context(), `SELECT at_ms FROM revision WHERE id = 1`, nil, &ms); err != nil {
		p.t.Fatal(err)
	}
	return ms
}

// remember records the state of the database.
func (p *past) remember() {
	p.t.Helper()
	s := snapshot{at: p.now(), uids: map[resource.UID]iamdb.Grant{}}
	var err error
	if s.roles, err = p.RoleCapabilities(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	if _, err = p.Grants(p.t.Context(), func(g iamdb.Grant) { s.grants = append(s.grants, g) }); err != nil {
		p.t.Fatal(err)
	}
	err = p.Rows(p.t.Context(), `SELECT b.uid, b.identity, r.uid, b.start_ms, b.expire_ms FROM role_bindings AS b
		JOIN roles AS r ON r.seg = b.role`, nil, func(row store.Scanner) (bool, error) {
		var uid resource.UID
		var g iamdb.Grant
		err := row.Scan(&uid, &g.Identity, &g.Role, &g.StartMS, &g.ExpireMS)
		g.Group = uid.Parent()
		s.uids[uid] = g
		return false, err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.states = append(p.states, s)
}

// timed gives a binding random start and end times near the last change, or none.
func (p *past) timed(b resource.RoleBinding) resource.RoleBinding {
	b.StartTime, b.ExpireTime = time.Time{}, time.Time{}
	near := func() time.Time {
		return time.Unix(p.now()/1000+int64(p.IntN(9))-4, 0).UTC()
	}
	if p.IntN(3) == 0 {
		b.StartTime = near()
	}
	if p.IntN(3) == 0 {
		b.ExpireTime = near()
	}
	return b
}

// change makes a random change, at a random time after the last change.
func (p *past) change() {
	ctx := p.t.Context()
	if _, err := p.Exec(ctx, `UPDATE revision SET at_ms = at_ms + $1 WHERE id = 1`, p.IntN(900)); err != nil {
		p.t.Fatal(err)
	}
	switch n := p.IntN(20); {
	case n < 8 || len(p.bindings) == 0:
		b := p.timed(resource.RoleBinding{UID: pick(p, p.groups).UID.NewChild(), Identity: pick(p, p.identities),
			Role: pick(p, p.roles).UID, CreateTime: time.Now()})
		_, err := p.InsertBinding(ctx, b)
		p.bindings = append(p.bindings, b)
		p.ignore(err)
	case n < 12:
		_, err := p.UpdateBinding(ctx, pick(p, p.bindings).UID, func(b *resource.RoleBinding) error {
			if *b = p.timed(*b); p.IntN(2) == 0 {
				b.Role, b.Identity = pick(p, p.roles).UID, pick(p, p.identities)
			}
			return nil
		})
		p.ignore(err)
	case n < 15:
		p.ignore(p.DeleteBinding(ctx, pick(p, p.bindings).UID))
	case n < 18:
		i := p.IntN(len(p.roles))
		before, err := p.Role(ctx, p.roles[i].UID)
		p.ignore(err)
		after := before
		after.Capabilities = p.capabilities()
		_, err = p.UpdateRole(ctx, before, after)
		p.ignore(err)
	case n < 19: // delete a group and everything below it, which is refused if there are active bindings
		p.ignore(p.DeleteGroup(ctx, p.groups[1+p.IntN(len(p.groups)-1)].UID, ""))
	default:
		_, err := p.EndBindings(ctx, 10)
		p.ignore(err)
	}
}

func (p *past) capabilities() resource.Capabilities {
	all := []resource.Capability{resource.GroupsList, resource.RepoList, resource.RoleBindingsList}
	var some []resource.Capability
	for _, c := range all {
		if p.IntN(2) == 0 {
			some = append(some, c)
		}
	}
	return resource.NewCapabilities(some...)
}

// newPast returns an organization with groups, roles and identities.
func newPast(t *testing.T, s *storetest.Store, seed uint64) *past {
	p := &past{Store: s, Rand: rand.New(rand.NewPCG(seed, 1)), t: t}
	group, _ := organization(t, s, "acme")
	p.groups = []resource.Group{{UID: group}}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		g := resource.Group{UID: pick(p, p.groups).UID.NewChild(), Name: name, CreateTime: time.Now(), UpdateTime: time.Now()}
		if _, err := s.InsertGroup(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		p.groups = append(p.groups, g)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		r := resource.Role{UID: group.NewChild(), Name: name, Capabilities: p.capabilities(), CreateTime: time.Now(),
			UpdateTime: time.Now()}
		if err := s.InsertRole(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		p.roles = append(p.roles, r)
	}
	for range 5 {
		p.identities = append(p.identities, resource.NewRoot())
	}
	p.remember()
	return p
}

// state returns the snapshot at a time.
func (p *past) state(at int64) snapshot {
	i, _ := slices.BinarySearchFunc(p.states, at+1, func(s snapshot, at int64) int { return int(s.at - at) })
	return p.states[i-1]
}

// TestPastAgreesWithTheIndexOfThen makes random changes. For random times, and for times just before, at and after
// changes, it checks that the stored history gives the same answers as an index of the snapshot at that time.
func TestPastAgreesWithTheIndexOfThen(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		p := newPast(t, s, 7)
		c := load(t, s)
		for range 200 {
			p.change()
			p.remember()
		}
		first, last := p.states[0].at, p.now()
		allowed := 0
		for range 600 {
			at := first + p.Int64N(last-first)
			if p.IntN(2) == 0 {
				at = max(first, pick(p, p.states).at+p.Int64N(3)-1)
			}
			if p.IntN(3) == 0 { // choose a whole second, because bindings begin and end only then
				at = max(first, at/1000*1000)
			}
			then := p.state(at)
			x := newIndex(func() (time.Time, time.Time) { return store.FromMS(at), store.FromMS(at) })
			for _, g := range then.grants {
				x.add(g)
			}
			x.sort()
			x.setRoles(then.roles)
			identity, target := pick(p, p.identities), pick(p, p.groups).UID
			if p.IntN(3) == 0 {
				target = target.NewChild() // a resource in a group, or a group that has never existed
			}
			want := resource.NewCapabilities(resource.RepoList)
			rule := x.missing(identity, target, want, currently) == resource.Capabilities{}
			got, err := c.HeldAt(t.Context(), identity, resource.RepoList, target, store.FromMS(at))
			if err != nil || got != rule {
				t.Fatalf("%s on %s as of %d: %t, %v, want %t", identity, target, at, got, err, rule)
			}
			if rule {
				allowed++
			}
			p.wantBindings(x, then, target, at)
		}
		if allowed < 50 {
			t.Errorf("only %d questions had the answer yes", allowed)
		}
	})
}

// wantBindings checks the bindings that gave a capability on target, and all bindings of an identity.
func (p *past) wantBindings(x *index, then snapshot, target resource.UID, at int64) {
	p.t.Helper()
	var who, held []resource.UID
	identity := pick(p, p.identities)
	for uid, g := range then.uids {
		one := newIndex(x.clock)
		one.setGrants(g.Identity, []iamdb.Grant{g})
		one.setRoles(then.roles)
		want := resource.NewCapabilities(resource.RepoList)
		if one.missing(g.Identity, target, want, currently) == (resource.Capabilities{}) {
			who = append(who, uid)
		}
		if g.Identity == identity && one.isActive(one.identities[g.Identity].grants[0].grant, currently) {
			held = append(held, uid)
		}
	}
	q := grantlog.Query{At: store.FromMS(at), Groups: append(target.Ancestors(), target)}
	p.want("who can", q, resource.RepoList, who)
	p.want("of one", grantlog.Query{At: store.FromMS(at), Under: []resource.UID{p.groups[0].UID}, Identity: identity}, 0,
		held)
}

// want checks the result of a query, read in pages of two, and its total.
func (p *past) want(what string, q grantlog.Query, having resource.Capability, want []resource.UID) {
	p.t.Helper()
	roles, counts, err := p.RolesHeldAt(p.t.Context(), q)
	total := int64(0)
	q.Roles = []resource.UID{}
	for _, r := range roles {
		if having == 0 || r.Capabilities.Has(having) {
			q.Roles = append(q.Roles, r.UID)
			total += counts[r.UID]
		}
	}
	if err != nil || total != int64(len(want)) {
		p.t.Fatalf("%s as of %s: %d bindings, %v, want %d", what, q.At, total, err, len(want))
	}
	var got []resource.UID
	for after := (*page.Cursor)(nil); ; {
		found, err := p.PastBindings(p.t.Context(), q, page.Request{Size: 2, Order: page.Order{Field: "uid"}, After: after})
		if err != nil {
			p.t.Fatal(err)
		}
		for _, b := range found.Items {
			got = append(got, b.UID)
		}
		if after = found.Last; after == nil {
			break
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		p.t.Fatalf("%s as of %s: %v, want %v", what, q.At, got, want)
	}
}

// TestPastIsFinal checks, while replicas change grants, that answers about a time in the past never change, that they
// include either all or no changes of a transaction, and that consecutive changes have increasing times.
func TestPastIsFinal(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		s := storetest.Open(t, url)
		group, _ := organization(t, s, "acme")
		writers := []*storetest.Store{s}
		if s.Replicated() {
			writers = append(writers, storetest.Open(t, url), storetest.Open(t, url))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var made atomic.Int64
		for _, w := range writers {
			for range 2 {
				wg.Go(func() { keepGranting(ctx, t, w, group, &made) })
			}
		}
		said := map[int64]map[resource.UID]int{}
		for ctx.Err() == nil {
			at := clockOf(t, s).Add(-time.Millisecond)
			if err := s.RequirePast(t.Context(), "as_of", at); errors.Is(err, fault.InvalidArgument) {
				continue // RequirePast ran in the same millisecond, so the time is not in the past yet
			} else if err != nil {
				t.Fatal(err)
			}
			said[at.UnixMilli()] = heldAt(t, s, group, at)
		}
		wg.Wait()
		for at, before := range said {
			if after := heldAt(t, s, group, store.FromMS(at)); !maps.Equal(before, after) {
				t.Fatalf("as of %d there were %v, and later %v", at, before, after)
			}
			for identity, n := range before {
				if n != 2 {
					t.Errorf("as of %d %s held %d roles, and never did", at, identity, n)
				}
			}
		}
		if len(said) < 5 || made.Load() < 5 { // too few answers and changes, even for a slow machine
			t.Errorf("asked about %d times, of %d changes", len(said), made.Load())
		}
	})
}

// keepGranting gives new people two roles in one transaction, and removes both in another, until ctx ends.
func keepGranting(ctx context.Context, t *testing.T, s *storetest.Store, group resource.UID, made *atomic.Int64) {
	for ctx.Err() == nil {
		identity := resource.NewRoot()
		var all []resource.RoleBinding
		for _, role := range []string{"viewer", "editor"} {
			all = append(all, resource.RoleBinding{UID: group.NewChild(), Identity: identity,
				Role: resource.ManagedRoleUID(role), CreateTime: time.Now()})
		}
		if _, err := s.InsertBindings(t.Context(), all); err != nil {
			t.Error(err)
			return
		}
		err := s.Write(t.Context(), func(x *store.Tx) error {
			for _, b := range all {
				if err := iamdb.In(x).DeleteBinding(t.Context(), b.UID); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
			return
		}
		var from, to []int64
		for _, b := range all {
			var f, u int64
			err := s.Row(t.Context(), `SELECT from_ms, to_ms FROM binding_history WHERE uid = $1`,
				[]any{string(b.UID)}, &f, &u)
			if err != nil {
				t.Error(err)
			}
			from, to = append(from, f), append(to, u)
		}
		if from[0] != from[1] || to[0] != to[1] || from[0] >= to[0] {
			t.Errorf("two roles were granted at %v until %v", from, to)
		}
		made.Add(1)
	}
}

// heldAt returns the number of roles that each identity except the owner held on a group at a time.
func heldAt(t *testing.T, s *storetest.Store, group resource.UID, at time.Time) map[resource.UID]int {
	t.Helper()
	got, err := s.PastBindings(t.Context(), grantlog.Query{At: at, Groups: []resource.UID{group}},
		page.Request{Size: page.MaxSize, Order: page.Order{Field: "uid"}})
	if err != nil {
		t.Fatal(err)
	}
	all := map[resource.UID]int{}
	for _, b := range got.Items {
		if b.Role != resource.OwnerRole {
			all[b.Identity]++
		}
	}
	return all
}
