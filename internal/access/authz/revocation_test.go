package authz

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const ourIssuer = "https://holdfast.test"

// A revocable has a caller, and everything that a revocation of the caller's access can change.
type revocable struct {
	caller   Caller
	group    resource.UID
	role     resource.Role
	binding  resource.UID
	through  resource.UID // the caller was assumed through this identity
	provider resource.UID
	session  string
	other    resource.UID // binding of another identity
}

// newRevocable creates a caller who holds a role of its own in a group.
func newRevocable(t *testing.T, s *storetest.Store, group resource.UID) revocable {
	t.Helper()
	now := time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	workload := func() resource.UID {
		i := resource.Identity{
			UID: group.NewChild(), Name: "w", CreateTime: now, UpdateTime: now, LastSeenTime: now,
			Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: "https://issuer.test", Subject: "s"}},
		}
		must(t, s.InsertIdentity(t.Context(), i))
		return i.UID
	}
	x := revocable{group: group, through: workload(), session: string(resource.NewRoot())}
	x.role = resource.Role{
		UID: group.NewChild(), Name: "r" + x.session[:8], Capabilities: resource.NewCapabilities(resource.GroupsList),
	}
	must(t, s.InsertRole(t.Context(), x.role))
	p := resource.IdentityProvider{
		UID: group.NewChild(), Name: "p" + x.session[:8], DefaultRole: x.role.UID, CreateTime: now, UpdateTime: now,
		OIDC: &resource.OIDC{Issuer: "https://issuer.test", ClientID: "c"},
	}
	p.Realm = p.OwnRealm()
	must(t, s.InsertProvider(t.Context(), p))
	x.provider = p.UID
	x.caller = Caller{
		Identity: workload(), Act: &resource.Upstream{Issuer: ourIssuer, Subject: string(x.through)},
		Session: x.session, Voucher: p.Voucher(), Issued: now,
	}
	must(t, s.StartSession(t.Context(), resource.Session{
		ID: x.session, Identity: x.caller.Identity, Voucher: p.Voucher(), CreateTime: now, UsedTime: now,
		ExpireTime: now.Add(time.Hour),
	}, []byte(x.session), now.Add(time.Hour)))
	b := resource.RoleBinding{UID: group.NewChild(), Identity: x.caller.Identity, Role: x.role.UID}
	_, err := s.InsertBindings(t.Context(), []resource.RoleBinding{b})
	must(t, err)
	x.binding, x.other = b.UID, bind(t, s, resource.NewRoot(), group)
	return x
}

// revocations are all changes that end the access of a caller, and two that do not.
var revocations = map[string]struct {
	change func(ctx context.Context, s *storetest.Store, x revocable) error
	want   error
}{
	"binding deleted": {func(ctx context.Context, s *storetest.Store, x revocable) error {
		return s.DeleteBinding(ctx, x.binding)
	}, fault.PermissionDenied},
	"role reduced": {func(ctx context.Context, s *storetest.Store, x revocable) error {
		reduced := x.role
		reduced.Capabilities = resource.NewCapabilities(resource.RolesList)
		_, err := s.UpdateRole(ctx, x.role, reduced)
		return err
	}, fault.PermissionDenied},
	"identity deleted": {func(ctx context.Context, s *storetest.Store, x revocable) error {
		return s.DeleteIdentity(ctx, x.caller.Identity)
	}, fault.Unauthenticated},
	"identity deleted through which it was assumed": {func(ctx context.Context, s *storetest.Store, x revocable) error {
		return s.DeleteIdentity(ctx, x.through)
	}, fault.Unauthenticated},
	"session ended": {func(ctx context.Context, s *storetest.Store, x revocable) error {
		ended, err := s.EndSession(ctx, x.session)
		if err == nil && !ended {
			err = errors.New("there was no session")
		}
		return err
	}, fault.Unauthenticated},
	"provider changed": {func(ctx context.Context, s *storetest.Store, x revocable) error {
		return changeProvider(ctx, s, x, func(p *resource.IdentityProvider) { p.OIDC.Issuer = "https://other.test" })
	}, fault.Unauthenticated},
	"provider described": {func(ctx context.Context, s *storetest.Store, x revocable) error {
		return changeProvider(ctx, s, x, func(p *resource.IdentityProvider) { p.Description = "a description" })
	}, nil},
	"another binding deleted": {func(ctx context.Context, s *storetest.Store, x revocable) error {
		return s.DeleteBinding(ctx, x.other)
	}, nil},
}

func changeProvider(
	ctx context.Context, s *storetest.Store, x revocable, change func(*resource.IdentityProvider),
) error {
	_, err := s.UpdateProvider(ctx, x.provider, func(
		p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping,
	) (func(resource.UID) bool, error) {
		change(p)
		return nil, nil
	})
	return err
}

// attempt authorizes a write of the caller with c, changes something through here, and then writes through there. It
// checks the result.
func (x revocable) attempt(t *testing.T, c *Checker, here, there *storetest.Store, name string) {
	t.Helper()
	r := revocations[name]
	ctx := WithCaller(t.Context(), x.caller)
	if err := c.Require(ctx, resource.GroupsList, x.group); err != nil {
		t.Fatal(err)
	}
	must(t, r.change(t.Context(), here, x))
	want := countGroups(t, here)
	if r.want == nil {
		want++
	}
	if err := write(ctx, there, x.group, "g"+x.session[:8]); !errors.Is(err, r.want) {
		t.Errorf("error = %v, want %v", err, r.want)
	}
	if n := countGroups(t, here); n != want {
		t.Errorf("there are %d groups, want %d", n, want)
	}
}

// TestWritesEndWithAccess checks that a write fails if the caller loses access after the authorization, and that it
// succeeds after other changes.
func TestWritesEndWithAccess(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		group, _ := organization(t, s, "acme")
		c := load(t, s)
		c.Issuer = ourIssuer
		for name := range revocations {
			t.Run(name, func(t *testing.T) { newRevocable(t, s, group).attempt(t, c, s, s, name) })
		}
	})
}

// TestPausedReplicaCannotCommit checks that a replica that has authorized a request, and then misses a revocation by
// another replica, cannot commit the write of the request.
func TestPausedReplicaCannotCommit(t *testing.T) {
	url := storetest.Postgres(t)
	here, there := storetest.Open(t, url), storetest.Open(t, url)
	group, _ := organization(t, here, "acme")
	c := load(t, there) // nothing calls the Run method of c, so it does not learn of changes
	c.Issuer = ourIssuer
	load(t, here).run(t)
	for name := range revocations {
		t.Run(name, func(t *testing.T) { newRevocable(t, here, group).attempt(t, c, here, there, name) })
	}
}

// TestAnotherHistoryInFlight checks that a replica that has authorized a request in one history of the database cannot
// commit its write in another history, in which the access never existed. The revisions of the new history are lower,
// so the database would not notice.
func TestAnotherHistoryInFlight(t *testing.T) {
	s := storetest.Open(t, storetest.Postgres(t))
	group, _ := organization(t, s, "acme")
	c := load(t, s)
	lost, kept := newRevocable(t, s, group), newRevocable(t, s, group)
	authorized := func(x revocable) context.Context {
		ctx := WithCaller(t.Context(), x.caller)
		if err := c.Require(ctx, resource.GroupsList, group); err != nil {
			t.Fatal(err)
		}
		return ctx
	}
	ofLost, ofKept := authorized(lost), authorized(kept)
	for _, text := range []string{
		`DELETE FROM role_bindings WHERE uid = '` + string(lost.binding) + `'`, `DELETE FROM grant_changes`,
		`ALTER TABLE revision RENAME TO old`, `CREATE TABLE revision (LIKE old INCLUDING ALL)`,
		`INSERT INTO revision SELECT id, rev - 1 FROM old`, `DROP TABLE old`,
	} {
		_, err := s.Exec(t.Context(), text)
		must(t, err)
	}
	dbtest.Renew(t, s.DB) // now connections lead to the new history, and the checker has the grants of the previous one
	before := countGroups(t, s)
	if err := write(ofLost, s, group, "lost"); !errors.Is(err, fault.PermissionDenied) {
		t.Errorf("a caller whose grant is lost: error = %v, want %v", err, fault.PermissionDenied)
	}
	if n := countGroups(t, s); n != before {
		t.Errorf("there are %d groups, want %d", n, before)
	}
	if err := write(ofKept, s, group, "kept"); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// TestRecheckIsRepeated checks that the result of Recheck follows changes, although it is remembered while nothing
// changes.
func TestRecheckIsRepeated(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		group, _ := organization(t, s, "acme")
		c := load(t, s)
		x := newRevocable(t, s, group)
		r := &request{caller: x.caller}
		ctx := context.WithValue(t.Context(), callerKey{}, r)
		must(t, c.Require(ctx, resource.GroupsList, group))
		for range 3 {
			must(t, c.Require(ctx, resource.GroupsList, group.NewChild()))
			must(t, c.Require(ctx, resource.GroupsList, group))
			_, err := r.Recheck()
			must(t, err)
		}
		if len(r.decisions) != 4 {
			t.Errorf("%d decisions are recorded, want 4", len(r.decisions))
		}
		must(t, s.DeleteBinding(t.Context(), x.binding))
		if _, err := r.Recheck(); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("error = %v, want %v", err, fault.PermissionDenied)
		}
	})
}
