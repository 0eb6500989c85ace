package signindb_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// accountPromises contains a test for each promise in the comments about signing in.
var accountPromises = map[string]func(t *testing.T, s *iamtest.Store){
	"an account keeps what it was given, and is found by all its names": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		a := iamtest.NewAccount(org.UID, "ann@example.test")
		a.Password, a.TOTP, a.TOTPStep = "hash", []byte{0, 255}, 7
		a.Link = resource.Link{Digest: []byte("link"), Expires: s.Now().Add(time.Hour).UTC().Truncate(time.Millisecond),
			Factors: true}
		testkit.Must(t, s.InsertAccount(t.Context(), a, iamtest.IdentityOf(a)))
		for name, find := range map[string]func() (resource.Account, error){
			"uid": func() (resource.Account, error) {
				return s.Account(t.Context(), a.UID)
			}, "identity": func() (resource.Account, error) { return s.AccountOf(t.Context(), a.Identity) },
			"address": func() (resource.Account, error) {
				return s.AccountIn(t.Context(), org.UID, a.Email)
			}, "link": func() (resource.Account, error) { return s.AccountLinked(t.Context(), []byte("link")) },
		} {
			got, err := find()
			if diff := cmp.Diff(a, got); err != nil || diff != "" {
				t.Errorf("by %s: %v\n%s", name, err, diff)
			}
		}
		dbtest.WantExact(t, s.DB)
	},
	"an address has one account in an organization": func(t *testing.T, s *iamtest.Store) {
		org, other := iamtest.AddGroup(t, s.IAMStore, "", "org"), iamtest.AddGroup(t, s.IAMStore, "", "other")
		iamtest.AddAccount(t, s.People, org.UID, "ann@example.test")
		b := iamtest.NewAccount(org.UID, "ann@example.test")
		testkit.WantFault(t, s.InsertAccount(t.Context(), b, iamtest.IdentityOf(b)), fault.AlreadyExists,
			fault.Resource{Type: "account", Name: "ann@example.test"})
		b = iamtest.AddAccount(t, s.People, other.UID, "ann@example.test")
		got, err := s.AccountIn(t.Context(), other.UID, "ann@example.test")
		if err != nil || got.UID != b.UID {
			t.Errorf("in the other organization: %+v, %v", got, err)
		}
		_, err = s.AccountIn(t.Context(), iamtest.AddGroup(t, s.IAMStore, "", "third").UID, "ann@example.test")
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "account", Name: "ann@example.test"})
	},
	"a few accounts of an address are tried: of the organization, then the oldest, with a password": func(t *testing.T,
		s *iamtest.Store) {
		var orgs, all []resource.UID
		for i := range 5 {
			org := iamtest.AddGroup(t, s.IAMStore, "", fmt.Sprint("org", i))
			a := iamtest.NewAccount(org.UID, "ann@example.test")
			a.CreateTime, a.Password = iamtest.Epoch.Add(time.Duration(i)*time.Hour), map[bool]string{true: "hash"}[i != 1]
			testkit.Must(t, s.InsertAccount(t.Context(), a, iamtest.IdentityOf(a)))
			orgs, all = append(orgs, org.UID), append(all, a.UID)
		}
		for name, tt := range map[string]struct {
			org   resource.UID
			email string
			want  []resource.UID
		}{
			"of no organization":          {"", "ann@example.test", []resource.UID{all[0], all[2], all[3]}},
			"of the youngest":             {orgs[4], "ann@example.test", []resource.UID{all[4], all[0], all[2]}},
			"of the oldest":               {orgs[0], "ann@example.test", []resource.UID{all[0], all[2], all[3]}},
			"of one that has no password": {orgs[1], "ann@example.test", []resource.UID{all[0], all[2], all[3]}},
			"of an address without any":   {orgs[0], "bob@example.test", nil},
		} {
			got, err := s.AccountsToTry(t.Context(), tt.org, tt.email, 3)
			testkit.Must(t, err)
			var uids []resource.UID
			for _, a := range got {
				uids = append(uids, a.UID)
			}
			if !slices.Equal(uids, tt.want) {
				t.Errorf("%s: %v, want %v of %v", name, uids, tt.want, all)
			}
		}
	},
	"an account goes with its identity, and an organization not while it has one": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		a := iamtest.AddAccount(t, s.People, org.UID, "ann@example.test")
		testkit.Must(t, s.AddPasskey(t.Context(), a.UID, resource.Passkey{ID: []byte{1}, Name: "p", Detail: []byte("{}")}))
		testkit.WantFault(t, s.DeleteGroup(t.Context(), org.UID, ""), fault.FailedPrecondition, fault.Resource{})
		testkit.Must(t, s.DeleteIdentity(t.Context(), a.Identity))
		_, err := s.Account(t.Context(), a.UID)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		_, err = s.AccountWithPasskey(t.Context(), []byte{1})
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		b := iamtest.AddAccount(t, s.People, org.UID, "bob@example.test")
		testkit.Must(t, s.DeleteAccount(t.Context(), b.UID))
		_, err = s.Identity(t.Context(), b.Identity)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		testkit.Must(t, s.DeleteGroup(t.Context(), org.UID, ""))
		dbtest.WantExact(t, s.DB)
	},
	"a link is followed once, in time, and ends sessions and factors": func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org")
		a := iamtest.AddAccount(t, s.People, org.UID, "ann@example.test")
		now := time.Now()
		s.Now = func() time.Time { return now }
		testkit.Must(t, s.AddPasskey(t.Context(), a.UID, resource.Passkey{ID: []byte{1}, Name: "p", Detail: []byte("{}")}))
		link := func(d time.Duration) {
			_, err := s.UpdateAccount(t.Context(), a.UID, func(a *resource.Account) error {
				a.TOTP, a.Link = []byte("x"), resource.Link{Digest: []byte("link"), Expires: now.Add(d), Factors: true}
				return nil
			})
			testkit.Must(t, err)
		}
		follow := func() error {
			_, err := s.FollowLink(t.Context(), []byte("link"), func(a *resource.Account) error {
				a.Password = "new"
				return nil
			})
			return err
		}
		link(-time.Second)
		testkit.WantFault(t, follow(), fault.NotFound, fault.Resource{})
		link(time.Hour)
		testkit.Must(t, s.StartBrowserSession(t.Context(),
			resource.Session{ID: "s", Identity: a.Identity, CreateTime: now,
				ExpireTime: now.Add(time.Hour)}, []byte("cookie"), resource.Activity{}))
		testkit.Must(t, follow())
		testkit.WantFault(t, follow(), fault.NotFound, fault.Resource{})
		got, err := s.Account(t.Context(), a.UID)
		testkit.Must(t, err)
		if got.Password != "new" || len(got.TOTP) > 0 || len(got.Passkeys) > 0 {
			t.Errorf("%+v", got)
		}
		_, err = s.BrowserSession(t.Context(), []byte("cookie"), time.Hour)
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a one-time password is used once": func(t *testing.T, s *iamtest.Store) {
		a := iamtest.AddAccount(t, s.People, iamtest.AddGroup(t, s.IAMStore, "", "org").UID, "ann@example.test")
		for _, tt := range []struct {
			step int64
			want bool
		}{{5, true}, {5, false}, {4, false}, {6, true}} {
			if fresh, err := s.UseTOTP(t.Context(), a.UID, tt.step); fresh != tt.want || err != nil {
				t.Errorf("step %d: %v, %v", tt.step, fresh, err)
			}
		}
	},
	"what is good once is spent once": func(t *testing.T, s *iamtest.Store) {
		spent := make(chan bool, 8)
		for range cap(spent) {
			go func() {
				first, err := s.UseOnce(t.Context(), []byte("x"), time.Now().Add(time.Hour))
				spent <- first && err == nil
			}()
		}
		n := 0
		for range cap(spent) {
			if <-spent {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d were first", n)
		}
	},
	"what is left is fetched once": func(t *testing.T, s *iamtest.Store) {
		testkit.Must(t, s.PutHandoff(t.Context(), []byte("x"), []byte("v"), time.Now().Add(time.Hour)))
		testkit.WantFault(t, s.PutHandoff(t.Context(), []byte("x"), []byte("w"), time.Now().Add(time.Hour)),
			fault.AlreadyExists,
			fault.Resource{})
		if v, err := s.Handoff(t.Context(), []byte("x")); string(v) != "v" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if v, err := s.ConsumeHandoff(t.Context(), []byte("x")); string(v) != "v" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		_, err := s.ConsumeHandoff(t.Context(), []byte("x"))
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"an invite that is good once lets one in": func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		r := iamtest.AddRole(t, s.IAMStore, org.UID, "r")
		i := iamtest.NewInvite(org.UID, r.UID)
		i.SingleUse, i.Digest, i.ExpirationTime = true, []byte("digest"), time.Now().Add(time.Hour)
		_, err := s.InsertInvite(t.Context(), i)
		testkit.Must(t, err)
		in := make(chan error, 6)
		for n := range cap(in) {
			go func() {
				_, err := s.SignIn(t.Context(), resource.SignIn{
					Issuer: "https://issuer.test", Realm: "https://issuer.test", Subject: fmt.Sprint("new",
						n), Invite: &resource.Presented{UID: i.UID, Digest: i.Digest},
				})
				in <- err
			}()
		}
		joined := 0
		for range cap(in) {
			if err := <-in; err == nil {
				joined++
			} else if !errors.Is(err, fault.FailedPrecondition) {
				t.Error(err)
			}
		}
		all, err := s.Joins(t.Context(), org.UID)
		if err != nil || joined != 1 || len(all) != 1 || all[0].Invite != i.UID {
			t.Errorf("%d came in, %+v, %v", joined, all, err)
		}
		dbtest.WantExact(t, s.DB)
	},
	"who joined is told in the group and above it": func(t *testing.T, s *iamtest.Store) {
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		rival, _ := iamtest.AddOrganization(t, s.IAMStore, "rival", iamtest.Bob)
		folder := iamtest.AddGroup(t, s.IAMStore, org.UID, "folder")
		beside := iamtest.AddGroup(t, s.IAMStore, org.UID, "beside")
		for _, g := range []resource.UID{org.UID, folder.UID, rival.UID} {
			i := iamtest.NewInvite(g, iamtest.AddRole(t, s.IAMStore, g, "r").UID)
			i.Digest, i.ExpirationTime = []byte("digest"), time.Now().Add(time.Hour)
			_, err := s.InsertInvite(t.Context(), i)
			testkit.Must(t, err)
			_, err = s.SignIn(t.Context(), resource.SignIn{
				Issuer: "https://issuer.test", Realm: "https://issuer.test", Subject: string(g), Register: true,
				Invite: &resource.Presented{UID: i.UID, Digest: i.Digest},
			})
			testkit.Must(t, err)
		}
		for group, want := range map[resource.UID][]resource.UID{
			org.UID: {org.UID, folder.UID}, folder.UID: {folder.UID}, beside.UID: nil, rival.UID: {rival.UID},
		} {
			all, err := s.Joins(t.Context(), group)
			testkit.Must(t, err)
			var got []resource.UID
			for _, j := range all {
				got = append(got, j.Group)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("joins of %s are in %v, want %v", group, got, want)
			}
		}
	},
	"an account's events tell the ways in it has, and none of their secrets": accountTold,
	"a person who is refused leaves nothing": func(t *testing.T, s *iamtest.Store) {
		_, err := s.SignIn(t.Context(), resource.SignIn{Issuer: "https://issuer.test", Realm: "https://issuer.test",
			Subject: "new"})
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
		org, _ := iamtest.AddOrganization(t, s.IAMStore, "org", iamtest.Alice)
		_, err = s.SignIn(t.Context(), resource.SignIn{
			Issuer: "https://issuer.test", Realm: "https://issuer.test", Subject: "new", Register: true,
			Invite: &resource.Presented{UID: org.UID.NewChild(), Digest: []byte("x")},
		})
		testkit.WantFault(t, err, fault.FailedPrecondition, fault.Resource{})
		_, err = s.Identity(t.Context(), resource.UserUID("https://issuer.test", "new"))
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	},
}

func accountTold(t *testing.T, s *iamtest.Store) {
	org := iamtest.AddGroup(t, s.IAMStore, "", "org")
	a := iamtest.AddAccount(t, s.People, org.UID, "ann@example.test")
	update := func(change func(*resource.Account)) {
		t.Helper()
		_, err := s.UpdateAccount(t.Context(), a.UID, func(a *resource.Account) error { change(a); return nil })
		testkit.Must(t, err)
	}
	for _, step := range []struct {
		what          string
		do            func()
		before, after resource.AccountRecord
	}{
		{"a password", func() {
			update(func(a *resource.Account) {
				a.Password = "hush"
			})
		}, resource.AccountRecord{}, resource.AccountRecord{HasPassword: true}},
		{"an app", func() { update(func(a *resource.Account) { a.TOTP = []byte("hush") }) },
			resource.AccountRecord{HasPassword: true}, resource.AccountRecord{HasPassword: true, HasTOTP: true}},
		{"a passkey", func() {
			testkit.Must(t, s.AddPasskey(t.Context(), a.UID, resource.Passkey{ID: []byte("k1"), Name: "hush",
				Detail: []byte(`"hush"`)}))
		}, resource.AccountRecord{HasPassword: true, HasTOTP: true}, resource.AccountRecord{
			HasPassword: true, HasTOTP: true, Keys: 1,
		}},
		{"another", func() {
			testkit.Must(t, s.AddPasskey(t.Context(), a.UID, resource.Passkey{ID: []byte("k2"), Name: "hush",
				Detail: []byte(`"hush"`)}))
		}, resource.AccountRecord{
			HasPassword: true, HasTOTP: true, Keys: 1,
		}, resource.AccountRecord{HasPassword: true, HasTOTP: true, Keys: 2}},
		{"one fewer", func() { testkit.Must(t, s.DropPasskey(t.Context(), a.UID, []byte("k1"))) },
			resource.AccountRecord{HasPassword: true, HasTOTP: true, Keys: 2}, resource.AccountRecord{HasPassword: true,
				HasTOTP: true, Keys: 1}},
		{"a link", func() {
			update(func(a *resource.Account) {
				a.Link = resource.Link{Digest: []byte("hush"), Expires: s.Now().Add(time.Hour), Factors: true}
			})
		}, resource.AccountRecord{
			HasPassword: true, HasTOTP: true, Keys: 1,
		}, resource.AccountRecord{HasPassword: true, HasTOTP: true, Keys: 1}},
		{"the link followed", func() {
			_, err := s.FollowLink(t.Context(), []byte("hush"), func(*resource.Account) error { return nil })
			testkit.Must(t, err)
		}, resource.AccountRecord{HasPassword: true, HasTOTP: true, Keys: 1}, resource.AccountRecord{HasPassword: true}},
		{"gone", func() {
			testkit.Must(t, s.AddPasskey(t.Context(), a.UID, resource.Passkey{ID: []byte("k3"), Name: "hush",
				Detail: []byte(`"hush"`)}))
			testkit.Must(t, s.DeleteAccount(t.Context(), a.UID))
		}, resource.AccountRecord{HasPassword: true, Keys: 1}, resource.AccountRecord{}},
	} {
		step.do()
		var e resource.Event
		for _, e = range slices.Backward(dbtest.Events(t, s.DB)) {
			if e.Subject == a.UID {
				break
			}
		}
		for text, want := range map[string]resource.AccountRecord{string(e.Before): step.before,
			string(e.After): step.after} {
			var got resource.AccountRecord
			if text != "" {
				testkit.Must(t, json.Unmarshal([]byte(text), &got))
			}
			got.Account, got.LastUse = resource.Account{}, time.Time{}
			if diff := cmp.Diff(want, got); diff != "" || strings.Contains(text, "hush") ||
				strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("hush"))) {
				t.Errorf("%s: %s in %s", step.what, diff, text)
			}
		}
	}
}

func TestAccountPromises(t *testing.T) {
	for name, promise := range accountPromises {
		t.Run(name, func(t *testing.T) { iamtest.Each(t, promise) })
	}
}
