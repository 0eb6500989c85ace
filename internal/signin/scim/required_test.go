package scim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// update changes the settings of the world's directory.
func (w *world) update(change scim.Settings) error {
	w.t.Helper()
	d, err := w.Directory(w.owner, w.provider.UID)
	testkit.Must(w.t, err)
	_, err = w.Update(w.owner, w.provider.UID, change, d.ETag())
	return err
}

// session returns a session of a person that the world's provider vouches for.
func (w *world) session(person resource.UID, id string) resource.Session {
	n := iamtest.NewSession(person, id)
	n.Voucher = w.provider.Voucher()
	n.ExpireTime = w.store.Time().Add(time.Hour)
	return n
}

// start starts a session.
func (w *world) start(n resource.Session) error {
	return w.store.StartSession(w.t.Context(), n, []byte(n.ID), n.ExpireTime)
}

// TestRequired checks that only active users of a required directory can sign in, that they need no invite, and that
// everybody else loses their sessions and tokens when the requirement begins.
func TestRequired(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		stranger, err := w.signIn("stranger")
		testkit.Must(t, err)
		id := w.add("ben")
		ben, err := w.signIn("x-ben")
		testkit.Must(t, err)
		for _, n := range []resource.Session{w.session(stranger.UID, "stranger"), w.session(ben.UID, "ben")} {
			testkit.Must(t, w.start(n))
		}
		caller := authz.Caller{
			Identity: stranger.UID, Issued: time.Now().Truncate(time.Second), Voucher: w.provider.Voucher(),
		}
		other := w.replica()
		testkit.Must(t, testkit.Ignore(other.Admit(ctx, caller)))
		testkit.Must(t, w.update(scim.Settings{Required: new(true)}))

		for name, c := range map[string]*authz.Checker{"this replica": w.checker, "another replica": other} {
			if _, err := c.Admit(ctx, caller); !errors.Is(err, fault.Unauthenticated) {
				t.Errorf("%s admits a token from before the requirement: %v", name, err)
			}
		}
		if _, err := w.store.Session(ctx, "stranger"); !errors.Is(err, fault.NotFound) {
			t.Errorf("the session from before the requirement: %v", err)
		}
		if _, err := w.store.Session(ctx, "ben"); err != nil {
			t.Errorf("the session of a user of the directory: %v", err)
		}
		refused := func(when, subject string) {
			t.Helper()
			_, err := w.signIn(subject)
			if !errors.Is(err, fault.PermissionDenied) || !strings.Contains(fmt.Sprint(err), "directory") {
				t.Errorf("%s: the sign-in of %s: %v", when, subject, err)
			}
		}
		refused("required", "stranger")
		refused("required", "somebody new")
		if err := w.start(w.session(stranger.UID, "again")); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("a session without a user: %v", err)
		}
		testkit.Must(t, w.start(w.session(ben.UID, "ben again")))

		w.add("ann")
		_, err = admission.New(w.store.DB).SignIn(ctx, resource.SignIn{Issuer: w.provider.OIDC.Issuer, Subject: "x-ann",
			Realm: w.provider.Realm, Voucher: w.provider.Voucher()})
		testkit.Must(t, err) // without an invite, and without registration

		w.want(204, "DELETE /Users/"+id, "")
		refused("deleted", "x-ben")
		d, err := w.Directory(w.owner, w.provider.UID)
		testkit.Must(t, err)
		testkit.Must(t, testkit.Ignore(w.SetEnabled(w.owner, w.provider.UID, false, d.ETag())))
		refused("the directory is disabled", "stranger")
		if _, err := w.signIn("x-ann"); err != nil {
			t.Errorf("a user of a disabled directory: %v", err)
		}
		testkit.Must(t, w.update(scim.Settings{Required: new(false)}))
		if _, err := w.signIn("stranger"); err != nil {
			t.Errorf("without the requirement: %v", err)
		}
		if err := w.update(scim.Settings{Required: new(true)}); !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("a requirement of a disabled directory: %v", err)
		}
	})
}

// TestRequiredLocksNobodyOut checks that nobody can require a directory that would lock out the caller or the last
// owner, and that strangers cannot change the requirement.
func TestRequiredLocksNobodyOut(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		realm := w.provider.Realm
		ben, ann := w.person(realm, "x-ben"), w.person(realm, "x-ann")
		for _, person := range []resource.UID{ben, ann} {
			iamtest.AddBinding(t, w.store.IAMStore, w.org.UID, person, resource.OwnerRole)
		}
		outside := w.owner
		w.owner = authz.WithCaller(t.Context(), authz.Caller{Identity: ben, Issued: time.Now()})
		if err := w.update(scim.Settings{Required: new(true)}); !errors.Is(err, fault.FailedPrecondition) {
			t.Errorf("the caller is not in the directory: %v", err)
		}
		w.add("ben")
		w.owner = outside
		if _, err := w.store.Exec(t.Context(), `DELETE FROM role_bindings WHERE identity NOT IN ($1, $2)`,
			string(ben), string(ann)); err != nil {
			t.Fatal(err)
		}
		w.owner = authz.WithCaller(t.Context(), authz.Caller{Identity: ben, Issued: time.Now()})
		id := w.want(200, `GET /Users?filter=userName eq "ben"`, "").body["Resources"].([]any)[0].(map[string]any)["id"]
		testkit.Must(t, w.update(scim.Settings{Required: new(true)}))
		testkit.Must(t, w.update(scim.Settings{Required: new(false)}))
		w.want(200, fmt.Sprintf("PATCH /Users/%v", id), `{"Operations":[{"op":"remove","path":"externalId"}]}`)
		w.owner = authz.WithCaller(t.Context(), authz.Caller{Identity: w.person("https://people.test", "operator"),
			Issued: time.Now()})
		_, err := w.Update(w.owner, w.provider.UID, scim.Settings{Required: new(true)}, "5")
		if !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("a stranger: %v", err)
		}
	})
}

// TestRequiredInFlight starts a session while the directory becomes required: a person who is not in it has no session
// afterwards.
func TestRequiredInFlight(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		stranger, err := w.signIn("stranger")
		testkit.Must(t, err)
		for i := range 10 {
			id := fmt.Sprint("session", i)
			signedIn, required := dbtest.AtOnce(
				func() error {
					if _, err := w.signIn("stranger"); err != nil {
						return err
					}
					return w.start(w.session(stranger.UID, id))
				},
				func() error { return w.update(scim.Settings{Required: new(true)}) },
			)
			testkit.Must(t, required)
			if signedIn != nil && !errors.Is(signedIn, fault.PermissionDenied) {
				t.Fatal(signedIn)
			}
			if _, err := w.store.Session(t.Context(), id); !errors.Is(err, fault.NotFound) {
				t.Fatalf("round %d: a session outlives the requirement: %v, the sign-in: %v", i, err, signedIn)
			}
			testkit.Must(t, w.update(scim.Settings{Required: new(false)}))
		}
	})
}

// TestTrustEndsNoRequirement checks that the operator cannot trust a provider that requires its directory, because the
// exchange of a trusted provider's tokens does not ask the directory.
func TestTrustEndsNoRequirement(t *testing.T) {
	eachWorld(t, func(t *testing.T, w *world) {
		trust := func() error { return directoryEndings["the operator trusts the provider"](t.Context(), w) }
		testkit.Must(t, w.update(scim.Settings{Required: new(true)}))
		for _, enabled := range []bool{true, false} {
			if err := trust(); !errors.Is(err, fault.FailedPrecondition) {
				t.Errorf("with the directory enabled %t: %v", enabled, err)
			}
			d, err := w.Directory(w.owner, w.provider.UID)
			testkit.Must(t, err)
			testkit.Must(t, testkit.Ignore(w.SetEnabled(w.owner, w.provider.UID, false, d.ETag())))
		}
		testkit.Must(t, w.update(scim.Settings{Required: new(false)}))
		testkit.Must(t, trust())
	})
}
