package store_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// TestUpgradeAccounts opens a database in which an address had one account in
// the whole installation: accounts, their passkeys and their recovery codes stay,
// and another organization can have an account of the same address.
func TestUpgradeAccounts(t *testing.T) {
	const beforeAccounts = 12 // the last migration before accounts were unique within an organization
	storetest.EachEmpty(t, func(t *testing.T, url string) {
		org, other := resource.NewRoot(), resource.NewRoot()
		a := newAccount(org, "ann@example.test")
		old := store.MakeOldDatabase(t, url, beforeAccounts)
		for name, uid := range map[string]resource.UID{"org": org, "other": other} {
			old.Exec(`INSERT INTO groups (seg, uid, parent, a1, a2, a3, name, description, verified, kind, create_ms, update_ms)
				VALUES ($1, $2, $3, $4, $5, $6, $7, '', $8, 0, 0, 0)`, append(store.Place(uid), name, false)...)
		}
		old.Exec(`INSERT INTO accounts (seg, uid, parent, a1, a2, a3, name, display, identity, password, totp, totp_step,
				link, link_ms, link_factors, used_ms, create_ms, update_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, 'Ann', $8, 'hash', $9, 7, $9, 0, $10, 5, 3, 4)`,
			append(store.Place(a.UID), a.Email, string(a.Identity), []byte{1}, false)...)
		seg := store.Place(a.UID)[0]
		old.Exec(`INSERT INTO passkeys (id, account, name, detail, create_ms, used_ms) VALUES ($1, $2, 'p', '{}', 1, 1)`, []byte{9}, seg)
		old.Exec(`INSERT INTO recovery_codes (account, digest) VALUES ($1, $2)`, seg, []byte{8})
		old.Close()

		s := storetest.Open(t, url)
		got, err := s.AccountIn(t.Context(), org, a.Email)
		must(t, err)
		if got.UID != a.UID || got.Password != "hash" || len(got.Passkeys) != 1 || got.RecoveryCodes != 1 || got.TOTPStep != 7 {
			t.Errorf("after the upgrade: %+v", got)
		}
		wantFault(t, s.InsertAccount(t.Context(), newAccount(org, a.Email), identityOf(a)), fault.AlreadyExists, fault.Resource{Type: "account", Name: a.Email})
		addAccount(t, s, other, a.Email)
	})
}
