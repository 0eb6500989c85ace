package scim_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// directoryEndings are the ways in which an administrator ends the access of a directory.
var directoryEndings = map[string]func(ctx context.Context, w *world) error{
	"the token is revoked": func(ctx context.Context, w *world) error {
		_, err := w.RevokeToken(ctx, w.provider.UID)
		return err
	},
	"the directory is disabled": func(ctx context.Context, w *world) error {
		d, err := w.Directory(ctx, w.provider.UID)
		if err == nil {
			_, err = w.SetEnabled(ctx, w.provider.UID, false, d.ETag())
		}
		return err
	},
	"the operator trusts the provider": func(ctx context.Context, w *world) error {
		_, err := w.store.UpdateProvider(ctx, w.provider.UID, func(
			p *resource.IdentityProvider, _ []resource.ExternalGroupRoleMapping,
		) (func(resource.UID) bool, error) {
			p.Trusted = true
			return nil, nil
		})
		return err
	},
}

// TestAttackDirectoryInFlight: an administrator ends the access of a directory while it creates a user. If the change
// has returned before the user is committed, the directory creates no user. The change begins at every moment at which
// the request reads the clock. On SQLite, nothing else changes during a transaction.
func TestAttackDirectoryInFlight(t *testing.T) {
	for name, end := range directoryEndings {
		t.Run(name, func(t *testing.T) {
			for moment := int64(0); ; moment++ {
				w := newWorld(t, dbtest.Postgres(t))
				var left atomic.Int64 // how often the clock is read before the change; negative after it
				left.Store(moment)
				ended, returned := make(chan error, 1), false
				began := func() {
					go func() { ended <- end(context.WithoutCancel(w.owner), w) }()
					testkit.Until(t, func() bool {
						var waiting int
						testkit.Must(t, w.store.Row(t.Context(), `SELECT count(*) FROM pg_stat_activity
							WHERE datname = current_database() AND wait_event_type = 'Lock'`, nil, &waiting))
						return waiting > 0 || len(ended) > 0
					})
					returned = len(ended) > 0
				}
				attacked := scim.New(w.store.DB, w.checker, scim.Config{
					BaseURL: "https://here.test", Log: slog.New(slog.DiscardHandler), Now: func() time.Time {
						if left.Load() >= 0 && left.Add(-1) == -1 {
							began()
						}
						return w.now
					},
				})
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, attacked.Endpoint(w.provider.UID)+"/Users",
					strings.NewReader(`{"userName":"ben","externalId":"ben"}`))
				r.Header.Set("Authorization", "Bearer "+w.token)
				r.Header.Set("Content-Type", "application/scim+json")
				answer := httptest.NewRecorder()
				attacked.Handler().ServeHTTP(answer, r)
				body, _ := io.ReadAll(answer.Result().Body)
				if left.Swap(-1) >= 0 { // the request has ended before this moment
					if answer.Code != http.StatusCreated || moment < 3 {
						t.Errorf("moment %d: without a change: %d %s", moment, answer.Code, body)
					}
					return
				}
				testkit.Must(t, <-ended)
				var users int
				testkit.Must(t, w.store.Row(t.Context(),
					`SELECT count(*) FROM scim_users AS u JOIN identity_providers AS p ON p.seg = u.provider WHERE p.uid = $1`,
					[]any{string(w.provider.UID)}, &users))
				if fmt.Sprint(answer.Code == http.StatusCreated) != fmt.Sprint(users > 0) {
					t.Errorf("moment %d: %d users after the status %d", moment, users, answer.Code)
				}
				if returned && users > 0 {
					t.Errorf("moment %d: the directory created a user after its access had ended", moment)
				}
			}
		})
	}
}
