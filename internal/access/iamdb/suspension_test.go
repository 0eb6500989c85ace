package iamdb_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// suspend deactivates a person on behalf of a provider.
func suspend(ctx context.Context, s *iamtest.Store, person, provider resource.UID) error {
	return s.Write(ctx, func(tx *store.Tx) error {
		_, err := iamdb.In(tx).Suspend(ctx, person, provider)
		return err
	})
}

// addPerson adds a person with a subject.
func addPerson(t *testing.T, s *iamtest.Store, subject string) resource.Identity {
	t.Helper()
	i := resource.Identity{
		UID: resource.UserUID("realm", subject), Realm: "realm", Name: subject,
		CreateTime: s.Time(), UpdateTime: s.Time(), LastSeenTime: s.Time(),
		Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: "https://i.test", Subject: subject}},
	}
	testkit.Must(t, s.InsertIdentity(t.Context(), i))
	return i
}

// TestAttackSessionDuringDeactivation checks that a session that somebody starts while the directory deactivates the
// person has ended afterwards, so that it does not come back when the directory activates the person again. The session
// is written, but not yet committed, when the deactivation begins.
func TestAttackSessionDuringDeactivation(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		ctx := t.Context()
		testkit.Must(t, s.SetManagedRoles(ctx, authz.ManagedRoles()))
		org := iamtest.AddGroup(t, s.IAMStore, "", "acme")
		provider := iamtest.AddProvider(t, s.IAMStore, org.UID, resource.ManagedRoleUID("viewer"), "idp")
		ben := addPerson(t, s, "ben")
		session := iamtest.NewSession(ben.UID, "session")
		session.ExpireTime = s.Time().Add(time.Hour)
		suspended := make(chan error, 1)
		testkit.Must(t, s.StartBrowserSession(ctx, session, []byte("digest"), resource.Activity{}, func(*store.Tx) error {
			go func() { suspended <- suspend(ctx, s, ben.UID, provider.UID) }()
			if !s.Replicated() {
				return nil // SQLite has one writer
			}
			testkit.Until(t, func() bool { // the deactivation waits or has ended
				var n int
				testkit.Must(t, s.Row(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
					AND wait_event_type = 'Lock'`, nil, &n))
				return n > 0 || len(suspended) > 0
			})
			return nil
		}))
		testkit.Must(t, <-suspended)
		if left, err := s.Sessions(ctx, ben.UID); err != nil || len(left) > 0 {
			t.Errorf("%d sessions are left: %v", len(left), err)
		}
	})
}

// TestPullTokensOfDeactivated checks that a deactivation deletes the pull tokens that the person has created, and no
// others, also if a pull token is the last owner of an organization.
func TestPullTokensOfDeactivated(t *testing.T) {
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		ctx := t.Context()
		testkit.Must(t, s.SetManagedRoles(ctx, authz.ManagedRoles()))
		org := iamtest.AddGroup(t, s.IAMStore, "", "acme")
		provider := iamtest.AddProvider(t, s.IAMStore, org.UID, resource.ManagedRoleUID("viewer"), "idp")
		ann, ben := addPerson(t, s, "ann"), addPerson(t, s, "ben")
		pullToken := func(maker resource.UID) resource.Identity {
			i := resource.Identity{UID: org.UID.NewChild(), Name: "laptop", Maker: maker,
				CreateTime: s.Time(), UpdateTime: s.Time(), LastSeenTime: s.Time(),
				Relationship: resource.Relationship{StaticKeys: &resource.StaticKeys{
					Issuer: "https://here.test/pull-tokens", Subject: "laptop",
				}}}
			testkit.Must(t, s.InsertIdentity(ctx, i))
			return i
		}
		ofAnn, ofBen, owning, unknown := pullToken(ann.UID), pullToken(ben.UID), pullToken(ben.UID), pullToken("")
		iamtest.AddBinding(t, s.IAMStore, org.UID, owning.UID, resource.OwnerRole)
		iamtest.AddBinding(t, s.IAMStore, org.UID, ben.UID, resource.OwnerRole)
		testkit.Must(t, suspend(ctx, s, ben.UID, provider.UID))
		for _, i := range []resource.Identity{ofAnn, unknown} {
			if _, err := s.Identity(ctx, i.UID); err != nil {
				t.Errorf("a pull token of somebody else: %v", err)
			}
		}
		for _, i := range []resource.Identity{ofBen, owning} {
			if _, err := s.Identity(ctx, i.UID); !errors.Is(err, fault.NotFound) {
				t.Errorf("a pull token of the deactivated person: %v", err)
			}
		}
		var ownerless int
		testkit.Must(t, s.Row(ctx, `SELECT count(*) FROM outbox WHERE type = $1`, []any{string(resource.GroupOwnerless)},
			&ownerless))
		if ownerless != 1 {
			t.Errorf("%d events report that the organization has no owner", ownerless)
		}
		late := ofBen
		late.UID = org.UID.NewChild()
		if err := s.InsertIdentity(ctx, late); !errors.Is(err, fault.PermissionDenied) {
			t.Errorf("a new pull token of the deactivated person: %v", err)
		}
	})
}
