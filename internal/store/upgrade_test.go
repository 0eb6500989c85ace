package store_test

import (
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
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
		old.Exec(`INSERT INTO passkeys (id, account, name, detail, create_ms, used_ms) VALUES ($1, $2, 'p', '{}', 1, 1)`,
			[]byte{9}, seg)
		old.Exec(`INSERT INTO recovery_codes (account, digest) VALUES ($1, $2)`, seg, []byte{8})
		old.Close()

		s := storetest.Open(t, url)
		got, err := s.AccountIn(t.Context(), org, a.Email)
		must(t, err)
		if got.UID != a.UID || got.Password != "hash" || len(got.Passkeys) != 1 || got.RecoveryCodes != 1 ||
			got.TOTPStep != 7 {
			t.Errorf("after the upgrade: %+v", got)
		}
		wantFault(t, s.InsertAccount(t.Context(), newAccount(org, a.Email), identityOf(a)), fault.AlreadyExists,
			fault.Resource{Type: "account", Name: a.Email})
		addAccount(t, s, other, a.Email)
	})
}

// TestUpgradePeople opens a database in which people were known by issuer and
// subject in all organizations. Whoever came through one provider alone, and holds
// nothing outside of its group, stays who they are there. Nobody else's word opens
// what an old identity holds.
func TestUpgradePeople(t *testing.T) {
	const beforeRealms = 12
	const issuer = "https://issuer.test"
	storetest.EachEmpty(t, func(t *testing.T, url string) {
		a, b := resource.NewRoot(), resource.NewRoot()
		folder := a.NewChild()
		old := store.MakeOldDatabase(t, url, beforeRealms)
		for _, g := range []struct {
			uid  resource.UID
			name string
		}{{a, "a"}, {b, "b"}, {folder, "folder"}} {
			old.Exec(`INSERT INTO groups (seg, uid, parent, a1, a2, a3, name, description, verified, kind, create_ms, update_ms)
				VALUES ($1, $2, $3, $4, $5, $6, $7, '', $8, 0, 0, 0)`, append(store.Place(g.uid), g.name, false)...)
		}
		role := a.NewChild()
		old.Exec(`INSERT INTO roles (seg, uid, parent, a1, a2, a3, name, description, capabilities, create_ms, update_ms)
			VALUES ($1, $2, $3, $4, $5, $6, 'r', '', '[]', 0, 0)`, store.Place(role)...)
		provider := func(group resource.UID) resource.UID {
			uid := group.NewChild()
			old.Exec(`INSERT INTO identity_providers
				(seg, uid, parent, a1, a2, a3, name, description, default_role, detail, secret, create_ms, update_ms)
				VALUES ($1, $2, $3, $4, $5, $6, 'p', '', $7, '{"issuer":"https://issuer.test","clientId":"c"}', $8, 0, 0)`,
				append(store.Place(uid), store.Place(role)[0], []byte{})...)
			return uid
		}
		ofA, ofB, ofFolder := provider(a), provider(b), provider(folder)
		person := func(subject string, holds []resource.UID, through ...resource.UID) resource.UID {
			uid := resource.UserUID(issuer, subject)
			old.Exec(`INSERT INTO identities
				(seg, uid, parent, a1, a2, a3, name, description, email, email_unverified, company, relationship, detail,
					metadata, issuer, subject, last_seen_ms, create_ms, update_ms)
				VALUES ($1, $2, $3, $4, $5, $6, 'n', '', '', '', '', 1, $7, '', $8, $9, 0, 0, 0)`,
				append(store.Place(uid), `{"claimMatch":{"issuer":"`+issuer+`","subject":"`+subject+`"}}`, issuer, subject)...)
			for _, group := range holds {
				old.Exec(`INSERT INTO role_bindings (seg, uid, parent, a1, a2, a3, identity, role, create_ms)
					VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)`,
					append(store.Place(group.NewChild()), string(uid), store.Place(role)[0])...)
			}
			for _, p := range through {
				old.Exec(`INSERT INTO arrivals (identity, provider, first_ms, last_ms) VALUES ($1, $2, 0, 0)`, string(uid),
					store.Place(p)[0])
			}
			old.Exec(`INSERT INTO sessions (id, identity, act, email, agent, address, create_ms, used_ms, expire_ms)
				VALUES ($1, $2, 'null', '', '', '', 0, 0, 99999999999999)`,
				subject, string(uid))
			return uid
		}
		people := map[string]resource.UID{
			"simple":   person("simple", []resource.UID{a, folder}, ofA),
			"guest":    person("guest", []resource.UID{a, b}, ofA),
			"attacked": person("attacked", []resource.UID{a}, ofB),
			"folder":   person("folder", []resource.UID{a}, ofFolder),
			"both":     person("both", []resource.UID{a, b}, ofA, ofB),
			"operator": person("operator", []resource.UID{a}),
		}
		old.Close()

		s := storetest.Open(t, url)
		for _, p := range []resource.UID{ofA, ofB, ofFolder} {
			idp, err := s.Provider(t.Context(), p)
			must(t, err)
			for subject, uid := range people {
				got, err := s.Person(t.Context(), idp.Realm, subject)
				same := err == nil && got.UID == uid
				if want := subject == "simple" && p == ofA; same != want {
					t.Errorf("%s through %s is who they were: %t, want %t", subject, p, same, want)
				}
			}
		}
		for subject, uid := range people {
			i, err := s.Identity(t.Context(), uid)
			if must(t, err); i.OfInstallation() == (subject == "simple") {
				t.Errorf("%s is of the realm %s", subject, i.Realm)
			}
			_, err = s.Session(t.Context(), subject)
			if goesOn := err == nil; goesOn != (subject == "simple" || subject == "operator") {
				t.Errorf("the session of %s: %v", subject, err)
			}
		}
	})
}
