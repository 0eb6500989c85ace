package store_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dump"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestUpgrade opens a database of the previous release. It checks that an account keeps
// its passkey and its recovery code, and that another organization can have an account
// with the same address.
func TestUpgrade(t *testing.T) {
	previous := previousSchema(t)
	storetest.EachEmpty(t, func(t *testing.T, url string) {
		org, other := resource.NewRoot(), resource.NewRoot()
		a := iamtest.NewAccount(org, "ann@example.test")
		old := store.MakeOldDatabase(t, url, previous)
		for name, uid := range map[string]resource.UID{"org": org, "other": other} {
			old.Exec(`INSERT INTO groups (seg, uid, parent, a1, a2, a3, name, description, verified, kind, create_ms,
					update_ms)
				VALUES ($1, $2, $3, $4, $5, $6, $7, '', $8, 0, 0, 0)`, append(store.Place(uid), name, false)...)
		}
		old.Exec(`INSERT INTO accounts (seg, uid, parent, a1, a2, a3, name, display, identity, password, totp, totp_step,
				link, link_ms, link_factors, used_ms, create_ms, update_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, 'Ann', $8, 'hash', $9, 7, $9, 0, $10, 5, 3, 4)`,
			append(store.Place(a.UID), a.Email, string(a.Identity), []byte{1}, false)...)
		seg := store.Place(a.UID)[0]
		old.Exec(`INSERT INTO passkeys (id, account, name, detail, create_ms, used_ms) VALUES ($1, $2, 'p', '{}', 1, 1)`,
			[]byte{9}, seg)
		old.Exec(`INSERT INTO recovery_codes (account, digest) VALUES ($1, $2)`, seg, []byte{8})
		old.Close()

		s := storetest.Open(t, url)
		got, err := s.AccountIn(t.Context(), org, a.Email)
		testkit.Must(t, err)
		if got.UID != a.UID || got.Password != "hash" || len(got.Passkeys) != 1 || got.RecoveryCodes != 1 ||
			got.TOTPStep != 7 {
			t.Errorf("after the upgrade: %+v", got)
		}
		testkit.WantFault(t, s.InsertAccount(t.Context(), iamtest.NewAccount(org, a.Email), iamtest.IdentityOf(a)),
			fault.AlreadyExists,
			fault.Resource{Type: "account", Name: a.Email})
		iamtest.AddAccount(t, s.People, other, a.Email)
	})
}

// TestUnreleasedSchema checks that databases and back-ups of versions before v0.1.0 are
// refused with advice, and are not changed.
func TestUnreleasedSchema(t *testing.T) {
	storetest.EachEmpty(t, func(t *testing.T, url string) {
		driver := "sqlite"
		if strings.Contains(url, "://") {
			driver = "pgx"
		}
		db, err := sql.Open(driver, url)
		testkit.Must(t, err)
		defer db.Close()
		for _, text := range []string{
			`CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY, version_id BIGINT NOT NULL, is_applied BOOLEAN NOT NULL,
				tstamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP)`,
			`INSERT INTO goose_db_version (id, version_id, is_applied) VALUES (1, 0, TRUE), (2, 45, TRUE)`,
		} {
			_, err := db.ExecContext(t.Context(), text)
			testkit.Must(t, err)
		}
		s, err := store.Open(t.Context(), url)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "v0.1.0") || errors.Is(err, fault.Unavailable) {
			t.Errorf("error = %v, want advice that names v0.1.0", err)
		}
		var applied int
		testkit.Must(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM goose_db_version`).Scan(&applied))
		if applied != 2 {
			t.Errorf("%d migrations are recorded, want 2", applied)
		}
		if _, err := db.ExecContext(t.Context(), `SELECT 1 FROM groups`); err == nil {
			t.Error("the schema was created")
		}
		err = dump.RequireEmpty(t.Context(), url, 45)
		if !errors.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), "v0.1.0") {
			t.Errorf("restore of a back-up: error = %v, want FailedPrecondition that names v0.1.0", err)
		}
	})
}
