package store_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// A row contains the fields of a resource that decide whether and where it is in a list.
type row struct {
	uid              resource.UID
	name             string
	created, updated int64
	relationship     resource.RelationshipType
	identity, role   resource.UID
	key              string
}

// A kind is a list of the store, and the rows that it should contain.
type kind struct {
	name   string
	self   bool
	inside bool // the row has the uid of the group that it is in
	orders []string
	rows   []row
	list   func(context.Context, store.Reach, resource.Filter, page.Request) (answer, error)
}

// An answer contains the parts of a page that the test compares.
type answer struct {
	uids  []resource.UID
	total int64
	last  *page.Cursor
}

func reduced[T any](list func(context.Context, store.Reach, resource.Filter, page.Request) (page.Page[T], error),
	uid func(T) resource.UID) func(context.Context, store.Reach, resource.Filter, page.Request) (answer, error) {
	return func(ctx context.Context, r store.Reach, f resource.Filter, p page.Request) (answer, error) {
		got, err := list(ctx, r, f, p)
		a := answer{total: got.Total, last: got.Last}
		for _, v := range got.Items {
			a.uids = append(a.uids, uid(v))
		}
		return a, err
	}
}

// A forest is a random tree of all kinds of resources. It is deeper than the
// levels that have indexes, and has equal names and times.
type forest struct {
	r                                   *rand.Rand
	s                                   *storetest.Store
	groups, identities, roles, bindings *kind

	providers, associations, invites, mappings *kind

	parents                             []resource.UID
	groupNames, roleNames, boundAlready map[string]bool
	size                                int
}

func grow(t *testing.T, s *storetest.Store, r *rand.Rand, size int) *forest {
	full := []string{"uid", "name", "create_time", "update_time"}
	f := &forest{
		r: r, s: s, size: size,
		groupNames: map[string]bool{}, roleNames: map[string]bool{}, boundAlready: map[string]bool{},
		groups: &kind{name: "groups", self: true, orders: full,
			list: reduced(s.Groups, func(g resource.Group) resource.UID {
				return g.UID
			})},
		identities: &kind{name: "identities", orders: full,
			list: reduced(s.Identities, func(i resource.Identity) resource.UID {
				return i.UID
			})},
		roles: &kind{name: "roles", orders: full, list: reduced(s.Roles, func(r resource.Role) resource.UID {
			return r.UID
		})},
		bindings: &kind{name: "role bindings", orders: []string{"uid", "create_time"},
			list: reduced(s.Bindings, func(b resource.BoundRole) resource.UID {
				return b.UID
			})},

		providers: &kind{name: "identity providers", orders: full,
			list: reduced(s.Providers, func(p resource.IdentityProvider) resource.UID {
				return p.UID
			})},
		associations: &kind{name: "account associations", self: true, inside: true, orders: full,
			list: reduced(s.Associations, func(a resource.AccountAssociation) resource.UID {
				return a.UID
			})},
		invites: &kind{name: "group invites", orders: []string{"uid", "create_time"},
			list: reduced(s.Invites, func(i resource.GroupInvite) resource.UID {
				return i.UID
			})},
		mappings: &kind{name: "mappings", orders: []string{"uid", "create_time"},
			list: reduced(s.Mappings, func(m resource.ExternalGroupRoleMapping) resource.UID {
				return m.UID
			})},
	}
	for range size {
		f.addGroup(t)
	}
	for range size / 2 {
		f.addIdentity(t)
		f.addRole(t)
	}
	for range size {
		f.addBinding(t)
	}
	for _, g := range f.parents {
		f.addAround(t, g)
	}
	f.thin(t)
	return f
}

func (f *forest) time() time.Time { return time.UnixMilli(int64(f.r.IntN(f.size / 2))).UTC() }

func (f *forest) segment() resource.UID {
	return resource.UID(fmt.Sprintf("/%016x", f.r.Uint64()))
}

func (f *forest) parent() resource.UID { return f.parents[f.r.IntN(len(f.parents))] }

func (f *forest) addGroup(t *testing.T) {
	const roots, deepest = 2, 6
	parent := resource.UID("")
	n := len(f.groups.rows)
	if n >= roots {
		parent = f.parent()
		if f.r.IntN(3) == 0 { // sometimes extend a chain of nested groups
			parent = f.groups.rows[n-1].uid
		}
		parent = parent.Ancestor(deepest - 1)
	}
	g := resource.Group{UID: parent + f.segment(), Name: fmt.Sprintf("n%d", f.r.IntN(f.size/3)), CreateTime: f.time(),
		UpdateTime: f.time()}
	if parent == "" {
		g.UID = resource.UID(fmt.Sprintf("%024x", f.r.Uint64())) + g.UID[1:]
	}
	key := string(parent) + g.Name
	if f.groupNames[key] {
		return
	}
	f.groupNames[key] = true
	_, err := f.s.InsertGroup(t.Context(), g)
	testkit.Must(t, err)
	f.parents = append(f.parents, g.UID)
	f.groups.rows = append(f.groups.rows, row{uid: g.UID, name: g.Name, created: g.CreateTime.UnixMilli(),
		updated: g.UpdateTime.UnixMilli()})
}

func (f *forest) addIdentity(t *testing.T) {
	i := resource.Identity{UID: f.parent() + f.segment(), Name: fmt.Sprintf("i%d", f.r.IntN(20)), CreateTime: f.time(),
		UpdateTime: f.time()}
	if f.r.IntN(3) == 0 {
		i.Relationship.ServicePrincipal = 1
	} else {
		i.Relationship.ClaimMatch = &resource.ClaimMatch{Issuer: "https://issuer.test", Subject: "s"}
	}
	testkit.Must(t, f.s.InsertIdentity(t.Context(), i))
	f.identities.rows = append(f.identities.rows, row{
		uid: i.UID, name: i.Name, created: i.CreateTime.UnixMilli(), updated: i.UpdateTime.UnixMilli(),
		relationship: i.Relationship.Type(),
	})
}

func (f *forest) addRole(t *testing.T) {
	r := resource.Role{UID: f.parent() + f.segment(), Name: fmt.Sprintf("r%d", f.r.IntN(20)), CreateTime: f.time(),
		UpdateTime: f.time()}
	key := string(r.UID.Parent()) + r.Name
	if f.roleNames[key] {
		return
	}
	f.roleNames[key] = true
	testkit.Must(t, f.s.InsertRole(t.Context(), r))
	f.roles.rows = append(f.roles.rows, row{uid: r.UID, name: r.Name, created: r.CreateTime.UnixMilli(),
		updated: r.UpdateTime.UnixMilli()})
}

func (f *forest) addBinding(t *testing.T) {
	b := resource.RoleBinding{
		UID:      f.parent() + f.segment(),
		Identity: f.identities.rows[f.r.IntN(8)].uid, Role: f.roles.rows[f.r.IntN(8)].uid, CreateTime: f.time(),
	}
	key := string(b.Group() + b.Identity + b.Role)
	if f.boundAlready[key] {
		return
	}
	f.boundAlready[key] = true
	_, err := f.s.InsertBindings(t.Context(), []resource.RoleBinding{b})
	testkit.Must(t, err)
	f.bindings.rows = append(f.bindings.rows, row{uid: b.UID, created: b.CreateTime.UnixMilli(), identity: b.Identity,
		role: b.Role})
}

// addAround adds an association, invites, and a provider with mappings to a
// group, each at random.
func (f *forest) addAround(t *testing.T, group resource.UID) {
	role := f.roles.rows[f.r.IntN(8)].uid
	if f.r.IntN(2) == 0 {
		a := iamtest.NewAssociation(group, fmt.Sprintf("a%d", f.r.IntN(20)))
		a.CreateTime, a.UpdateTime = f.time(), f.time()
		testkit.Must(t, f.s.InsertAssociation(t.Context(), a))
		f.associations.rows = append(f.associations.rows,
			row{uid: a.UID, name: a.Name, created: a.CreateTime.UnixMilli(), updated: a.UpdateTime.UnixMilli()})
	}
	for range f.r.IntN(3) {
		i := iamtest.NewInvite(group, role)
		i.UID, i.KeyID, i.CreateTime = group+f.segment(), fmt.Sprintf("k%d", f.r.IntN(20)), f.time()
		_, err := f.s.InsertInvite(t.Context(), i)
		testkit.Must(t, err)
		f.invites.rows = append(f.invites.rows, row{uid: i.UID, key: i.KeyID, created: i.CreateTime.UnixMilli()})
	}
	if f.r.IntN(2) == 0 {
		return
	}
	p := iamtest.NewProvider(group, role, fmt.Sprintf("p%d", f.r.IntN(20)))
	p.UID, p.CreateTime, p.UpdateTime = group+f.segment(), f.time(), f.time()
	testkit.Must(t, f.s.InsertProvider(t.Context(), p))
	f.providers.rows = append(f.providers.rows,
		row{uid: p.UID, name: p.Name, created: p.CreateTime.UnixMilli(), updated: p.UpdateTime.UnixMilli()})
	for n := range f.r.IntN(5) {
		m := iamtest.NewMapping(p.UID, role, fmt.Sprint(n))
		m.UID, m.CreateTime = p.UID+f.segment(), f.time()
		testkit.Must(t, f.s.InsertMapping(t.Context(), m))
		f.mappings.rows = append(f.mappings.rows, row{uid: m.UID, created: m.CreateTime.UnixMilli()})
	}
}

// thin deletes some resources of every kind. The deleted resources must also leave the counters.
func (f *forest) thin(t *testing.T) {
	ctx := t.Context()
	cut := func(k *kind, remove func(resource.UID) error) {
		k.rows = slices.DeleteFunc(k.rows, func(v row) bool {
			if f.r.IntN(6) != 0 {
				return false
			}
			err := remove(v.uid)
			if errors.Is(err, fault.FailedPrecondition) {
				return false
			}
			testkit.Must(t, err)
			return true
		})
	}
	cut(f.mappings, func(uid resource.UID) error { return f.s.DeleteMapping(ctx, uid) })
	cut(f.providers, func(uid resource.UID) error { return f.s.DeleteProvider(ctx, uid) })
	cut(f.associations, func(uid resource.UID) error { return f.s.DeleteAssociation(ctx, uid) })
	cut(f.invites, func(uid resource.UID) error { return f.s.DeleteInvite(ctx, uid) })
	cut(f.bindings, func(uid resource.UID) error { return f.s.DeleteBinding(ctx, uid) })
	cut(f.roles, func(uid resource.UID) error { return f.s.DeleteRole(ctx, uid) })
	cut(f.groups, func(uid resource.UID) error { return f.s.DeleteGroup(ctx, uid, "") })
	for _, i := range f.identities.rows[8:12] { // these identities have no bindings
		testkit.Must(t, f.s.DeleteIdentity(ctx, i.uid))
	}
	f.identities.rows = slices.Delete(f.identities.rows, 8, 12)
}

func (f *forest) kinds() []*kind {
	return []*kind{f.groups, f.identities, f.roles, f.bindings, f.providers, f.associations, f.invites, f.mappings}
}

func (f *forest) pick(k *kind) row { return k.rows[f.r.IntN(len(k.rows))] }

// reach returns a random reach. Its groups are disjoint and sorted, as the store requires.
func (f *forest) reach(k *kind) store.Reach {
	var r store.Reach
	switch f.r.IntN(4) {
	case 0:
		r.Under = []resource.UID{f.groups.rows[0].uid, f.groups.rows[1].uid}
	case 1:
		r.Under = []resource.UID{f.pick(f.groups).uid}
	default:
		for range f.r.IntN([]int{4, 20, 200}[f.r.IntN(3)]) {
			r.Under = append(r.Under, f.pick(f.groups).uid)
		}
	}
	slices.Sort(r.Under)
	var disjoint []resource.UID
	for _, g := range r.Under {
		if !slices.ContainsFunc(disjoint, func(above resource.UID) bool { return above.Covers(g) }) {
			disjoint = append(disjoint, g)
		}
	}
	r.Under = disjoint
	if f.r.IntN(3) == 0 {
		for range f.r.IntN(12) {
			r.Also = append(r.Also, f.pick(k).uid)
		}
		r.Also = append(r.Also, resource.UID(fmt.Sprintf("%040x", 7))) // a resource that does not exist
	}
	return r
}

// astray returns a uid with the last segment of uid below a random group.
// Mostly there is no such resource.
func (f *forest) astray(uid resource.UID) resource.UID {
	return f.pick(f.groups).uid + "/" + uid[len(uid)-16:]
}

// place returns the uid of a random group or provider, of the parent of one, or of a resource that
// probably does not exist.
func (f *forest) place() resource.UID {
	uid := f.pick(f.groups).uid
	if f.r.IntN(5) == 0 {
		uid = f.pick(f.providers).uid
	}
	if f.r.IntN(4) == 0 {
		return f.astray(uid)
	}
	if f.r.IntN(2) == 0 {
		return uid.Parent()
	}
	return uid
}

func (f *forest) filter(k *kind) (out resource.Filter) {
	p := &out.UIDs
	if f.r.IntN(2) == 0 {
		p.DescendantsOf = f.place()
	}
	if f.r.IntN(3) == 0 {
		p.ChildrenOf = f.place()
	}
	p.InRoot = f.r.IntN(15) == 0
	if f.r.IntN(12) == 0 {
		p.AncestorsOf = f.pick(k).uid
	}
	if f.r.IntN(8) == 0 {
		for range 1 + f.r.IntN(40) {
			p.IDs = append(p.IDs, f.pick(k).uid)
		}
	}
	often := f.r.IntN(3) == 0
	switch {
	case !often:
	case k == f.bindings:
		if f.r.IntN(2) == 0 {
			out.Identity = f.pick(k).identity
		}
		if f.r.IntN(2) == 0 {
			out.Role = f.pick(k).role
		}
		if f.r.IntN(8) == 0 {
			out.Role = f.astray(f.pick(k).role)
		}
		if f.r.IntN(4) == 0 {
			out.Group = f.pick(k).uid.Parent()
		}
	case k == f.invites:
		out.KeyID = f.pick(k).key
	case k == f.mappings:
		out.Group = f.pick(k).uid.Parent()
	default:
		out.Name = f.pick(k).name
	}
	if k == f.identities && f.r.IntN(4) == 0 {
		out.Relationship = f.pick(k).relationship
	}
	return out
}

func (f *forest) request(k *kind) page.Request {
	p := page.Request{Size: 1 + f.r.IntN(60), Order: page.Order{Field: k.orders[f.r.IntN(len(k.orders))],
		Desc: f.r.IntN(2) == 0}}
	if f.r.IntN(3) == 0 {
		p.Skip = f.r.IntN(100)
	}
	if f.r.IntN(3) == 0 {
		c := f.pick(k).cursor(p.Order.Field)
		p.After = &c
	}
	return p
}

func (v row) cursor(order string) page.Cursor {
	c := page.Cursor{UID: string(v.uid)}
	switch order {
	case "name":
		c.Key = v.name
	case "create_time":
		c.Number = v.created
	case "update_time":
		c.Number = v.updated
	}
	return c
}

// compare returns the order of rows for an order_by. Rows that are equal in it are ordered by the
// last segment.
func compare(o page.Order) func(a, b row) int {
	last := func(v row) resource.UID { return v.uid[len(v.uid)-16:] }
	return func(a, b row) int {
		c := 0
		switch o.Field {
		case "uid":
			c = cmp.Compare(a.uid, b.uid)
		case "name":
			c = cmp.Compare(a.name, b.name)
		case "create_time":
			c = cmp.Compare(a.created, b.created)
		case "update_time":
			c = cmp.Compare(a.updated, b.updated)
		}
		if c = cmp.Or(c, cmp.Compare(last(a), last(b))); o.Desc {
			return -c
		}
		return c
	}
}

func strictlyBelow(group, uid resource.UID) bool { return group != uid && group.Covers(uid) }

// keeps reports whether a list contains a row, as the API defines it.
func (k *kind) keeps(v row, r store.Reach, f resource.Filter) bool {
	seen := slices.Contains(r.Also, v.uid) || slices.ContainsFunc(r.Under, func(g resource.UID) bool {
		return strictlyBelow(g, v.uid) || k.self && g == v.uid
	})
	p := f.UIDs
	return seen &&
		(p.DescendantsOf == "" || strictlyBelow(p.DescendantsOf, v.uid) || k.inside && v.uid == p.DescendantsOf) &&
		(p.ChildrenOf == "" || !k.inside && v.uid.Parent() == p.ChildrenOf || k.inside && v.uid == p.ChildrenOf) &&
		(p.AncestorsOf == "" || strictlyBelow(v.uid, p.AncestorsOf)) &&
		(!p.InRoot || v.uid.IsRoot()) &&
		(len(p.IDs) == 0 || slices.Contains(p.IDs, v.uid)) &&
		(f.Name == "" || v.name == f.Name) &&
		(f.Relationship == 0 || v.relationship == f.Relationship) &&
		(f.Identity == "" || v.identity == f.Identity) &&
		(f.Role == "" || v.role == f.Role) &&
		(f.KeyID == "" || v.key == f.KeyID) &&
		(f.Group == "" || v.uid.Parent() == f.Group)
}

// brute returns the page that a list should return, by looking at every row.
func (k *kind) brute(r store.Reach, f resource.Filter, p page.Request) (want answer, more bool) {
	order := compare(p.Order)
	rows := slices.DeleteFunc(slices.Clone(k.rows), func(v row) bool { return !k.keeps(v, r, f) })
	slices.SortFunc(rows, order)
	want.total = int64(len(rows))
	if c := p.After; c != nil {
		last := row{uid: resource.UID(c.UID), name: c.Key, created: c.Number, updated: c.Number}
		rows = slices.DeleteFunc(rows, func(v row) bool { return order(v, last) <= 0 })
	}
	rows = rows[min(p.Skip, len(rows)):]
	more = len(rows) > p.Size
	for _, v := range rows[:min(p.Size, len(rows))] {
		want.uids = append(want.uids, v.uid)
	}
	return want, more
}

// TestEveryShape checks that random lists, and all their following pages, equal
// the result of looking at every row.
func TestEveryShape(t *testing.T) {
	const requests = 1000
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		f := grow(t, s, rand.New(rand.NewPCG(seed, 0)), 400)
		for range requests {
			k := f.kinds()[f.r.IntN(8)]
			r, filter, p := f.reach(k), f.filter(k), f.request(k)
			k.walk(t, r, filter, p)
		}
		dbtest.WantExact(t, s.DB)
	})
}

// walk reads a page and all following pages, and compares each with brute.
func (k *kind) walk(t *testing.T, r store.Reach, f resource.Filter, p page.Request) {
	t.Helper()
	for pages := 0; pages < 12; pages++ {
		want, more := k.brute(r, f, p)
		got, err := k.list(t.Context(), r, f, p)
		if err != nil {
			t.Fatalf("%s: %v\nreach %v\nfilter %+v\nrequest %+v", k.name, err, r, f, p)
		}
		if !slices.Equal(got.uids, want.uids) || got.total != want.total || (got.last != nil) != more {
			t.Fatalf("%s\nreach %v\nfilter %+v\nrequest %+v after %+v\ngot  %d of %d, more %v: %v\nwant %d of %d, more %v: %v",
				k.name, r, f, p, p.After,
				len(got.uids), got.total, got.last != nil, got.uids, len(want.uids), want.total, more, want.uids)
		}
		if !more {
			return
		}
		p.After, p.Skip = got.last, 0
	}
}

// TestCursorsHold reads pages while other goroutines insert, rename and delete
// groups. It checks that a group that exists all the time is seen exactly once.
func TestCursorsHold(t *testing.T) {
	const rounds, writers = 1, 2
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		var folders []resource.UID
		stays := map[resource.UID]int{}
		for i := range 6 {
			folder := iamtest.AddGroup(t, s.IAMStore, org.UID, fmt.Sprintf("folder %d", i)).UID
			folders, stays[folder] = append(folders, folder), 0
			for j := range 25 {
				stays[iamtest.AddGroup(t, s.IAMStore, folder, fmt.Sprintf("m%d", j)).UID] = 0
			}
		}
		slices.Sort(folders)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer stop()
		for w := range writers {
			wg.Go(func() { churn(ctx, t, s, folders, w) })
		}
		reaches := []store.Reach{{Under: []resource.UID{org.UID}}, {Under: folders}}
		for range rounds {
			for _, r := range reaches {
				for _, field := range groupOrders {
					seen := iamtest.WalkAll(t, s.IAMStore, r, page.Request{Size: 7, Order: field})
					for uid := range stays {
						if seen[uid] != 1 {
							t.Fatalf("by %v: %s was seen %d times", field, uid, seen[uid])
						}
					}
				}
			}
		}
		stop()
		wg.Wait()
		dbtest.WantExact(t, s.DB)
	})
}

var groupOrders = []page.Order{
	{Field: "uid"}, {Field: "uid", Desc: true}, {Field: "name"}, {Field: "name",
		Desc: true}, {Field: "create_time"}, {Field: "create_time", Desc: true},
}

// churn inserts, renames and deletes groups until ctx ends.
func churn(ctx context.Context, t *testing.T, s *storetest.Store, folders []resource.UID, writer int) {
	const most = 12
	var mine []resource.UID
	whole := context.WithoutCancel(ctx)
	for n := 0; ctx.Err() == nil; n++ {
		g := iamtest.NewGroup(folders[rand.IntN(len(folders))], fmt.Sprintf("m%d of %d", n, writer))
		_, err := s.InsertGroup(whole, g)
		mine = append(mine, g.UID)
		_, renamed := store.Edit(whole, mine[rand.IntN(len(mine))], s.Group, s.UpdateGroup, func(g *resource.Group) error {
			g.Name = fmt.Sprintf("a%d of %d", n, writer)
			return nil
		})
		err = errors.Join(err, renamed)
		if len(mine) > most {
			i := rand.IntN(len(mine))
			err = errors.Join(err, s.DeleteGroup(whole, mine[i], ""))
			mine = slices.Delete(mine, i, i+1)
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}
