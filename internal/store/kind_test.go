package store_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A filler sets every field of a resource to a value that is not zero.
type filler struct{ n, depth int }

func (f *filler) fill(v reflect.Value) {
	if f.depth == 6 { // an actor can contain another actor, so the depth is limited
		return
	}
	f.n++
	f.depth++
	defer func() { f.depth-- }()
	switch v.Kind() {
	case reflect.String:
		v.SetString("text " + string(rune('a'+f.n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.n) * int64(time.Millisecond)) // also a whole number of milliseconds if it is a duration
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0))
	case reflect.Uint8:
		v.SetUint(uint64(f.n % 256))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key)
		f.fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface:
		v.Set(reflect.ValueOf("anything"))
	case reflect.Struct:
		f.fillStruct(v)
	}
}

func (f *filler) fillStruct(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(iamtest.Epoch.Add(time.Duration(f.n) * time.Second)))
	case resource.Capabilities:
		v.Set(reflect.ValueOf(resource.CapabilitySet("groups.list")))
	default:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i))
			}
		}
	}
}

// kept checks that a resource with every field set is read back unchanged, twice, and is
// found in a list. fit changes the filled resource so that the database accepts it. Only
// fields that fit sets to zero may be zero.
func kept[T any](
	fit func(*T), insert func(context.Context, T) error, get func(context.Context, resource.UID) (T, error),
	list func(context.Context, store.Reach, resource.Filter, page.Request) (page.Page[T], error),
	org resource.UID,
) func(*testing.T) {
	return func(t *testing.T) {
		var want T
		(&filler{}).fill(reflect.ValueOf(&want).Elem())
		fit(&want)
		testkit.Must(t, insert(t.Context(), want))
		uid := resource.UID(reflect.ValueOf(want).FieldByName("UID").String())
		for range 2 {
			got, err := get(t.Context(), uid)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("got  %s, %v\nwant %s", asYAML(got), err, asYAML(want))
			}
		}
		all, err := list(t.Context(), store.Reach{Under: []resource.UID{org}},
			resource.Filter{UIDs: resource.UIDFilter{IDs: []resource.UID{uid}}}, iamtest.ByUID)
		if err != nil || len(all.Items) != 1 || !reflect.DeepEqual(all.Items[0], want) {
			t.Errorf("listed %s, %v\nwant   %s", asYAML(all.Items), err, asYAML(want))
		}
	}
}

// TestEveryFieldIsKept checks that every field of a kind is stored. It fails if
// somebody adds a field without its column.
func TestEveryFieldIsKept(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		testkit.Must(t, s.SetManagedRoles(t.Context(), []resource.Role{iamtest.OwnerRole}))
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		role := resource.Role{UID: org.NewChild(), Name: "role", CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch}
		testkit.Must(t, s.InsertRole(t.Context(), role))
		sub := resource.Subscription{UID: org.NewChild(), Sink: "https://sink.test", CreateTime: iamtest.Epoch}
		testkit.Must(t, s.InsertSubscription(t.Context(), sub))
		provider := resource.IdentityProvider{UID: org.NewChild(), Name: "p", DefaultRole: role.UID, OIDC: &resource.OIDC{},
			CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch}
		testkit.Must(t, s.InsertProvider(t.Context(), provider))
		maker := iamtest.AddIdentity(t, s.IAMStore, org, "maker")

		t.Run("groups", kept(func(g *resource.Group) {
			g.UID, g.Kind = org.NewChild(), resource.OrgUnspecified
		}, // the group has the kind of its organization
			func(ctx context.Context, g resource.Group) error {
				_, err := s.InsertGroup(ctx, g)
				return err
			}, s.Group, s.Groups, org))
		t.Run("roles", kept(func(r *resource.Role) { r.UID = org.NewChild() }, s.InsertRole, s.Role, s.Roles, org))
		t.Run("identities", kept(func(i *resource.Identity) {
			i.UID, i.Provider, i.Maker = org.NewChild(), provider.UID, maker.UID
		}, s.InsertIdentity, s.Identity, s.Identities, org))
		t.Run("identity providers", kept(func(p *resource.IdentityProvider) {
			p.UID, p.DefaultRole, p.OIDC.ClientSecret.Plain = org.NewChild(), role.UID, ""
			p.Trusted, p.Epoch = false, 0 // these are the values of a new provider
			p.Realm = p.OwnRealm()
		}, s.InsertProvider, s.Provider, s.Providers, org))
		t.Run("account associations", kept(func(a *resource.AccountAssociation) {
			a.UID = iamtest.AddGroup(t, s.IAMStore, org, "accounts").UID
		},
			s.InsertAssociation, s.Association, s.Associations, org))
		t.Run("budgets", kept(func(b *resource.Budget) {
			b.UID, b.UpdateTime = iamtest.AddGroup(t, s.IAMStore, org, "budget").UID, b.CreateTime
		},
			func(ctx context.Context, b resource.Budget) error {
				s.Now = func() time.Time { return b.CreateTime }
				_, err := s.UpdateBudget(ctx, resource.Budget{UID: b.UID}, b)
				return err
			}, s.Budget, s.ListBudgets, org))
		t.Run("external group role mappings", kept(func(m *resource.ExternalGroupRoleMapping) {
			m.UID, m.Role = provider.UID.NewChild(), role.UID
		},
			s.InsertMapping, s.Mapping, s.Mappings, org))
		t.Run("group invites", kept(func(i *resource.GroupInvite) {
			i.UID, i.Role, i.RoleInfo, i.Code = org.NewChild(), role.UID, resource.Role{UID: role.UID, Name: role.Name}, ""
			i.TTL = nil // TTL exists only in changes
		}, func(ctx context.Context, i resource.GroupInvite) error {
			_, err := s.InsertInvite(ctx, i)
			return err
		}, s.Invite, s.Invites, org))
		t.Run("accounts", kept(func(a *resource.Account) {
			// Passkeys and recovery codes have tables of their own.
			a.UID, a.Identity, a.Passkeys, a.RecoveryCodes = org.NewChild(), resource.NewRoot(), nil, 0
		}, func(ctx context.Context, a resource.Account) error {
			return s.InsertAccount(ctx, a, resource.Identity{UID: a.Identity, CreateTime: iamtest.Epoch,
				UpdateTime:   iamtest.Epoch,
				LastSeenTime: iamtest.Epoch})
		}, s.Account, s.Accounts, org))
		t.Run("repos", kept(func(r *registry.Repo) { r.UID = org.NewChild() }, s.InsertRepo, s.Repo, s.Repos, org))
		t.Run("subscriptions", kept(func(v *resource.Subscription) {
			v.UID = org.NewChild()
		}, s.InsertSubscription, s.Subscription, s.Subscriptions, org))
		t.Run("deliveries", kept(func(d *resource.Delivery) { d.UID = sub.UID.NewChild() },
			func(ctx context.Context, d resource.Delivery) error {
				return s.GiveUp(ctx, sub.UID, 0, []resource.Delivery{d})
			},
			s.Delivery, s.Deliveries, org))
		t.Run("exceptions", kept(func(e *vuln.Exception) { e.UID, e.Target = org.NewChild(), org },
			func(ctx context.Context, e vuln.Exception) error {
				return s.InsertExceptions(ctx, org, []vuln.Exception{e})
			}, s.Exception, s.Exceptions, org))
		t.Run("pull rules", kept(func(r *vuln.PullRule) {
			r.UID, r.Target = org.NewChild(), org
		}, s.InsertPullRule, s.PullRule, s.PullRules, org))
		t.Run("signers", kept(func(s *registry.Signer) { s.UID = org.NewChild() }, s.InsertSigner, s.Signer, s.Signers, org))
		t.Run("access rules", kept(func(r *resource.AccessRule) {
			r.UID, r.Role, r.Requester = org.NewChild(), role.UID, role.UID
		}, s.InsertAccessRule, s.AccessRule, s.AccessRules, org))
		rule := resource.AccessRule{UID: org.NewChild(), Role: role.UID, CreateTime: iamtest.Epoch, UpdateTime: iamtest.Epoch}
		testkit.Must(t, s.InsertAccessRule(t.Context(), rule))
		t.Run("access requests", kept(func(r *resource.AccessRequest) {
			r.UID, r.Role, r.Rule, r.Identity = org.NewChild(), role.UID, rule.UID, org.NewChild()
		}, func(ctx context.Context, r resource.AccessRequest) error { return s.InsertAccessRequest(ctx, r) },
			s.AccessRequest, s.AccessRequests, org))
		t.Run("registry upstreams", kept(func(u *registry.Upstream) {
			u.UID, u.Credentials.Plain = iamtest.AddGroup(t, s.IAMStore, org, "mirror").UID.NewChild(), ""
		}, s.InsertUpstream, s.Upstream, s.Upstreams, org))
		t.Run("replications", kept(func(r *registry.Replication) {
			r.UID, r.Credentials.Plain = org.NewChild(), ""
		}, s.InsertReplication, s.Replication, s.Replications, org))
		t.Run("advisory feeds", kept(func(f *vuln.AdvisoryFeed) {
			f.UID = org.NewChild()
		}, s.InsertFeed, s.Feed, s.Feeds, org))
	})
}

// asYAML returns a value, and everything that it points to, as YAML.
func asYAML(v any) string {
	b, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
