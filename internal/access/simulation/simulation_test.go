package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

// simulate simulates one change with the caller of a context.
func (w *world) simulate(as context.Context, apply func(context.Context) error) (simulation.Consequences, error) {
	return w.simulations.Run(as, simulation.Changes{Apply: apply})
}

// trail returns the traces that every change leaves in the database: events and a revision.
func (w *world) trail() (all []string) {
	w.t.Helper()
	revision, err := w.store.Revision(w.t.Context())
	must(w.t, err)
	events, err := outbox.Read(w.t.Context(), w.store.DB, 0, 1000)
	must(w.t, err)
	for _, e := range events {
		all = append(all, e.ID)
	}
	return append(all, fmt.Sprint(revision))
}

// lines describes each change by the names of its identity, its capability and its group.
func lines(all simulation.AccessChanges) (out []string) {
	for _, c := range all.Shown {
		out = append(out, c.Identity.Name+" "+c.Capability.String()+" "+c.Group.Name)
	}
	return out
}

// A cast is an organization with a folder and two workloads.
type cast struct {
	prod         resource.Group
	ann, ben     resource.UID
	reader, all  resource.Role // reader: groups.list; all: groups.list and repo.list
	annProd      resource.UID  // ann is a reader of prod
	benAcme, own resource.UID  // bindings of ben: all on acme, and reader on prod
}

func (w *world) cast() (c cast) {
	w.t.Helper()
	c.prod = w.group(w.acme.UID, "prod")
	identity := func(name string) resource.UID {
		i, err := w.CreateIdentity(w.owner, w.acme.UID, person(name, name))
		must(w.t, err)
		return i.UID
	}
	role := func(name string, caps ...string) resource.Role {
		r, err := w.CreateRole(w.owner, w.acme.UID, resource.Role{Name: name, Capabilities: resource.CapabilitySet(caps...)})
		must(w.t, err)
		return r
	}
	bind := func(group, identity, role resource.UID) resource.UID {
		b, err := w.CreateBinding(w.owner, group, resource.RoleBinding{Identity: identity, Role: role})
		must(w.t, err)
		return b.UID
	}
	c.ann, c.ben = identity("ann"), identity("ben")
	c.reader, c.all = role("reader", "groups.list"), role("all", "groups.list", "repo.list")
	c.annProd = bind(c.prod.UID, c.ann, c.reader.UID)
	c.benAcme, c.own = bind(w.acme.UID, c.ben, c.all.UID), bind(c.prod.UID, c.ben, c.reader.UID)
	return c
}

func TestSimulate(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast()
		bind := func(ctx context.Context, b resource.RoleBinding) error {
			_, err := w.CreateBinding(ctx, w.acme.UID, b)
			return err
		}
		tests := map[string]struct {
			apply        func(context.Context) error
			gained, lost []string
		}{
			"a binding that is all there is": {
				func(ctx context.Context) error { return w.DeleteBinding(ctx, c.annProd) },
				nil, []string{"ann groups.list prod"},
			},
			"a binding below another that gives the same": {
				func(ctx context.Context) error { return w.DeleteBinding(ctx, c.own) }, nil, nil,
			},
			"a binding above one that stays": {
				func(ctx context.Context) error { return w.DeleteBinding(ctx, c.benAcme) },
				nil, []string{"ben groups.list acme", "ben repo.list acme"},
			},
			"both, named once, at the top": {
				func(ctx context.Context) error {
					must(t, w.DeleteBinding(ctx, c.own))
					return w.DeleteBinding(ctx, c.benAcme)
				},
				nil, []string{"ben groups.list acme", "ben repo.list acme"},
			},
			"given above, taken below": {
				func(ctx context.Context) error {
					must(t, w.DeleteBinding(ctx, c.annProd))
					return bind(ctx, resource.RoleBinding{Identity: c.ann, Role: c.reader.UID})
				},
				[]string{"ann groups.list acme"}, nil,
			},
			"a role that has less and something else": {
				func(ctx context.Context) error {
					_, err := w.UpdateRole(ctx, c.all.UID, func(r *resource.Role) error {
						r.Capabilities = resource.CapabilitySet("groups.list", "tag.list")
						return nil
					})
					return err
				},
				[]string{"ben tag.list acme"}, []string{"ben repo.list acme"},
			},
			"a workload": {
				func(ctx context.Context) error { return w.DeleteIdentity(ctx, c.ann) },
				nil, []string{"ann groups.list prod"},
			},
			"a binding that has not begun": {
				func(ctx context.Context) error {
					return bind(ctx, resource.RoleBinding{Identity: c.ann, Role: c.all.UID, StartTime: in(time.Hour)})
				}, nil, nil,
			},
			"a binding for a time": {
				func(ctx context.Context) error {
					return bind(ctx, resource.RoleBinding{Identity: c.ann, Role: c.all.UID, ExpireTime: in(time.Hour)})
				}, []string{"ann groups.list acme", "ann repo.list acme"}, nil,
			},
			"a binding that is put off": {
				func(ctx context.Context) error {
					_, err := w.UpdateBinding(ctx, c.annProd,
						func(b *resource.RoleBinding) error { b.StartTime = in(time.Hour); return nil })
					return err
				}, nil, []string{"ann groups.list prod"},
			},
			"nothing about access": {
				func(ctx context.Context) error {
					_, err := w.UpdateGroup(ctx, c.prod.UID, func(g *resource.Group) error { g.Description = "x"; return nil })
					return err
				}, nil, nil,
			},
		}
		before := w.trail()
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				got, err := w.simulate(w.owner, tt.apply)
				must(t, err)
				if diff := cmp.Diff(tt.gained, lines(got.Gained)); diff != "" {
					t.Error("gained", diff)
				}
				if diff := cmp.Diff(tt.lost, lines(got.Lost)); diff != "" {
					t.Error("lost", diff)
				}
				if got.Gained.Total != len(tt.gained) || got.Lost.Total != len(tt.lost) || len(got.Incomplete) > 0 {
					t.Errorf("totals %d, %d; incomplete: %v", got.Gained.Total, got.Lost.Total, got.Incomplete)
				}
			})
		}
		if diff := cmp.Diff(before, w.trail()); diff != "" {
			t.Error(diff)
		}
		if !w.checker.Holds(c.ann, resource.GroupsList, c.prod.UID) ||
			w.checker.Holds(c.ann, resource.GroupsList, w.acme.UID) {
			t.Error("the index has what was rolled back")
		}
	})
}

// TestSimulateWorkloads checks that a simulation shows the workloads that could no longer exchange tokens and the
// sessions that would end.
func TestSimulateWorkloads(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.checker.Issuer = "https://us.example"
		c := w.cast()
		chained := person("chained", string(c.ann))
		chained.Relationship.ClaimMatch.Issuer = w.checker.Issuer
		through, err := w.CreateIdentity(w.owner, w.acme.UID, chained)
		must(t, err)
		for range 2 {
			must(t, w.store.StartSession(t.Context(), resource.Session{
				ID: string(resource.NewRoot()), Identity: c.ann, CreateTime: time.Now(), UsedTime: time.Now(),
				ExpireTime: in(time.Hour), Home: w.acme.UID,
			}, []byte(resource.NewRoot()), in(time.Hour)))
		}
		got, err := w.simulate(w.owner, func(ctx context.Context) error { return w.DeleteIdentity(ctx, c.ann) })
		must(t, err)
		var names []string
		for _, i := range got.Workloads.Shown {
			names = append(names, i.Name)
		}
		slices.Sort(names)
		if diff := cmp.Diff([]string{"ann", "chained"}, names); diff != "" || got.Workloads.Total != 2 {
			t.Errorf("%d workloads%s", got.Workloads.Total, diff)
		}
		if len(got.Sessions.Shown) != 1 || got.Sessions.Total != 2 || got.Sessions.Shown[0].Identity.UID != c.ann ||
			got.Sessions.Shown[0].Count != 2 {
			t.Errorf("sessions: %+v", got.Sessions)
		}
		got, err = w.simulate(w.owner, func(ctx context.Context) error {
			_, err := w.UpdateIdentity(ctx, through.UID, func(i *resource.Identity) error {
				i.Relationship.ClaimMatch.Subject = string(c.ben)
				return nil
			})
			return err
		})
		must(t, err)
		if len(got.Workloads.Shown) != 1 || got.Workloads.Shown[0].UID != through.UID || got.Sessions.Total != 0 {
			t.Errorf("workloads that trust another: %+v, sessions: %+v", got.Workloads, got.Sessions)
		}
	})
}

// TestSimulateShowsLastUse checks that a lost capability has the time of its last use.
func TestSimulateShowsLastUse(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.checker.RecordUses(true)
		c := w.cast()
		must(t, w.checker.Require(w.as(c.ann), resource.GroupsList, c.prod.UID))
		must(t, w.checker.FlushUses(t.Context()))
		got, err := w.simulate(w.owner, func(ctx context.Context) error { return w.DeleteIdentity(ctx, c.ann) })
		must(t, err)
		if got.Lost.Used != 1 || time.Since(got.Lost.Shown[0].LastUse) > time.Hour {
			t.Errorf("the last use in a simulation: %+v", got.Lost)
		}
	})
}

// TestSimulateMapping checks the simulated deletion of a mapping that gave a role to a person: the person loses the
// role at the next sign-in.
func TestSimulateMapping(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		p, err := w.CreateProvider(w.owner, w.acme.UID, provider)
		must(t, err)
		role, err := w.CreateRole(w.owner, w.acme.UID,
			resource.Role{Name: "writer", Capabilities: resource.CapabilitySet("repo.create")})
		must(t, err)
		mapping, err := w.CreateMapping(w.owner, p.UID,
			resource.ExternalGroupRoleMapping{ExternalGroup: "devs", Role: role.UID})
		must(t, err)
		_, err = w.store.SignIn(t.Context(), resource.SignIn{
			Issuer: p.OIDC.Issuer, Subject: "me", Realm: p.Realm, Voucher: p.Voucher(), UpdateRoles: true, Register: true,
			Groups: []string{"devs"},
		})
		must(t, err)
		remove := func(ctx context.Context) error { return w.DeleteMapping(ctx, mapping.UID) }
		got, err := w.simulations.Run(w.owner, simulation.Changes{Apply: remove, Providers: []resource.UID{p.UID}})
		must(t, err)
		if got.Lost.Total != 1 || got.Lost.Identities != 1 {
			t.Errorf("lost: %+v", got.Lost)
		}
		another := func(ctx context.Context) error {
			_, err := w.CreateMapping(ctx, p.UID, resource.ExternalGroupRoleMapping{ExternalGroup: "all", Role: role.UID})
			must(t, err)
			return remove(ctx)
		}
		got, err = w.simulations.Run(w.owner,
			simulation.Changes{Apply: another, Providers: []resource.UID{p.UID}, UnknownUsers: true})
		must(t, err)
		if got.Lost.Total != 0 || len(got.Incomplete) != 1 {
			t.Errorf("with another mapping of the role: %+v, %v", got.Lost, got.Incomplete)
		}
	})
}

// TestSimulateAsAttacker checks that a caller who may not make a change gets the error of the change, and that the
// result does not name identities that the caller may not see.
func TestSimulateAsAttacker(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast()
		_, folderAdmin := w.worker(c.prod.UID, "role_bindings.create", "role_bindings.delete", "role_bindings.list",
			"groups.list", "roles.list")
		_, janitor := w.worker(w.acme.UID, "identity.delete", "role_bindings.delete")
		caller, _ := authz.CallerFrom(w.owner)
		caller.Scopes = []resource.UID{c.prod.UID}
		narrowed := authz.WithCaller(t.Context(), caller)
		removal := func(ctx context.Context) error { return w.DeleteBinding(ctx, c.benAcme) }
		grab := func(ctx context.Context) error {
			_, err := w.CreateBinding(ctx, c.prod.UID, resource.RoleBinding{Identity: c.ann, Role: resource.OwnerRole})
			return err
		}
		none := w.acme.UID.NewChild()
		unknown := func(ctx context.Context) error { return w.DeleteBinding(ctx, none) }
		for name, tt := range map[string]struct {
			as    context.Context
			apply func(context.Context) error
			code  fault.Code
		}{
			"nobody":                        {t.Context(), removal, fault.Unauthenticated},
			"the owner of another":          {w.rival, removal, fault.PermissionDenied},
			"the owner of another, a guess": {w.rival, unknown, fault.PermissionDenied},
			"of a folder":                   {folderAdmin, removal, fault.PermissionDenied},
			"of a folder, an owner":         {folderAdmin, grab, fault.PermissionDenied},
			"with a narrowed token":         {narrowed, removal, fault.PermissionDenied},
			"of a folder, after what may be": {
				folderAdmin, func(ctx context.Context) error { must(t, w.DeleteBinding(ctx, c.annProd)); return grab(ctx) },
				fault.PermissionDenied,
			},
		} {
			got, err := w.simulate(tt.as, tt.apply)
			want(t, name, err, tt.code)
			if real := tt.apply(tt.as); tt.as != folderAdmin && (real == nil || err == nil || real.Error() != err.Error()) {
				t.Errorf("%s: simulated: %v\nin earnest: %v", name, err, real)
			}
			if diff := cmp.Diff(simulation.Consequences{}, got); diff != "" {
				t.Errorf("%s: something is told %s", name, diff)
			}
		}
		got, err := w.simulate(janitor, func(ctx context.Context) error { return w.DeleteIdentity(ctx, c.ben) })
		must(t, err)
		if got.Lost.Total != 2 || got.Lost.Hidden != 2 || len(got.Lost.Shown) != 0 || got.Lost.Identities != 1 ||
			got.Workloads.Total != 1 || len(got.Workloads.Shown) != 0 {
			t.Errorf("to somebody who sees no bindings: %+v, %+v", got.Lost, got.Workloads)
		}
		foreign, err := w.CreateBinding(w.rival, w.other.UID,
			resource.RoleBinding{Identity: c.ann, Role: resource.ManagedRoleUID("registry.pull")})
		must(t, err)
		got, err = w.simulate(w.owner, func(ctx context.Context) error { return w.DeleteIdentity(ctx, c.ann) })
		must(t, err)
		if text := fmt.Sprint(got); got.Lost.Hidden == 0 || strings.Contains(text, string(foreign.Group())) ||
			strings.Contains(text, "other") {
			t.Errorf("another organization is named: %+v", got.Lost)
		}
	})
}

// TestSimulateIsTrue simulates random changes, then makes them, and checks that the capabilities of all identities
// change as simulated.
func TestSimulateIsTrue(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		g := newGame(w, rand.New(rand.NewPCG(seed, 1)))
		for round := range 40 {
			apply, text := g.change()
			before := g.held()
			got, err := w.simulate(w.owner, apply)
			must(t, err)
			if diff := cmp.Diff(before, g.held()); diff != "" {
				t.Fatalf("round %d: %s: simulating changed something %s", round, text, diff)
			}
			must(t, apply(w.owner))
			g.compare(text, got, before, g.held())
		}
	})
}

// A game is a tree of groups with identities and roles, and the bindings between them.
type game struct {
	w          *world
	r          *rand.Rand
	groups     []resource.UID
	identities []resource.UID
	roles      []resource.UID
	bindings   []resource.UID
	caps       []resource.Capability
}

func newGame(w *world, r *rand.Rand) *game {
	g := &game{w: w, r: r, groups: []resource.UID{w.acme.UID}}
	for i := range 5 {
		g.groups = append(g.groups, w.group(g.groups[r.IntN(len(g.groups))], fmt.Sprintf("g%d", i)).UID)
	}
	for _, name := range []string{"groups.list", "repo.list", "tag.list", "roles.list"} {
		c, _ := resource.ParseCapability(name)
		g.caps = append(g.caps, c)
	}
	for i := range 4 {
		name := fmt.Sprintf("i%d", i)
		identity, err := w.CreateIdentity(w.owner, w.acme.UID, person(name, name))
		must(w.t, err)
		role, err := w.CreateRole(w.owner, w.acme.UID, resource.Role{Name: name, Capabilities: g.some()})
		must(w.t, err)
		g.identities, g.roles = append(g.identities, identity.UID), append(g.roles, role.UID)
	}
	return g
}

// some returns a random, nonempty set of the capabilities of the game.
func (g *game) some() (set resource.Capabilities) {
	set.Add(g.caps[g.r.IntN(len(g.caps))])
	for _, c := range g.caps {
		if g.r.IntN(2) == 0 {
			set.Add(c)
		}
	}
	return set
}

// change returns one to three random changes, which can be made several times if they are rolled back.
func (g *game) change() (apply func(context.Context) error, text string) {
	var all []func(context.Context) error
	gone := map[resource.UID]bool{}
	for range 1 + g.r.IntN(3) {
		role, identity, group := pick(g.r, g.roles), pick(g.r, g.identities), pick(g.r, g.groups)
		switch n := g.r.IntN(4); {
		case n == 0:
			caps := g.some()
			text += fmt.Sprintf("; role %s: %v", role, caps.All())
			all = append(all, func(ctx context.Context) error {
				_, err := g.w.UpdateRole(ctx, role, func(r *resource.Role) error { r.Capabilities = caps; return nil })
				return err
			})
		case n == 1 && len(g.bindings) > 0:
			uid := pick(g.r, g.bindings)
			if gone[uid] {
				continue
			}
			gone[uid] = true
			text += "; delete " + string(uid)
			all = append(all, func(ctx context.Context) error { return g.w.DeleteBinding(ctx, uid) })
		default:
			text += fmt.Sprintf("; bind %s on %s", identity, group)
			all = append(all, func(ctx context.Context) error {
				b, err := g.w.CreateBinding(ctx, group,
					resource.RoleBinding{Identity: identity, Role: role,
						ExpireTime: in(time.Hour + time.Duration(g.r.IntN(1e6))*time.Second)})
				g.bindings = append(g.bindings, b.UID)
				return err
			})
		}
	}
	return func(ctx context.Context) error {
		for _, f := range all {
			if err := f(ctx); err != nil {
				return err
			}
		}
		return nil
	}, text
}

func pick(r *rand.Rand, all []resource.UID) resource.UID { return all[r.IntN(len(all))] }

// held returns the capabilities of all identities on all groups.
func (g *game) held() map[string]bool {
	all := map[string]bool{}
	for _, i := range g.identities {
		for _, group := range g.groups {
			for _, c := range g.caps {
				all[key(i, c, group)] = g.w.checker.Holds(i, c, group)
			}
		}
	}
	return all
}

func key(identity resource.UID, c resource.Capability, group resource.UID) string {
	return fmt.Sprintf("%s %s %s", identity, c, group)
}

// compare checks that the consequences have every difference, and nothing else.
func (g *game) compare(text string, got simulation.Consequences, before, after map[string]bool) {
	t := g.w.t
	if len(got.Gained.Shown) != got.Gained.Total || len(got.Lost.Shown) != got.Lost.Total {
		t.Fatal("the game is too large: not everything is shown")
	}
	for _, side := range []struct {
		told      simulation.AccessChanges
		from, to  map[string]bool
		direction string
	}{{got.Gained, before, after, "gained"}, {got.Lost, after, before, "lost"}} {
		for _, c := range side.told.Shown {
			if k := key(c.Identity.UID, c.Capability, c.Group.UID); side.from[k] || !side.to[k] {
				t.Errorf("%s\nnot %s: %s", text, side.direction, k)
			}
		}
		for k := range side.to {
			if side.from[k] || !side.to[k] {
				continue
			}
			told := slices.ContainsFunc(side.told.Shown, func(c simulation.AccessChange) bool {
				parts := strings.Fields(k)
				return string(c.Identity.UID) == parts[0] && c.Capability.String() == parts[1] &&
					c.Group.UID.Covers(resource.UID(parts[2]))
			})
			if !told {
				t.Errorf("%s\n%s, but not told: %s", text, side.direction, k)
			}
		}
	}
}

// TestSimulateTakesTurns checks that many concurrent simulations of a deletion succeed while the same binding is really
// deleted, and that they do not restore the binding.
func TestSimulateTakesTurns(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		c := w.cast()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				got, err := w.simulate(w.owner, func(ctx context.Context) error { return w.DeleteBinding(ctx, c.annProd) })
				if err != nil || got.Lost.Total > 1 {
					t.Errorf("%+v, %v", got.Lost, err)
				}
			})
			wg.Go(func() {
				own := w.other.UID
				_, err := w.simulate(w.rival, func(ctx context.Context) error {
					_, err := w.UpdateGroup(ctx, own, func(g *resource.Group) error { g.Description = "x"; return nil })
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		must(t, w.DeleteBinding(w.owner, c.annProd))
		wg.Wait()
		if w.checker.Holds(c.ann, resource.GroupsList, c.prod.UID) {
			t.Error("a simulation has brought a deleted binding back")
		}
	})
}
