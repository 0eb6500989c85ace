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

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb/eventtest"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/vulntest"
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
	reader      resource.UID
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
	copied      registry.Replication
	follower    registry.Repo // synced from the repo; its sync is due
	equal       registry.Repo // synced from the repo; its sync is not due
	asked       resource.AccessRequest
}

func newStage(t *testing.T, s *storetest.Store, name string) stage {
	org, _ := iamtest.AddOrganization(t, s.IAMStore, name, iamtest.Alice)
	st := stage{Store: s, org: org, folder: iamtest.AddGroup(t, s.IAMStore, org.UID, "folder"), i: iamtest.AddIdentity(t,
		s.IAMStore, org.UID, "i"),
		r: iamtest.AddRole(t, s.IAMStore, org.UID, "r"), spare: iamtest.AddRole(t, s.IAMStore, org.UID, "spare")}
	st.b = iamtest.AddBinding(t, s.IAMStore, org.UID, st.i.UID, st.r.UID)
	st.p, st.unused = iamtest.AddProvider(t, s.IAMStore, org.UID, st.r.UID, "p"), iamtest.AddProvider(t, s.IAMStore,
		org.UID, st.r.UID, "unused")
	st.sub = eventtest.AddSubscription(t, s.EventStore, org.UID)
	st.a, st.v, st.m = iamtest.AddAssociation(t, s.IAMStore, org.UID, "a"), iamtest.AddInvite(t, s.IAMStore, org.UID,
		st.r.UID), iamtest.AddMapping(t, s.IAMStore, st.p.UID,
		st.r.UID, "m")
	st.adv, st.feed = vulntest.AddAdvisory(t, s.AdvisoryStore, org.UID, "A-1"), vulntest.AddFeed(t, s.AdvisoryStore,
		org.UID, "feed")
	testkit.Must(t, st.replace(t.Context(), org.UID, iamtest.Epoch, vulntest.NewScore(1, 1)))
	st.account = iamtest.AddAccount(t, s.People, org.UID, name+"@example.test")
	st.exception, st.rule = vulntest.AddException(t, s.FindingStore, org.UID, org.UID), vulntest.AddPullRule(t,
		s.FindingStore, org.UID)
	st.signer = registrytest.AddSigner(t, s.SignerStore, org.UID, "signer")
	vulntest.PushPlace(t, s.FindingStore, org.UID, "cluster", 1)
	testkit.Must(t, s.SetSetting(t.Context(), name, []byte("v")))
	st.repo, st.u = registrytest.AddRepo(t, s.RegistryStore, org.UID, "repo"), registrytest.AddUpload(t, s.RegistryStore,
		org.UID, "repo")
	registrytest.AddImage(t, s.RegistryStore, st.repo, "v1", "one")
	st.deployed = registrytest.AddRepo(t, s.RegistryStore, org.UID, "deployed")
	testkit.Must(t, s.InsertDeployment(t.Context(), registrytest.NewDeployment(st.deployed.UID)))
	s.KeepTrash = registrytest.Week
	registrytest.AddImage(t, s.RegistryStore, st.repo, "deleted", "one")
	testkit.Must(t, s.DeleteTagNamed(t.Context(), st.repo.UID, "deleted", nil))
	st.trash = registrytest.Trashed(t, s.RegistryStore, st.repo.UID)["tag deleted"]
	// Each stage has a reader of its own, because a person can have only a few subscriptions.
	st.reader = resource.UserUID("https://people.example", name)
	testkit.Must(t, testkit.Ignore(s.AddReportSubscription(t.Context(), vuln.ReportSubscription{
		Group: org.UID, Identity: st.reader})))
	testkit.Must(t, testkit.Ignore(s.SetSLA(t.Context(), vuln.SLA{UID: org.UID, Critical: 7})))
	testkit.Must(t, testkit.Ignore(s.SetRetention(t.Context(),
		registry.Retention{UID: org.UID, KeepMatching: []string{"none"}, EveryDays: 1})))
	st.upstream = registrytest.AddUpstream(t, s.SourceStore, iamtest.AddGroup(t, s.IAMStore, org.UID, "mirror").UID)
	st.copied = registrytest.AddReplication(t, s.SourceStore, org.UID, "copied")
	st.follower, st.equal = registrytest.AddFollower(t, s.SourceStore, org.UID, "follower",
		st.repo.UID), registrytest.AddFollower(t, s.SourceStore, org.UID, "equal",
		st.repo.UID)
	testkit.Must(t, s.EndFollow(t.Context(), registrytest.BeginSync(t, s.SourceStore, st.equal.UID),
		sourcedb.FollowEnd{Whole: true}))
	st.asked = iamtest.AddRequest(t, s.IAMStore, st.org.UID, iamtest.AddRole(t, s.IAMStore, org.UID, "asked").UID)
	return st
}

// An act contains two calls of one method: one that succeeds, and one that is
// refused. refused is nil if the method refuses nothing. Both are called more
// than once, with the same arguments.
type act struct{ fine, refused func(context.Context) error }

func (st stage) actsOnPayers() map[string]act {
	insert := func(payer resource.UID) func(context.Context) error {
		g := iamtest.NewGroup("", "paid-"+string(payer[:8]))
		owner := iamtest.NewBinding(g.UID, iamtest.Bob, st.r.UID)
		return func(ctx context.Context) error { _, err := st.InsertOrganization(ctx, g, owner, payer); return err }
	}
	set := func(payer resource.UID) func(context.Context) error {
		return func(ctx context.Context) error { return st.SetPayer(ctx, st.org.UID, payer) }
	}
	return map[string]act{
		"InsertOrganization": {insert(st.org.UID), insert(resource.NewRoot())},
		"SetPayer":           {set(st.org.UID), set(resource.NewRoot())},
	}
}

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
	maps.Copy(all, st.actsOnReplications())
	maps.Copy(all, st.actsOnPayers())
	g, i, r, b := iamtest.NewGroup(st.org.UID, "new"), iamtest.NewIdentity(st.org.UID, "new"), iamtest.NewRole(st.org.UID,
		"new"), iamtest.NewBinding(st.folder.UID, iamtest.Bob, st.r.UID)
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
	all["InsertGroup"] = act{insertGroup(g), insertGroup(iamtest.NewGroup(st.org.UID, "folder"))}
	all["EnsureGroups"] = act{ensure(st.folder.UID), ensure(none)}
	all["UpdateGroup"] = act{st.describe(st.folder.UID), st.describe(none)}
	all["DeleteGroup"] = act{
		func(ctx context.Context) error { return st.DeleteGroup(ctx, st.folder.UID, iamtest.Alice) },
		func(ctx context.Context) error { return st.DeleteGroup(ctx, st.org.UID, iamtest.Alice) },
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
		func(ctx context.Context) error { return st.InsertRole(ctx, iamtest.NewRole(st.org.UID, "r")) },
	}
	all["UpdateRole"] = act{rename("other"), rename("r")}
	all["DeleteRole"] = act{
		func(ctx context.Context) error { return st.DeleteRole(ctx, st.spare.UID) },
		func(ctx context.Context) error { return st.DeleteRole(ctx, st.r.UID) },
	}
	all["InsertBinding"] = act{insertBinding(b), insertBinding(iamtest.NewBinding(st.org.UID, st.i.UID, st.r.UID))}
	all["InsertBindings"] = act{insertBindings(b), insertBindings(iamtest.NewBinding(st.org.UID, st.i.UID, st.r.UID))}
	all["UpdateBinding"] = act{rebind(iamtest.Bob), rebind(none)}
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
	p, v, m := iamtest.NewProvider(st.org.UID, st.r.UID, "new"), iamtest.NewInvite(st.org.UID,
		st.r.UID), iamtest.NewMapping(st.p.UID, st.r.UID,
		"new")
	promise := func(role resource.UID) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := st.UpdateProvider(ctx, st.p.UID, iamtest.ChangeProvider(func(p *resource.IdentityProvider) error {
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
	managed := iamtest.OwnerRole
	managed.Description = st.org.Name
	return map[string]act{
		"InsertProvider": {
			func(ctx context.Context) error { return st.InsertProvider(ctx, p) },
			func(ctx context.Context) error {
				return st.InsertProvider(ctx, iamtest.NewProvider(st.org.UID, none, "new"))
			},
		},
		"UpdateProvider": {promise(st.spare.UID), promise(none)},
		"DeleteProvider": {
			func(ctx context.Context) error { return st.DeleteProvider(ctx, st.unused.UID) },
			func(ctx context.Context) error { return st.DeleteProvider(ctx, st.p.UID) },
		},
		"InsertAssociation": {
			func(ctx context.Context) error {
				return st.InsertAssociation(ctx, iamtest.NewAssociation(st.folder.UID, "new"))
			},
			func(ctx context.Context) error {
				return st.InsertAssociation(ctx, iamtest.NewAssociation(st.org.UID, "new"))
			},
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
		"InsertInvite":      {invite(v), invite(iamtest.NewInvite(st.org.UID, none))},
		"UpdateInvite":      {changeInvite(resource.OwnerRole), changeInvite(none)},
		"DeleteInvite":      {func(ctx context.Context) error { return st.DeleteInvite(ctx, st.v.UID) }, nil},
		"InsertSubscription": {
			func(ctx context.Context) error {
				return st.InsertSubscription(ctx, eventtest.NewSubscription(st.org.UID))
			},
			func(ctx context.Context) error { return st.InsertSubscription(ctx, eventtest.NewSubscription(none)) },
		},
		"DeleteSubscription": {
			func(ctx context.Context) error { return st.DeleteSubscription(ctx, st.sub.UID) },
			func(ctx context.Context) error { return st.DeleteSubscription(ctx, none) },
		},
		"InsertMapping": {
			func(ctx context.Context) error { return st.InsertMapping(ctx, m) },
			func(ctx context.Context) error {
				return st.InsertMapping(ctx, iamtest.NewMapping(st.p.UID, st.r.UID, "m"))
			},
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
			return st.InsertFirstSigningKey(ctx, tokendb.SigningKey{ID: "k", Algorithm: "ES256", Sealed: []byte{1},
				CreateTime: iamtest.Epoch})
		}, nil},
	}
}

func (st stage) actsOnAccounts() map[string]act {
	none := st.org.UID.NewChild()
	a, b := iamtest.NewAccount(st.org.UID, "new."+st.account.Email), iamtest.NewAccount(st.org.UID,
		"other."+st.account.Email)
	insert := func(a resource.Account) func(context.Context) error {
		return func(ctx context.Context) error { return st.InsertAccount(ctx, a, iamtest.IdentityOf(a)) }
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
		"InsertAccount": {insert(a), insert(iamtest.NewAccount(st.org.UID, st.account.Email))},
		"UpdateAccount": {rename(st.account.UID), rename(none)},
		"InsertAccountAnd": {
			func(ctx context.Context) error { return st.InsertAccountAnd(ctx, b, iamtest.IdentityOf(b), nil) },
			func(ctx context.Context) error {
				taken := iamtest.NewAccount(st.org.UID, st.account.Email)
				return st.InsertAccountAnd(ctx, taken, iamtest.IdentityOf(taken), nil)
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
			dbtest.WantExact(t, s.DB)
		})
	}
}

// tryAct calls a method as a dry run, and then for real. heard counts the calls of the function
// given to OnGrantChange.
func tryAct(t *testing.T, s *storetest.Store, name string, heard *int) {
	st := newStage(t, s, name)
	act := st.acts()[name]
	before, quiet := everything(t, s), *heard
	testkit.Must(t, act.fine(resource.WithDryRun(t.Context())))
	if act.refused != nil {
		tried, real := act.refused(resource.WithDryRun(t.Context())), act.refused(t.Context())
		if tried == nil || real == nil || tried.Error() != real.Error() {
			t.Errorf("tried: %v\nin earnest: %v", tried, real)
		}
	}
	if diff := cmp.Diff(before, everything(t, s)); diff != "" || *heard != quiet {
		t.Errorf("a dry run left something; %d watchers ran\n%s", *heard-quiet, diff)
	}
	testkit.WantSame(t, s.Group, st.folder.UID, st.folder)
	testkit.Must(t, act.fine(t.Context()))
	if cmp.Equal(before, everything(t, s)) {
		t.Error("in earnest it does nothing either")
	}
}

// everything returns every row of the database.
func everything(t *testing.T, s *storetest.Store) []string {
	t.Helper()
	return dbtest.Everything(t, s.DB)
}

// actsOnRequests returns calls of the methods that write access requests and their rules.
func (st stage) actsOnRequests() map[string]act {
	none := st.org.UID.NewChild()
	rule := func(group resource.UID) func(context.Context) error {
		r := resource.AccessRule{UID: group.NewChild(), Role: st.r.UID, MaxDuration: time.Hour, Approvers: 1,
			CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch}
		return func(ctx context.Context) error { return st.InsertAccessRule(ctx, r) }
	}
	ask := func(group resource.UID, f func(context.Context, resource.AccessRequest) error) func(context.Context) error {
		r := st.asked
		r.UID = group.NewChild()
		return func(ctx context.Context) error { return f(ctx, r) }
	}
	take := func(ctx context.Context, r resource.AccessRequest) error { _, err := st.TakeAccess(ctx, r); return err }
	insert := func(ctx context.Context, r resource.AccessRequest) error { return st.InsertAccessRequest(ctx, r) }
	on := func(f func(context.Context, resource.UID) error) act {
		return act{
			func(ctx context.Context) error { return f(ctx, st.asked.UID) },
			func(ctx context.Context) error { return f(ctx, none) },
		}
	}
	return map[string]act{
		"InsertAccessRule":    {rule(st.folder.UID), rule(none)},
		"DeleteAccessRule":    {func(ctx context.Context) error { return st.DeleteAccessRule(ctx, st.asked.Rule) }, nil},
		"InsertAccessRequest": {ask(st.folder.UID, insert), ask(none, insert)},
		"TakeAccess":          {ask(st.folder.UID, take), ask(none, take)},
		"ApproveAccess": on(func(ctx context.Context, uid resource.UID) error {
			_, err := st.ApproveAccess(ctx, uid, iamtest.Alice, iamtest.Anybody)
			return err
		}),
		"DenyAccess": on(func(ctx context.Context, uid resource.UID) error {
			_, err := st.DenyAccess(ctx, uid, iamtest.Alice)
			return err
		}),
		"HandBackAccess": on(func(ctx context.Context, uid resource.UID) error {
			_, err := st.HandBackAccess(ctx, uid, iamtest.Alice)
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
