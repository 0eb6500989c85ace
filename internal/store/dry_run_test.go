package store_test

import (
	"context"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A stage is an organization that has one resource of every kind, for tests of writes.
type stage struct {
	*storetest.Store
	org, folder resource.Group // the folder is empty
	i           resource.Identity
	r, spare    resource.Role // nothing refers to spare
	b           resource.RoleBinding
	p, unused   resource.IdentityProvider
	a           resource.AccountAssociation
	v           resource.GroupInvite
	sub         resource.Subscription
	m           resource.ExternalGroupRoleMapping
	repo        registry.Repo // has one tag, v1, for the manifest one, and the blob one
	deployed    registry.Repo // a repo with a deployment
	u           registry.Upload
	adv         vuln.Advisory
	feed        vuln.AdvisoryFeed
	account     resource.Account
	exception   vuln.Exception
	rule        vuln.PullRule
	signer      registry.Signer
	trash       registry.TrashEntry // a deleted tag of the repo
	upstream    registry.Upstream
	follower    registry.Repo // synced from the repo; its sync is due
	equal       registry.Repo // synced from the repo; its sync is not due
	asked       resource.AccessRequest
}

func newStage(t *testing.T, s *storetest.Store, name string) stage {
	org, _ := addOrganization(t, s, name, alice)
	st := stage{Store: s, org: org, folder: addGroup(t, s, org.UID, "folder"), i: addIdentity(t, s, org.UID, "i"),
		r: addRole(t, s, org.UID, "r"), spare: addRole(t, s, org.UID, "spare")}
	st.b = addBinding(t, s, org.UID, st.i.UID, st.r.UID)
	st.p, st.unused = addProvider(t, s, org.UID, st.r.UID, "p"), addProvider(t, s, org.UID, st.r.UID, "unused")
	st.sub = addSubscription(t, s, org.UID)
	st.a, st.v, st.m = addAssociation(t, s, org.UID, "a"), addInvite(t, s, org.UID, st.r.UID), addMapping(t, s, st.p.UID,
		st.r.UID, "m")
	st.adv, st.feed = addAdvisory(t, s, org.UID, "A-1"), addFeed(t, s, org.UID, "feed")
	must(t, st.replace(t.Context(), org.UID, epoch, score(1, 1)))
	st.account = addAccount(t, s, org.UID, name+"@example.test")
	st.exception, st.rule = addException(t, s, org.UID, org.UID), addRule(t, s, org.UID)
	st.signer = addSigner(t, s, org.UID, "signer")
	pushPlace(t, s, org.UID, "cluster", 1)
	must(t, s.SetSetting(t.Context(), name, []byte("v")))
	st.repo, st.u = addRepo(t, s, org.UID, "repo"), addUpload(t, s, org.UID, "repo")
	addImage(t, s, st.repo, "v1", "one")
	st.deployed = addRepo(t, s, org.UID, "deployed")
	must(t, s.InsertDeployment(t.Context(), newDeployment(st.deployed.UID)))
	s.KeepTrash = week
	addImage(t, s, st.repo, "deleted", "one")
	must(t, s.DeleteTagNamed(t.Context(), st.repo.UID, "deleted", nil))
	st.trash = trashed(t, s, st.repo.UID)["tag deleted"]
	must(t, ignore(s.SetRetention(t.Context(),
		registry.Retention{UID: org.UID, KeepMatching: []string{"none"}, EveryDays: 1})))
	st.upstream = addUpstream(t, s, addGroup(t, s, org.UID, "mirror").UID)
	st.follower, st.equal = addFollower(t, s, org.UID, "follower", st.repo.UID), addFollower(t, s, org.UID, "equal",
		st.repo.UID)
	must(t, s.EndFollow(t.Context(), begin(t, s, st.equal.UID), sourcedb.FollowEnd{Whole: true}))
	st.asked = addRequest(t, s, st.org.UID, addRole(t, s, org.UID, "asked").UID)
	return st
}

// An act contains two calls of one method: one that succeeds, and one that is
// refused. refused is nil if the method refuses nothing. Both are called more
// than once, with the same arguments.
type act struct{ fine, refused func(context.Context) error }

// acts returns calls of all methods that write, by name.
func (st stage) acts() map[string]act {
	all := st.actsOnTheRest()
	maps.Copy(all, st.actsOnTheRegistry())
	maps.Copy(all, st.actsOnAdvisories())
	maps.Copy(all, st.actsOnAccounts())
	maps.Copy(all, st.actsOnFindings())
	maps.Copy(all, st.actsOnSigners())
	maps.Copy(all, st.actsOnRequests())
	maps.Copy(all, st.actsOnUpstreams())
	maps.Copy(all, st.actsOnFollowers())
	g, i, r, b := newGroup(st.org.UID, "new"), newIdentity(st.org.UID, "new"), newRole(st.org.UID,
		"new"), newBinding(st.folder.UID, bob, st.r.UID)
	none := st.org.UID.NewChild()
	ensure := func(parent resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.EnsureGroups(ctx, parent, []string{"some", "below"})
			return err
		}
	}
	insertGroup := func(g resource.Group) func(context.Context) error {
		return func(ctx context.Context) error { _, err := st.InsertGroup(ctx, g); return err }
	}
	insertBinding := func(b resource.RoleBinding) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.InsertBinding(ctx, b)
			return err
		}
	}
	insertBindings := func(b resource.RoleBinding) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.InsertBindings(ctx, []resource.RoleBinding{b})
			return err
		}
	}
	rename := func(to string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := store.Edit(ctx, st.spare.UID, st.Role, st.UpdateRole, func(r *resource.Role) error {
				r.Name = to
				return nil
			})
			return err
		}
	}
	rebind := func(to resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.UpdateBinding(ctx, st.b.UID, func(b *resource.RoleBinding) error { b.Identity = to; return nil })
			return err
		}
	}
	all["InsertGroup"] = act{insertGroup(g), insertGroup(newGroup(st.org.UID, "folder"))}
	all["EnsureGroups"] = act{ensure(st.folder.UID), ensure(none)}
	all["UpdateGroup"] = act{st.describe(st.folder.UID), st.describe(none)}
	all["DeleteGroup"] = act{
		func(ctx context.Context) error { return st.DeleteGroup(ctx, st.folder.UID, alice) },
		func(ctx context.Context) error { return st.DeleteGroup(ctx, st.org.UID, alice) },
	}
	all["InsertIdentity"] = act{
		func(ctx context.Context) error { return st.InsertIdentity(ctx, i) },
		func(ctx context.Context) error { return st.InsertIdentity(ctx, st.i) },
	}
	all["UpdateIdentity"] = act{func(ctx context.Context) error {
		_, err := store.Edit(ctx, st.i.UID, st.Identity, st.UpdateIdentity, func(i *resource.Identity) error {
			i.Name = "x"
			return nil
		})
		return err
	}, nil}
	all["UpdateMetadata"] = act{func(ctx context.Context) error {
		_, err := store.Edit(ctx, st.i.UID, st.Identity, st.UpdateMetadata, func(i *resource.Identity) error {
			i.Company = "x"
			return nil
		})
		return err
	}, nil}
	all["DeleteIdentity"] = act{
		func(ctx context.Context) error { return st.DeleteIdentity(ctx, st.i.UID) },
		func(ctx context.Context) error { return st.DeleteIdentity(ctx, none) },
	}
	all["InsertRole"] = act{
		func(ctx context.Context) error { return st.InsertRole(ctx, r) },
		func(ctx context.Context) error { return st.InsertRole(ctx, newRole(st.org.UID, "r")) },
	}
	all["UpdateRole"] = act{rename("other"), rename("r")}
	all["DeleteRole"] = act{
		func(ctx context.Context) error { return st.DeleteRole(ctx, st.spare.UID) },
		func(ctx context.Context) error { return st.DeleteRole(ctx, st.r.UID) },
	}
	all["InsertBinding"] = act{insertBinding(b), insertBinding(newBinding(st.org.UID, st.i.UID, st.r.UID))}
	all["InsertBindings"] = act{insertBindings(b), insertBindings(newBinding(st.org.UID, st.i.UID, st.r.UID))}
	all["UpdateBinding"] = act{rebind(bob), rebind(none)}
	all["DeleteBinding"] = act{
		func(ctx context.Context) error { return st.DeleteBinding(ctx, st.b.UID) }, nil,
	}
	return all
}

// describe returns a function that changes the description of a group.
func (st stage) describe(uid resource.UID) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := store.Edit(ctx, uid, st.Group, st.UpdateGroup, func(g *resource.Group) error {
			g.Description += "x"
			return nil
		})
		return err
	}
}

func (st stage) actsOnTheRest() map[string]act {
	none := st.org.UID.NewChild()
	p, v, m := newProvider(st.org.UID, st.r.UID, "new"), newInvite(st.org.UID, st.r.UID), newMapping(st.p.UID, st.r.UID,
		"new")
	promise := func(role resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.UpdateProvider(ctx, st.p.UID, changed(func(p *resource.IdentityProvider) error {
				p.DefaultRole = role
				return nil
			}))
			return err
		}
	}
	invite := func(v resource.GroupInvite) func(context.Context) error {
		return func(ctx context.Context) error { _, err := st.InsertInvite(ctx, v); return err }
	}
	changeInvite := func(role resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := store.Edit(ctx, st.v.UID, st.Invite, st.UpdateInvite, func(i *resource.GroupInvite) error {
				i.Role, i.Email = role, "x@y.test"
				return nil
			})
			return err
		}
	}
	managed := ownerRole
	managed.Description = st.org.Name
	return map[string]act{
		"InsertProvider": {
			func(ctx context.Context) error { return st.InsertProvider(ctx, p) },
			func(ctx context.Context) error { return st.InsertProvider(ctx, newProvider(st.org.UID, none, "new")) },
		},
		"UpdateProvider": {promise(st.spare.UID), promise(none)},
		"DeleteProvider": {
			func(ctx context.Context) error { return st.DeleteProvider(ctx, st.unused.UID) },
			func(ctx context.Context) error { return st.DeleteProvider(ctx, st.p.UID) },
		},
		"InsertAssociation": {
			func(ctx context.Context) error {
				return st.InsertAssociation(ctx, newAssociation(st.folder.UID, "new"))
			},
			func(ctx context.Context) error { return st.InsertAssociation(ctx, newAssociation(st.org.UID, "new")) },
		},
		"UpdateBudget": {st.limit(st.folder.UID), st.limit(st.org.UID.NewChild())},
		"DeleteBudget": {func(ctx context.Context) error {
			if !resource.IsDryRun(ctx) {
				if err := st.limit(st.folder.UID)(ctx); err != nil {
					return err
				}
			}
			return st.DeleteBudget(ctx, st.folder.UID)
		}, nil},
		"UpdateAssociation": {func(ctx context.Context) error {
			_, err := store.Edit(ctx, st.org.UID, st.Association, st.UpdateAssociation,
				func(a *resource.AccountAssociation) error {
					a.Name = "x"
					return nil
				})
			return err
		}, nil},
		"DeleteAssociation": {func(ctx context.Context) error { return st.DeleteAssociation(ctx, st.org.UID) }, nil},
		"InsertInvite":      {invite(v), invite(newInvite(st.org.UID, none))},
		"UpdateInvite":      {changeInvite(resource.OwnerRole), changeInvite(none)},
		"DeleteInvite":      {func(ctx context.Context) error { return st.DeleteInvite(ctx, st.v.UID) }, nil},
		"InsertSubscription": {
			func(ctx context.Context) error { return st.InsertSubscription(ctx, newSubscription(st.org.UID)) },
			func(ctx context.Context) error { return st.InsertSubscription(ctx, newSubscription(none)) },
		},
		"DeleteSubscription": {
			func(ctx context.Context) error { return st.DeleteSubscription(ctx, st.sub.UID) },
			func(ctx context.Context) error { return st.DeleteSubscription(ctx, none) },
		},
		"InsertMapping": {
			func(ctx context.Context) error { return st.InsertMapping(ctx, m) },
			func(ctx context.Context) error { return st.InsertMapping(ctx, newMapping(st.p.UID, st.r.UID, "m")) },
		},
		"DeleteMapping": {
			func(ctx context.Context) error { return st.DeleteMapping(ctx, st.m.UID) },
			func(ctx context.Context) error { return st.DeleteMapping(ctx, none) },
		},
		"DeleteMappings": {func(ctx context.Context) error {
			_, err := st.DeleteMappings(ctx, st.p.UID, []resource.UID{st.m.UID})
			return err
		}, nil},
		"RequestAccess": {func(ctx context.Context) error {
			return st.RequestAccess(ctx, st.org.UID, st.i, time.Hour)
		}, nil},
		"SetManagedRoles": {func(ctx context.Context) error {
			return st.SetManagedRoles(ctx, []resource.Role{managed})
		}, nil},
		"SetSetting": {func(ctx context.Context) error { return st.SetSetting(ctx, st.org.Name, []byte("other")) }, nil},
		"InitSetting": {func(ctx context.Context) error {
			_, err := st.InitSetting(ctx, "new", []byte("x"))
			return err
		}, nil},
		"DeleteSettingIf": {func(ctx context.Context) error {
			_, err := st.DeleteSettingIf(ctx, st.org.Name, []byte("v"))
			return err
		}, nil},
		"InsertFirstSigningKey": {func(ctx context.Context) error {
			return st.InsertFirstSigningKey(ctx, iamdb.SigningKey{ID: "k", Algorithm: "ES256", Sealed: []byte{1},
				CreateTime: epoch})
		}, nil},
	}
}

func (st stage) actsOnAccounts() map[string]act {
	none := st.org.UID.NewChild()
	a, b := newAccount(st.org.UID, "new."+st.account.Email), newAccount(st.org.UID, "other."+st.account.Email)
	insert := func(a resource.Account) func(context.Context) error {
		return func(ctx context.Context) error { return st.InsertAccount(ctx, a, identityOf(a)) }
	}
	rename := func(uid resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.UpdateAccount(ctx, uid, func(a *resource.Account) error { a.Name += "x"; return nil })
			return err
		}
	}
	renameAnd := func(uid resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.UpdateAccountAnd(ctx, uid, func(a *resource.Account) error { a.Name += "x"; return nil }, nil)
			return err
		}
	}
	return map[string]act{
		"InsertAccount": {insert(a), insert(newAccount(st.org.UID, st.account.Email))},
		"UpdateAccount": {rename(st.account.UID), rename(none)},
		"InsertAccountAnd": {
			func(ctx context.Context) error { return st.InsertAccountAnd(ctx, b, identityOf(b), nil) },
			func(ctx context.Context) error {
				taken := newAccount(st.org.UID, st.account.Email)
				return st.InsertAccountAnd(ctx, taken, identityOf(taken), nil)
			},
		},
		"UpdateAccountAnd": {renameAnd(st.account.UID), renameAnd(none)},
		"DeleteAccount": {
			func(ctx context.Context) error { return st.DeleteAccount(ctx, st.account.UID) },
			func(ctx context.Context) error { return st.DeleteAccount(ctx, none) },
		},
		"SetRecoveryCodes": {
			func(ctx context.Context) error { return st.SetRecoveryCodes(ctx, st.account.UID, [][]byte{{1}}) },
			func(ctx context.Context) error { return st.SetRecoveryCodes(ctx, none, [][]byte{{1}}) },
		},
		"SetSignInRules": {
			func(ctx context.Context) error {
				return st.SetSignInRules(ctx, resource.SignInRules{Organization: st.org.UID})
			},
			func(ctx context.Context) error {
				return st.SetSignInRules(ctx, resource.SignInRules{Organization: st.org.UID, LocalOff: true})
			},
		},
	}
}

// TestDryRun calls every method that writes, first as a dry run and then for
// real. It checks that the dry run changes nothing, and that it refuses a call
// with the same error as the real call.
func TestDryRun(t *testing.T) {
	acts := newStage(t, storetest.Open(t, storetest.SQLite(t)), "names").acts()
	const most = 10 // number of acts per store, because the whole store is compared for each act
	for names := range slices.Chunk(slices.Sorted(maps.Keys(acts)), most) {
		storetest.Each(t, func(t *testing.T, s *storetest.Store) {
			heard := 0
			s.OnGrantChange(func(context.Context, int64) { heard++ })
			for _, name := range names {
				t.Run(name, func(t *testing.T) { tryAct(t, s, name, &heard) })
			}
			wantExact(t, s)
		})
	}
}

// tryAct calls a method as a dry run, and then for real. heard counts the calls of the function
// given to OnGrantChange.
func tryAct(t *testing.T, s *storetest.Store, name string, heard *int) {
	st := newStage(t, s, name)
	act := st.acts()[name]
	before, quiet := everything(t, s), *heard
	must(t, act.fine(resource.WithDryRun(t.Context())))
	if act.refused != nil {
		tried, real := act.refused(resource.WithDryRun(t.Context())), act.refused(t.Context())
		if tried == nil || real == nil || tried.Error() != real.Error() {
			t.Errorf("tried: %v\nin earnest: %v", tried, real)
		}
	}
	if diff := cmp.Diff(before, everything(t, s)); diff != "" || *heard != quiet {
		t.Errorf("a dry run left something; %d watchers ran\n%s", *heard-quiet, diff)
	}
	wantSame(t, s.Group, st.folder.UID, st.folder)
	must(t, act.fine(t.Context()))
	if cmp.Equal(before, everything(t, s)) {
		t.Error("in earnest it does nothing either")
	}
}

func everything(t *testing.T, s *storetest.Store) []string {
	t.Helper()
	all, err := s.Everything(t.Context())
	must(t, err)
	return all
}

// actsOnRequests returns calls of the methods that write access requests and their rules.
func (st stage) actsOnRequests() map[string]act {
	none := st.org.UID.NewChild()
	rule := func(group resource.UID) func(context.Context) error {
		r := resource.AccessRule{UID: group.NewChild(), Role: st.r.UID, MaxDuration: time.Hour, Approvers: 1,
			CreateTime: epoch, UpdateTime: epoch}
		return func(ctx context.Context) error { return st.InsertAccessRule(ctx, r) }
	}
	ask := func(group resource.UID, f func(context.Context, resource.AccessRequest) error) func(context.Context) error {
		r := st.asked
		r.UID = group.NewChild()
		return func(ctx context.Context) error { return f(ctx, r) }
	}
	take := func(ctx context.Context, r resource.AccessRequest) error { _, err := st.TakeAccess(ctx, r); return err }
	on := func(f func(context.Context, resource.UID) error) act {
		return act{
			func(ctx context.Context) error { return f(ctx, st.asked.UID) },
			func(ctx context.Context) error { return f(ctx, none) },
		}
	}
	return map[string]act{
		"InsertAccessRule":    {rule(st.folder.UID), rule(none)},
		"DeleteAccessRule":    {func(ctx context.Context) error { return st.DeleteAccessRule(ctx, st.asked.Rule) }, nil},
		"InsertAccessRequest": {ask(st.folder.UID, st.InsertAccessRequest), ask(none, st.InsertAccessRequest)},
		"TakeAccess":          {ask(st.folder.UID, take), ask(none, take)},
		"ApproveAccess": on(func(ctx context.Context, uid resource.UID) error {
			_, err := st.ApproveAccess(ctx, uid, alice, anybody)
			return err
		}),
		"DenyAccess": on(func(ctx context.Context, uid resource.UID) error {
			_, err := st.DenyAccess(ctx, uid, alice)
			return err
		}),
		"HandBackAccess": on(func(ctx context.Context, uid resource.UID) error {
			_, err := st.HandBackAccess(ctx, uid, alice)
			return err
		}),
	}
}

// TestEveryWriteHasDryRun checks that acts contains every method that writes.
func TestEveryWriteHasDryRun(t *testing.T) {
	acts := newStage(t, storetest.Open(t, storetest.SQLite(t)), "org").acts()
	writes := regexp.MustCompile(`^(Insert|Update|Delete|Set|Init|First|Take|ClaimDue|Request)`)
	exported := reflect.TypeFor[*storetest.Store]()
	for i := range exported.NumMethod() {
		name := exported.Method(i).Name
		_, ok := acts[name]
		if writes.MatchString(name) && name != "Setting" && name != "RequestedIn" && !ok {
			t.Errorf("%s has no dry run", name)
		}
	}
}

func (st stage) limit(group resource.UID) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := store.Edit(ctx, group, st.Budget, st.UpdateBudget, func(b *resource.Budget) error {
			b.Limits = map[resource.Metric]int64{resource.Webhooks: 5}
			return nil
		})
		return err
	}
}
