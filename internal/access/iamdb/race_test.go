package iamdb_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

var duels = map[string]func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel{
	"create child and delete parent": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		p := iamtest.AddGroup(t, s.IAMStore, org, "p "+string(org.NewChild()[50:]))
		return dbtest.NewDuel(
			func() error { _, err := s.InsertGroup(t.Context(), iamtest.NewGroup(p.UID, "c")); return err },
			func() error { return s.DeleteGroup(t.Context(), p.UID, "") },
			dbtest.OneOf(fault.NotFound, fault.FailedPrecondition),
		)
	},
	"create identity and delete its group": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		p := iamtest.AddGroup(t, s.IAMStore, org, "p "+string(org.NewChild()[50:]))
		return dbtest.NewDuel(
			func() error { return s.InsertIdentity(t.Context(), iamtest.NewIdentity(p.UID, "c")) },
			func() error { return s.DeleteGroup(t.Context(), p.UID, "") },
			dbtest.OneOf(fault.NotFound, fault.FailedPrecondition),
		)
	},
	"bind and delete identity": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		i, r := iamtest.AddIdentity(t, s.IAMStore, org, "i"), iamtest.AddRole(t, s.IAMStore, org,
			"r "+string(org.NewChild()[50:]))
		return dbtest.NewDuel(
			func() error {
				_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{iamtest.NewBinding(org, i.UID, r.UID)})
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
		)
	},
	"bind and delete role": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		i, r := iamtest.AddIdentity(t, s.IAMStore, org, "i"), iamtest.AddRole(t, s.IAMStore, org,
			"r "+string(org.NewChild()[50:]))
		return dbtest.NewDuel(
			func() error {
				_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{iamtest.NewBinding(org, i.UID, r.UID)})
				return err
			},
			func() error { return s.DeleteRole(t.Context(), r.UID) },
			dbtest.OneOf(fault.NotFound, fault.FailedPrecondition),
		)
	},
	"update binding and delete its new identity": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		i, j, r := iamtest.AddIdentity(t, s.IAMStore, org, "i"), iamtest.AddIdentity(t, s.IAMStore, org,
			"j"), iamtest.AddRole(t, s.IAMStore, org,
			"r "+string(org.NewChild()[50:]))
		b := iamtest.AddBinding(t, s.IAMStore, org, i.UID, r.UID)
		return dbtest.NewDuel(
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
		)
	},
	"delete group twice": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		p := iamtest.AddGroup(t, s.IAMStore, org, "p")
		del := func() error { return s.DeleteGroup(t.Context(), p.UID, "") }
		return dbtest.NewDuel(del, del, dbtest.OneOf(fault.NotFound, fault.NotFound))
	},
	"delete identity twice": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		i := iamtest.AddIdentity(t, s.IAMStore, org, "i")
		del := func() error { return s.DeleteIdentity(t.Context(), i.UID) }
		return dbtest.NewDuel(del, del, dbtest.OneOf(fault.NotFound, fault.NotFound))
	},
	"delete role twice": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		r := iamtest.AddRole(t, s.IAMStore, org, "r")
		del := func() error { return s.DeleteRole(t.Context(), r.UID) }
		return dbtest.NewDuel(del, del, dbtest.OneOf(fault.NotFound, fault.NotFound))
	},
	"delete binding twice": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		i, r := iamtest.AddIdentity(t, s.IAMStore, org, "i"), iamtest.AddRole(t, s.IAMStore, org,
			"r "+string(org.NewChild()[50:]))
		b := iamtest.AddBinding(t, s.IAMStore, org, i.UID, r.UID)
		del := func() error { return s.DeleteBinding(t.Context(), b.UID) }
		return dbtest.NewDuel(del, del, func(a, b error) error { return errors.Join(a, b) })
	},
	"same name twice": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		name := "n " + string(org.NewChild()[50:])
		add := func() error { _, err := s.InsertGroup(t.Context(), iamtest.NewGroup(org, name)); return err }
		return dbtest.NewDuel(add, add, dbtest.OneOf(fault.AlreadyExists, fault.AlreadyExists))
	},
	"update twice": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		p := iamtest.AddGroup(t, s.IAMStore, org, "u "+string(org.NewChild()[50:]))
		update := func(what string) func() error {
			return func() error {
				_, err := store.Edit(t.Context(), p.UID, s.Group, s.UpdateGroup, func(g *resource.Group) error {
					g.Description += what
					return nil
				})
				return err
			}
		}
		return dbtest.NewDuel(update("a"), update("b"), func(a, b error) error {
			g, err := s.Group(t.Context(), p.UID)
			if a != nil || b != nil || err != nil || g.Description != "ab" && g.Description != "ba" {
				return fmt.Errorf("errors = %v, %v and %v; description %q", a, b, err, g.Description)
			}
			return nil
		})
	},
	"create provider and delete its role": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		r := iamtest.AddRole(t, s.IAMStore, org, "r "+string(org.NewChild()[50:]))
		return dbtest.NewDuel(
			func() error { return s.InsertProvider(t.Context(), iamtest.NewProvider(org, r.UID, "p")) },
			func() error { return s.DeleteRole(t.Context(), r.UID) },
			dbtest.OneOf(fault.NotFound, fault.FailedPrecondition),
		)
	},
	"create invite and delete its role": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		r := iamtest.AddRole(t, s.IAMStore, org, "r "+string(org.NewChild()[50:]))
		return dbtest.NewDuel(
			func() error { _, err := s.InsertInvite(t.Context(), iamtest.NewInvite(org, r.UID)); return err },
			func() error { return s.DeleteRole(t.Context(), r.UID) },
			dbtest.OneOf(fault.NotFound, fault.FailedPrecondition),
		)
	},
	"create mapping and delete its provider": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		r := iamtest.AddRole(t, s.IAMStore, org, "r "+string(org.NewChild()[50:]))
		p := iamtest.AddProvider(t, s.IAMStore, org, r.UID, "p")
		return dbtest.NewDuel(
			func() error { return s.InsertMapping(t.Context(), iamtest.NewMapping(p.UID, r.UID, "m")) },
			func() error { return s.DeleteProvider(t.Context(), p.UID) },
			dbtest.OneOf(fault.NotFound, fault.FailedPrecondition),
		)
	},
	"create mapping and delete its role": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		r, q := iamtest.AddRole(t, s.IAMStore, org, "r "+string(org.NewChild()[50:])), iamtest.AddRole(t, s.IAMStore, org,
			"q "+string(org.NewChild()[50:]))
		p := iamtest.AddProvider(t, s.IAMStore, org, q.UID, "p")
		return dbtest.NewDuel(
			func() error { return s.InsertMapping(t.Context(), iamtest.NewMapping(p.UID, r.UID, "m")) },
			func() error { return s.DeleteRole(t.Context(), r.UID) },
			dbtest.OneOf(fault.NotFound, fault.FailedPrecondition),
		)
	},
	"create association and delete its group": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		g := iamtest.AddGroup(t, s.IAMStore, org, "p "+string(org.NewChild()[50:]))
		return dbtest.NewDuel(
			func() error { return s.InsertAssociation(t.Context(), iamtest.NewAssociation(g.UID, "a")) },
			func() error { return s.DeleteGroup(t.Context(), g.UID, "") },
			dbtest.OneOf(fault.NotFound, fault.FailedPrecondition),
		)
	},
	"two associations of one group": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		g := iamtest.AddGroup(t, s.IAMStore, org, "p "+string(org.NewChild()[50:]))
		add := func() error { return s.InsertAssociation(t.Context(), iamtest.NewAssociation(g.UID, "a")) }
		return dbtest.NewDuel(add, add, dbtest.OneOf(fault.AlreadyExists, fault.AlreadyExists))
	},
	"delete association twice": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		g := iamtest.AddGroup(t, s.IAMStore, org, "p "+string(org.NewChild()[50:]))
		iamtest.AddAssociation(t, s.IAMStore, g.UID, "a")
		del := func() error { return s.DeleteAssociation(t.Context(), g.UID) }
		return dbtest.NewDuel(del, del, func(a, b error) error { return errors.Join(a, b) })
	},
	"delete mappings in opposite order": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		r := iamtest.AddRole(t, s.IAMStore, org, "r "+string(org.NewChild()[50:]))
		p := iamtest.AddProvider(t, s.IAMStore, org, r.UID, "p")
		m, n := iamtest.AddMapping(t, s.IAMStore, p.UID, r.UID, "m").UID, iamtest.AddMapping(t, s.IAMStore, p.UID, r.UID,
			"n").UID
		gone := make(chan int, 2)
		del := func(uids ...resource.UID) func() error {
			return func() error {
				all, err := s.DeleteMappings(t.Context(), p.UID, uids)
				gone <- len(all)
				return err
			}
		}
		return dbtest.NewDuel(del(m, n), del(n, m), func(a, b error) error {
			if n := <-gone + <-gone; n != 2 {
				return fmt.Errorf("errors = %v and %v; %d of 2 mappings were reported", a, b, n)
			}
			return errors.Join(a, b)
		})
	},
	"update provider twice": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		r := iamtest.AddRole(t, s.IAMStore, org, "r "+string(org.NewChild()[50:]))
		p := iamtest.AddProvider(t, s.IAMStore, org, r.UID, "p")
		update := func(what string) func() error {
			return func() error {
				_, err := s.UpdateProvider(t.Context(), p.UID, iamtest.ChangeProvider(func(p *resource.IdentityProvider) error {
					p.OIDC.GroupsClaim += what
					return nil
				}))
				return err
			}
		}
		return dbtest.NewDuel(update("a"), update("b"), func(a, b error) error {
			p, err := s.Provider(t.Context(), p.UID)
			if a != nil || b != nil || err != nil || p.OIDC.GroupsClaim != "ab" && p.OIDC.GroupsClaim != "ba" {
				return fmt.Errorf("errors = %v, %v and %v; claim %q", a, b, err, p.OIDC.GroupsClaim)
			}
			return nil
		})
	},
	"two owners leave": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		x, y := resource.UserUID("https://issuer.test", "x"), resource.UserUID("https://issuer.test", "y")
		g, one := iamtest.AddOrganization(t, s.IAMStore, "o "+string(org.NewChild()[50:]), x)
		two := iamtest.AddBinding(t, s.IAMStore, g.UID, y, resource.OwnerRole)
		return dbtest.NewDuel(
			func() error { return s.DeleteBinding(t.Context(), one.UID) },
			func() error { return s.DeleteBinding(t.Context(), two.UID) },
			dbtest.OneOf(fault.FailedPrecondition, fault.FailedPrecondition),
		)
	},
}

// TestDuels runs conflicting writes concurrently and checks their effects.
func TestDuels(t *testing.T) {
	const rounds = 40
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		all := maps.Clone(duels)
		maps.Copy(all, issuerDuels)
		for name, prepare := range all {
			t.Run(name, func(t *testing.T) {
				for range rounds {
					d := prepare(t, s, org)
					a, b := dbtest.AtOnce(d.A, d.B)
					if err := d.OK(a, b); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		dbtest.WantExact(t, s.DB)
		wantNoOrphans(t, s, org)
	})
}

// wantNoOrphans checks that the parent of every resource below org exists.
func wantNoOrphans(t *testing.T, s *iamtest.Store, org resource.UID) {
	t.Helper()
	groups := iamtest.WalkAll(t, s.IAMStore, store.Reach{Under: []resource.UID{org}}, iamtest.ByUID)
	for uid := range groups {
		if !uid.IsRoot() && groups[uid.Parent()] != 1 {
			t.Errorf("group %s has no parent", uid)
		}
	}
	p := iamtest.ByUID
	for {
		got, err := s.Identities(t.Context(), store.Reach{Under: []resource.UID{org}}, resource.Filter{}, p)
		testkit.Must(t, err)
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
