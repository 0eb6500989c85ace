package store_test

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

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const ownIssuer = "https://here.test"

func newAccount(org resource.UID, email string) resource.Account {
	a := resource.Account{UID: org.NewChild(), Email: email, Name: "Ann", CreateTime: epoch, UpdateTime: epoch}
	c := a.Local(ownIssuer)
	a.Identity = resource.UserUID(c.Issuer, c.Subject)
	return a
}

func identityOf(a resource.Account) resource.Identity {
	c := a.Local(ownIssuer)
	return resource.Identity{
		UID: a.Identity, Name: "ann", EmailUnverified: a.Email, CreateTime: epoch, UpdateTime: epoch, LastSeenTime: epoch,
		Relationship: resource.Relationship{ClaimMatch: &c},
	}
}

func addAccount(t *testing.T, s *storetest.Store, org resource.UID, email string) resource.Account {
	t.Helper()
	a := newAccount(org, email)
	must(t, s.InsertAccount(t.Context(), a, identityOf(a)))
	return a
}

// accountPromises contains a test for each promise in the comments about signing in.
var accountPromises = map[string]func(t *testing.T, s *storetest.Store){
	"an account keeps what it was given, and is found by all its names": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		a := newAccount(org.UID, "ann@example.test")
		a.Password, a.TOTP, a.TOTPStep = "hash", []byte{0, 255}, 7
		a.Link = resource.Link{Digest: []byte("link"), Expires: s.Now().Add(time.Hour).UTC().Truncate(time.Millisecond),
			Factors: true}
		must(t, s.InsertAccount(t.Context(), a, identityOf(a)))
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
		wantExact(t, s)
	},
	"an address has one account in an organization": func(t *testing.T, s *storetest.Store) {
		org, other := addGroup(t, s, "", "org"), addGroup(t, s, "", "other")
		addAccount(t, s, org.UID, "ann@example.test")
		b := newAccount(org.UID, "ann@example.test")
		wantFault(t, s.InsertAccount(t.Context(), b, identityOf(b)), fault.AlreadyExists,
			fault.Resource{Type: "account", Name: "ann@example.test"})
		b = addAccount(t, s, other.UID, "ann@example.test")
		got, err := s.AccountIn(t.Context(), other.UID, "ann@example.test")
		if err != nil || got.UID != b.UID {
			t.Errorf("in the other organization: %+v, %v", got, err)
		}
		_, err = s.AccountIn(t.Context(), addGroup(t, s, "", "third").UID, "ann@example.test")
		wantFault(t, err, fault.NotFound, fault.Resource{Type: "account", Name: "ann@example.test"})
	},
	"a few accounts of an address are tried: of the organization, then the oldest, with a password": func(t *testing.T,
		s *storetest.Store) {
		var orgs, all []resource.UID
		for i := range 5 {
			org := addGroup(t, s, "", fmt.Sprint("org", i))
			a := newAccount(org.UID, "ann@example.test")
			a.CreateTime, a.Password = epoch.Add(time.Duration(i)*time.Hour), map[bool]string{true: "hash"}[i != 1]
			must(t, s.InsertAccount(t.Context(), a, identityOf(a)))
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
			must(t, err)
			var uids []resource.UID
			for _, a := range got {
				uids = append(uids, a.UID)
			}
			if !slices.Equal(uids, tt.want) {
				t.Errorf("%s: %v, want %v of %v", name, uids, tt.want, all)
			}
		}
	},
	"an account goes with its identity, and an organization not while it has one": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		a := addAccount(t, s, org.UID, "ann@example.test")
		must(t, s.AddPasskey(t.Context(), a.UID, resource.Passkey{ID: []byte{1}, Name: "p", Detail: []byte("{}")}))
		wantFault(t, s.DeleteGroup(t.Context(), org.UID, ""), fault.FailedPrecondition, fault.Resource{})
		must(t, s.DeleteIdentity(t.Context(), a.Identity))
		_, err := s.Account(t.Context(), a.UID)
		wantFault(t, err, fault.NotFound, fault.Resource{})
		_, err = s.AccountWithPasskey(t.Context(), []byte{1})
		wantFault(t, err, fault.NotFound, fault.Resource{})
		b := addAccount(t, s, org.UID, "bob@example.test")
		must(t, s.DeleteAccount(t.Context(), b.UID))
		_, err = s.Identity(t.Context(), b.Identity)
		wantFault(t, err, fault.NotFound, fault.Resource{})
		must(t, s.DeleteGroup(t.Context(), org.UID, ""))
		wantExact(t, s)
	},
	"a link is followed once, in time, and ends sessions and factors": func(t *testing.T, s *storetest.Store) {
		org := addGroup(t, s, "", "org")
		a := addAccount(t, s, org.UID, "ann@example.test")
		now := time.Now()
		s.Now = func() time.Time { return now }
		must(t, s.AddPasskey(t.Context(), a.UID, resource.Passkey{ID: []byte{1}, Name: "p", Detail: []byte("{}")}))
		link := func(d time.Duration) {
			_, err := s.UpdateAccount(t.Context(), a.UID, func(a *resource.Account) error {
				a.TOTP, a.Link = []byte("x"), resource.Link{Digest: []byte("link"), Expires: now.Add(d), Factors: true}
				return nil
			})
			must(t, err)
		}
		follow := func() error {
			_, err := s.FollowLink(t.Context(), []byte("link"), func(a *resource.Account) error {
				a.Password = "new"
				return nil
			})
			return err
		}
		link(-time.Second)
		wantFault(t, follow(), fault.NotFound, fault.Resource{})
		link(time.Hour)
		must(t, s.StartBrowserSession(t.Context(),
			resource.Session{ID: "s", Identity: a.Identity, CreateTime: now,
				ExpireTime: now.Add(time.Hour)}, []byte("cookie"), resource.Activity{}))
		must(t, follow())
		wantFault(t, follow(), fault.NotFound, fault.Resource{})
		got, err := s.Account(t.Context(), a.UID)
		must(t, err)
		if got.Password != "new" || len(got.TOTP) > 0 || len(got.Passkeys) > 0 {
			t.Errorf("%+v", got)
		}
		_, err = s.BrowserSession(t.Context(), []byte("cookie"), time.Hour)
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"a one-time password is used once": func(t *testing.T, s *storetest.Store) {
		a := addAccount(t, s, addGroup(t, s, "", "org").UID, "ann@example.test")
		for _, tt := range []struct {
			step int64
			want bool
		}{{5, true}, {5, false}, {4, false}, {6, true}} {
			if fresh, err := s.UseTOTP(t.Context(), a.UID, tt.step); fresh != tt.want || err != nil {
				t.Errorf("step %d: %v, %v", tt.step, fresh, err)
			}
		}
	},
	"what is good once is spent once": func(t *testing.T, s *storetest.Store) {
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
	"what is left is fetched once": func(t *testing.T, s *storetest.Store) {
		must(t, s.PutHandoff(t.Context(), []byte("x"), []byte("v"), time.Now().Add(time.Hour)))
		wantFault(t, s.PutHandoff(t.Context(), []byte("x"), []byte("w"), time.Now().Add(time.Hour)), fault.AlreadyExists,
			fault.Resource{})
		if v, err := s.Handoff(t.Context(), []byte("x")); string(v) != "v" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if v, err := s.ConsumeHandoff(t.Context(), []byte("x")); string(v) != "v" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		_, err := s.ConsumeHandoff(t.Context(), []byte("x"))
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
	"an invite that is good once lets one in": func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "org", alice)
		r := addRole(t, s, org.UID, "r")
		i := newInvite(org.UID, r.UID)
		i.SingleUse, i.Digest, i.ExpirationTime = true, []byte("digest"), time.Now().Add(time.Hour)
		_, err := s.InsertInvite(t.Context(), i)
		must(t, err)
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
		wantExact(t, s)
	},
	"who joined is told in the group and above it": func(t *testing.T, s *storetest.Store) {
		org, _ := addOrganization(t, s, "org", alice)
		rival, _ := addOrganization(t, s, "rival", bob)
		folder := addGroup(t, s, org.UID, "folder")
		beside := addGroup(t, s, org.UID, "beside")
		for _, g := range []resource.UID{org.UID, folder.UID, rival.UID} {
			i := newInvite(g, addRole(t, s, g, "r").UID)
			i.Digest, i.ExpirationTime = []byte("digest"), time.Now().Add(time.Hour)
			_, err := s.InsertInvite(t.Context(), i)
			must(t, err)
			_, err = s.SignIn(t.Context(), resource.SignIn{
				Issuer: "https://issuer.test", Realm: "https://issuer.test", Subject: string(g), Register: true,
				Invite: &resource.Presented{UID: i.UID, Digest: i.Digest},
			})
			must(t, err)
		}
		for group, want := range map[resource.UID][]resource.UID{
			org.UID: {org.UID, folder.UID}, folder.UID: {folder.UID}, beside.UID: nil, rival.UID: {rival.UID},
		} {
			all, err := s.Joins(t.Context(), group)
			must(t, err)
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
	"a person who is refused leaves nothing": func(t *testing.T, s *storetest.Store) {
		_, err := s.SignIn(t.Context(), resource.SignIn{Issuer: "https://issuer.test", Realm: "https://issuer.test",
			Subject: "new"})
		wantFault(t, err, fault.NotFound, fault.Resource{})
		org, _ := addOrganization(t, s, "org", alice)
		_, err = s.SignIn(t.Context(), resource.SignIn{
			Issuer: "https://issuer.test", Realm: "https://issuer.test", Subject: "new", Register: true,
			Invite: &resource.Presented{UID: org.UID.NewChild(), Digest: []byte("x")},
		})
		wantFault(t, err, fault.FailedPrecondition, fault.Resource{})
		_, err = s.Identity(t.Context(), resource.UserUID("https://issuer.test", "new"))
		wantFault(t, err, fault.NotFound, fault.Resource{})
	},
}

func accountTold(t *testing.T, s *storetest.Store) {
	org := addGroup(t, s, "", "org")
	a := addAccount(t, s, org.UID, "ann@example.test")
	update := func(change func(*resource.Account)) {
		t.Helper()
		_, err := s.UpdateAccount(t.Context(), a.UID, func(a *resource.Account) error { change(a); return nil })
		must(t, err)
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
			must(t, s.AddPasskey(t.Context(), a.UID, resource.Passkey{ID: []byte("k1"), Name: "hush", Detail: []byte(`"hush"`)}))
		}, resource.AccountRecord{HasPassword: true, HasTOTP: true}, resource.AccountRecord{
			HasPassword: true, HasTOTP: true, Keys: 1,
		}},
		{"another", func() {
			must(t, s.AddPasskey(t.Context(), a.UID, resource.Passkey{ID: []byte("k2"), Name: "hush", Detail: []byte(`"hush"`)}))
		}, resource.AccountRecord{
			HasPassword: true, HasTOTP: true, Keys: 1,
		}, resource.AccountRecord{HasPassword: true, HasTOTP: true, Keys: 2}},
		{"one fewer", func() { must(t, s.DropPasskey(t.Context(), a.UID, []byte("k1"))) },
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
			must(t, err)
		}, resource.AccountRecord{HasPassword: true, HasTOTP: true, Keys: 1}, resource.AccountRecord{HasPassword: true}},
		{"gone", func() {
			must(t, s.AddPasskey(t.Context(), a.UID, resource.Passkey{ID: []byte("k3"), Name: "hush", Detail: []byte(`"hush"`)}))
			must(t, s.DeleteAccount(t.Context(), a.UID))
		}, resource.AccountRecord{HasPassword: true, Keys: 1}, resource.AccountRecord{}},
	} {
		step.do()
		var e resource.Event
		for _, e = range slices.Backward(events(t, s)) {
			if e.Subject == a.UID {
				break
			}
		}
		for text, want := range map[string]resource.AccountRecord{string(e.Before): step.before,
			string(e.After): step.after} {
			var got resource.AccountRecord
			if text != "" {
				must(t, json.Unmarshal([]byte(text), &got))
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
		t.Run(name, func(t *testing.T) { storetest.Each(t, promise) })
	}
}
