package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// endings are the ways in which an administrator ends the roles that a sign-in gives.
var endings = map[string]func(context.Context, *iamtest.Store, resource.IdentityProvider, resource.UID) error{
	"the mapping is deleted": func(
		ctx context.Context, s *iamtest.Store, _ resource.IdentityProvider, mapping resource.UID,
	) error {
		return s.DeleteMapping(ctx, mapping)
	},
	"the provider is disabled": func(
		ctx context.Context, s *iamtest.Store, p resource.IdentityProvider, _ resource.UID,
	) error {
		return changeProvider(ctx, s, p.UID, func(p *resource.IdentityProvider) { p.Disabled = true })
	},
	"the provider has another client": func(
		ctx context.Context, s *iamtest.Store, p resource.IdentityProvider, _ resource.UID,
	) error {
		return changeProvider(ctx, s, p.UID, func(p *resource.IdentityProvider) { p.OIDC.ClientID = "other" })
	},
}

func changeProvider(
	ctx context.Context, s *iamtest.Store, uid resource.UID, change func(*resource.IdentityProvider),
) error {
	_, err := s.UpdateProvider(ctx, uid, func(
		p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping,
	) (func(resource.UID) bool, error) {
		change(p)
		return nil, nil
	})
	return err
}

// TestAttackSignInInFlight: an administrator ends the role that a mapping gives while a person signs in. If the change
// has returned before the sign-in is committed, the sign-in does not give the role. The change begins at every moment
// at which the transaction of the sign-in reads the clock. On SQLite, nothing else changes during a transaction.
func TestAttackSignInInFlight(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			s := iamtest.Open(t, dbtest.Postgres(t))
			testkit.Must(t, s.SetManagedRoles(t.Context(), authz.ManagedRoles()))
			org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
			var left atomic.Int64 // how often the clock is read before the change; negative after it
			left.Store(-1)
			var began func() // begins the change, and returns when it waits or has returned
			now := s.Now
			s.Now = func() time.Time {
				if left.Load() >= 0 && left.Add(-1) == -1 {
					began()
				}
				return now()
			}
			for moment := int64(0); ; moment++ {
				p := iamtest.AddProvider(t, s.IAMStore, org, resource.ManagedRoleUID("viewer"), fmt.Sprint("idp", moment))
				m := iamtest.AddMapping(t, s.IAMStore, p.UID, resource.OwnerRole, "admins")
				ended := make(chan error, 1)
				returned := false // whether the change returned before the sign-in was committed
				began = func() {
					go func() { ended <- end(context.WithoutCancel(t.Context()), s, p, m.UID) }()
					testkit.Until(t, func() bool {
						var waiting int
						testkit.Must(t, s.Row(t.Context(), `SELECT count(*) FROM pg_stat_activity
							WHERE datname = current_database() AND wait_event_type = 'Lock'`, nil, &waiting))
						return waiting > 0 || len(ended) > 0
					})
					returned = len(ended) > 0
				}
				left.Store(moment)
				l, err := admission.New(s.DB).SignIn(t.Context(), resource.SignIn{
					Issuer: "https://issuer.test", Subject: "ben", Realm: p.Realm, Voucher: p.Voucher(), Name: "ben",
					Register: true, UpdateRoles: true, Groups: []string{"admins"},
				})
				if left.Swap(-1) >= 0 { // the sign-in has ended before this moment
					testkit.Must(t, err)
					if moment < 3 {
						t.Errorf("the sign-in reads the clock only %d times", moment)
					}
					return
				}
				testkit.Must(t, <-ended)
				if err != nil && !errors.Is(err, fault.Aborted) {
					t.Errorf("moment %d: %v", moment, err)
				}
				var held int
				testkit.Must(t, s.Row(t.Context(), `SELECT count(*) FROM role_bindings WHERE identity = $1 AND role = $2`,
					[]any{string(l.Identity.UID), store.Segment(resource.OwnerRole)}, &held))
				if returned && held > 0 {
					t.Errorf("moment %d: the person got the role after the change had returned", moment)
				}
			}
		})
	}
}
