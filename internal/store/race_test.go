package store_test

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
)

// atOnce runs both functions concurrently and returns their errors.
func atOnce(f, g func() error) (a, b error) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	wg.Go(func() { <-start; a = f() })
	wg.Go(func() { <-start; b = g() })
	close(start)
	wg.Wait()
	return a, b
}

// A duel is two conflicting writes that run concurrently, and a check of their
// errors and effects. Each round has a new duel.
type duel struct {
	a, b func() error
	ok   func(a, b error) error
}

// oneOf returns a check that exactly one of the two writes succeeded, and that the other failed
// with ifA or ifB.
func oneOf(ifA, ifB fault.Code) func(a, b error) error {
	return func(a, b error) error {
		if a == nil && errors.Is(b, ifB) || b == nil && errors.Is(a, ifA) {
			return nil
		}
		return fmt.Errorf("errors = %v and %v", a, b)
	}
}

var duels = map[string]func(t *testing.T, s *storetest.Store, org resource.UID) duel{
	"create child and delete parent": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		p := addGroup(t, s, org, "p "+string(org.NewChild()[50:]))
		return duel{
			func() error { _, err := s.InsertGroup(t.Context(), newGroup(p.UID, "c")); return err },
			func() error { return s.DeleteGroup(t.Context(), p.UID, "") },
			oneOf(fault.NotFound, fault.FailedPrecondition),
		}
	},
	"note a deployment and delete its repo": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		r := addRepo(t, s, org, "r"+string(org.NewChild()[50:]))
		return duel{
			func() error { return s.InsertDeployment(t.Context(), newDeployment(r.UID)) },
			func() error { return s.DeleteRepo(t.Context(), r.UID) },
			func(a, b error) error { // in both orders, no deployment is left
				_, err := s.Deployment(t.Context(), r.UID)
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) || !errors.Is(err, fault.NotFound) {
					return fmt.Errorf("note: %v, delete: %v, then: %v", a, b, err)
				}
				return nil
			},
		}
	},
	"create identity and delete its group": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		p := addGroup(t, s, org, "p "+string(org.NewChild()[50:]))
		return duel{
			func() error { return s.InsertIdentity(t.Context(), newIdentity(p.UID, "c")) },
			func() error { return s.DeleteGroup(t.Context(), p.UID, "") },
			oneOf(fault.NotFound, fault.FailedPrecondition),
		}
	},
	"bind and delete identity": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		i, r := addIdentity(t, s, org, "i"), addRole(t, s, org, "r "+string(org.NewChild()[50:]))
		return duel{
			func() error {
				_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{newBinding(org, i.UID, r.UID)})
				return err
			},
			func() error { return s.DeleteIdentity(t.Context(), i.UID) },
			func(a, b error) error { // in both orders, nothing is left
				grants, err := s.GrantsOf(t.Context(), i.UID)
				if b != nil || err != nil || a != nil && !errors.Is(a, fault.NotFound) || len(grants) != 0 {
					return fmt.Errorf("errors = %v, %v and %v; grants left: %v", a, b, err, grants)
				}
				return nil
			},
		}
	},
	"bind and delete role": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		i, r := addIdentity(t, s, org, "i"), addRole(t, s, org, "r "+string(org.NewChild()[50:]))
		return duel{
			func() error {
				_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{newBinding(org, i.UID, r.UID)})
				return err
			},
			func() error { return s.DeleteRole(t.Context(), r.UID) },
			oneOf(fault.NotFound, fault.FailedPrecondition),
		}
	},
	"update binding and delete its new identity": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		i, j, r := addIdentity(t, s, org, "i"), addIdentity(t, s, org, "j"), addRole(t, s, org,
			"r "+string(org.NewChild()[50:]))
		b := addBinding(t, s, org, i.UID, r.UID)
		return duel{
			func() error {
				_, err := s.UpdateBinding(t.Context(), b.UID, func(b *resource.RoleBinding) error {
					b.Identity = j.UID
					return nil
				})
				return err
			},
			func() error { return s.DeleteIdentity(t.Context(), j.UID) },
			func(a, b error) error {
				grants, err := s.GrantsOf(t.Context(), j.UID)
				if b != nil || err != nil || a != nil && !errors.Is(a, fault.NotFound) || len(grants) != 0 {
					return fmt.Errorf("errors = %v, %v and %v; grants left: %v", a, b, err, grants)
				}
				return nil
			},
		}
	},
	"delete group twice": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		p := addGroup(t, s, org, "p")
		del := func() error { return s.DeleteGroup(t.Context(), p.UID, "") }
		return duel{del, del, oneOf(fault.NotFound, fault.NotFound)}
	},
	"delete identity twice": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		i := addIdentity(t, s, org, "i")
		del := func() error { return s.DeleteIdentity(t.Context(), i.UID) }
		return duel{del, del, oneOf(fault.NotFound, fault.NotFound)}
	},
	"delete role twice": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		r := addRole(t, s, org, "r")
		del := func() error { return s.DeleteRole(t.Context(), r.UID) }
		return duel{del, del, oneOf(fault.NotFound, fault.NotFound)}
	},
	"delete binding twice": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		i, r := addIdentity(t, s, org, "i"), addRole(t, s, org, "r "+string(org.NewChild()[50:]))
		b := addBinding(t, s, org, i.UID, r.UID)
		del := func() error { return s.DeleteBinding(t.Context(), b.UID) }
		return duel{del, del, func(a, b error) error { return errors.Join(a, b) }}
	},
	"same name twice": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		name := "n " + string(org.NewChild()[50:])
		add := func() error { _, err := s.InsertGroup(t.Context(), newGroup(org, name)); return err }
		return duel{add, add, oneOf(fault.AlreadyExists, fault.AlreadyExists)}
	},
	"update twice": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		p := addGroup(t, s, org, "u "+string(org.NewChild()[50:]))
		update := func(what string) func() error {
			return func() error {
				_, err := store.Edit(t.Context(), p.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
					g.Description += what
					return nil
				})
				return err
			}
		}
		return duel{update("a"), update("b"), func(a, b error) error {
			g, err := s.Group(t.Context(), p.UID)
			if a != nil || b != nil || err != nil || g.Description != "ab" && g.Description != "ba" {
				return fmt.Errorf("errors = %v, %v and %v; description %q", a, b, err, g.Description)
			}
			return nil
		}}
	},
	"create provider and delete its role": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		r := addRole(t, s, org, "r "+string(org.NewChild()[50:]))
		return duel{
			func() error { return s.InsertProvider(t.Context(), newProvider(org, r.UID, "p")) },
			func() error { return s.DeleteRole(t.Context(), r.UID) },
			oneOf(fault.NotFound, fault.FailedPrecondition),
		}
	},
	"create invite and delete its role": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		r := addRole(t, s, org, "r "+string(org.NewChild()[50:]))
		return duel{
			func() error { _, err := s.InsertInvite(t.Context(), newInvite(org, r.UID)); return err },
			func() error { return s.DeleteRole(t.Context(), r.UID) },
			oneOf(fault.NotFound, fault.FailedPrecondition),
		}
	},
	"create mapping and delete its provider": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		r := addRole(t, s, org, "r "+string(org.NewChild()[50:]))
		p := addProvider(t, s, org, r.UID, "p")
		return duel{
			func() error { return s.InsertMapping(t.Context(), newMapping(p.UID, r.UID, "m")) },
			func() error { return s.DeleteProvider(t.Context(), p.UID) },
			oneOf(fault.NotFound, fault.FailedPrecondition),
		}
	},
	"create mapping and delete its role": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		r, q := addRole(t, s, org, "r "+string(org.NewChild()[50:])), addRole(t, s, org, "q "+string(org.NewChild()[50:]))
		p := addProvider(t, s, org, q.UID, "p")
		return duel{
			func() error { return s.InsertMapping(t.Context(), newMapping(p.UID, r.UID, "m")) },
			func() error { return s.DeleteRole(t.Context(), r.UID) },
			oneOf(fault.NotFound, fault.FailedPrecondition),
		}
	},
	"create association and delete its group": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		g := addGroup(t, s, org, "p "+string(org.NewChild()[50:]))
		return duel{
			func() error { return s.InsertAssociation(t.Context(), newAssociation(g.UID, "a")) },
			func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			oneOf(fault.NotFound, fault.FailedPrecondition),
		}
	},
	"two associations of one group": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		g := addGroup(t, s, org, "p "+string(org.NewChild()[50:]))
		add := func() error { return s.InsertAssociation(t.Context(), newAssociation(g.UID, "a")) }
		return duel{add, add, oneOf(fault.AlreadyExists, fault.AlreadyExists)}
	},
	"delete association twice": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		g := addGroup(t, s, org, "p "+string(org.NewChild()[50:]))
		addAssociation(t, s, g.UID, "a")
		del := func() error { return s.DeleteAssociation(t.Context(), g.UID) }
		return duel{del, del, func(a, b error) error { return errors.Join(a, b) }}
	},
	"delete mappings in opposite order": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		r := addRole(t, s, org, "r "+string(org.NewChild()[50:]))
		p := addProvider(t, s, org, r.UID, "p")
		m, n := addMapping(t, s, p.UID, r.UID, "m").UID, addMapping(t, s, p.UID, r.UID, "n").UID
		gone := make(chan int, 2)
		del := func(uids ...resource.UID) func() error {
			return func() error {
				all, err := s.DeleteMappings(t.Context(), p.UID, uids)
				gone <- len(all)
				return err
			}
		}
		return duel{del(m, n), del(n, m), func(a, b error) error {
			if n := <-gone + <-gone; n != 2 {
				return fmt.Errorf("errors = %v and %v; %d of 2 mappings were reported", a, b, n)
			}
			return errors.Join(a, b)
		}}
	},
	"update provider twice": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		r := addRole(t, s, org, "r "+string(org.NewChild()[50:]))
		p := addProvider(t, s, org, r.UID, "p")
		update := func(what string) func() error {
			return func() error {
				_, err := s.UpdateProvider(t.Context(), p.UID, changed(func(p *resource.IdentityProvider) error {
					p.OIDC.GroupsClaim += what
					return nil
				}))
				return err
			}
		}
		return duel{update("a"), update("b"), func(a, b error) error {
			p, err := s.Provider(t.Context(), p.UID)
			if a != nil || b != nil || err != nil || p.OIDC.GroupsClaim != "ab" && p.OIDC.GroupsClaim != "ba" {
				return fmt.Errorf("errors = %v, %v and %v; claim %q", a, b, err, p.OIDC.GroupsClaim)
			}
			return nil
		}}
	},
	"two owners leave": func(t *testing.T, s *storetest.Store, org resource.UID) duel {
		x, y := resource.UserUID("https://issuer.test", "x"), resource.UserUID("https://issuer.test", "y")
		g, one := addOrganization(t, s, "o "+string(org.NewChild()[50:]), x)
		two := addBinding(t, s, g.UID, y, resource.OwnerRole)
		return duel{
			func() error { return s.DeleteBinding(t.Context(), one.UID) },
			func() error { return s.DeleteBinding(t.Context(), two.UID) },
			oneOf(fault.FailedPrecondition, fault.FailedPrecondition),
		}
	},
}

// TestDuels runs conflicting writes concurrently and checks their effects.
func TestDuels(t *testing.T) {
	const rounds = 40
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		all := maps.Clone(duels)
		maps.Copy(all, issuerDuels)
		maps.Copy(all, recoveryDuels)
		for name, prepare := range all {
			t.Run(name, func(t *testing.T) {
				for range rounds {
					d := prepare(t, s, org)
					a, b := atOnce(d.a, d.b)
					if err := d.ok(a, b); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		wantExact(t, s)
		wantNoOrphans(t, s, org)
	})
}

// TestDriftsWhileWriting checks that Drifts sees one state of the database
// while others write, so that an operator may call it at any time.
func TestDriftsWhileWriting(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org").UID
		done := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						g := newGroup(org, "")
						g.Name = string(g.UID)
						_, err := s.InsertGroup(t.Context(), g)
						if err := errors.Join(err, s.DeleteGroup(t.Context(), g.UID, "")); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		for range 20 {
			drifts, err := s.Drifts(t.Context())
			must(t, err)
			if len(drifts) > 0 {
				t.Errorf("a comparison made while groups were written: %+v", drifts[0])
				break
			}
		}
		close(done)
		wg.Wait()
	})
}

// TestNextChangesWhileDropped checks that NextChanges is never empty while one organization has changes, although
// the changes of another organization come and go.
func TestNextChangesWhileDropped(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		addAdvisory(t, s, addGroup(t, s, "", "waits").UID, "W")
		waits, err := s.NextChanges(t.Context(), 0, 1)
		must(t, err)
		org := addGroup(t, s, "", "comes and goes").UID
		goes := store.Segment(org)
		last := goes - 1 // start before goes, so that goes is the next organization whenever it has changes
		done := make(chan struct{})
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			defer close(done)
			for i := range 100 {
				_, err := s.InsertAdvisory(t.Context(), org, newAdvisory(fmt.Sprint(i)))
				c, errNext := s.NextChanges(t.Context(), last, 10)
				if err := errors.Join(err, errNext); err != nil || c.Root != goes {
					t.Errorf("changes of %d come next, want %d (%v)", c.Root, goes, err)
					return
				}
				if err := s.Write(t.Context(), func(tx *store.Tx) error {
					return advisorydb.DeleteChanges(t.Context(), tx, c)
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		for more := true; more; {
			select {
			case <-done:
				more = false
			default:
			}
			c, err := s.NextChanges(t.Context(), last, 10)
			must(t, err)
			if len(c.Advisories) == 0 || c.Root != goes && c.Root != waits.Root {
				t.Errorf("%d changes of %d, want those of %d or %d", len(c.Advisories), c.Root, goes, waits.Root)
				break
			}
		}
	})
}

// wantNoOrphans checks that the parent of every resource below org exists.
func wantNoOrphans(t *testing.T, s *storetest.Store, org resource.UID) {
	t.Helper()
	groups := walkAll(t, s, store.Reach{Under: []resource.UID{org}}, byUID)
	for uid := range groups {
		if !uid.IsRoot() && groups[uid.Parent()] != 1 {
			t.Errorf("group %s has no parent", uid)
		}
	}
	p := byUID
	for {
		got, err := s.Identities(t.Context(), store.Reach{Under: []resource.UID{org}}, resource.Filter{}, p)
		must(t, err)
		for _, i := range got.Items {
			if groups[i.UID.Parent()] != 1 {
				t.Errorf("identity %s has no parent", i.UID)
			}
		}
		if got.Last == nil {
			return
		}
		p.After = got.Last
	}
}
