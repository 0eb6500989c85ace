package signindb_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// withCodes adds an account with an authenticator app, a passkey, and recovery
// codes that have these digests.
func withCodes(t *testing.T, s *iamtest.Store, email string, codes ...string) resource.Account {
	t.Helper()
	a := iamtest.NewAccount(iamtest.AddGroup(t, s.IAMStore, "", email[:len(email)-len("@example.test")]).UID, email)
	a.TOTP = []byte("secret")
	testkit.Must(t, s.InsertAccount(t.Context(), a, iamtest.IdentityOf(a)))
	testkit.Must(t, s.AddPasskey(t.Context(), a.UID, resource.Passkey{ID: []byte(email), Name: "p", Detail: []byte("{}")}))
	testkit.Must(t, s.SetRecoveryCodes(t.Context(), a.UID, digests(codes...)))
	return a
}

func digests(codes ...string) (all [][]byte) {
	for _, c := range codes {
		all = append(all, []byte(c))
	}
	return all
}

// wantCodes checks how many unused recovery codes an account has.
func wantCodes(t *testing.T, s *iamtest.Store, uid resource.UID, want int) {
	t.Helper()
	a, err := s.Account(t.Context(), uid)
	testkit.Must(t, err)
	if a.RecoveryCodes != want {
		t.Errorf("%d recovery codes, want %d", a.RecoveryCodes, want)
	}
}

// use uses a recovery code and checks whether it was accepted.
func use(t *testing.T, s *iamtest.Store, uid resource.UID, code string, want bool) {
	t.Helper()
	if good, err := s.UseRecoveryCode(t.Context(), uid, []byte(code)); good != want || err != nil {
		t.Errorf("%s is good: %v, %v, want %v", code, good, err, want)
	}
}

// recoveryPromises contains a test for each promise in the comments about
// recovery codes.
var recoveryPromises = map[string]func(t *testing.T, s *iamtest.Store){
	"with a lost key go apps, their passwords and all codes": func(t *testing.T, s *iamtest.Store) {
		a, b := withCodes(t, s, "ann@example.test", "one"), withCodes(t, s, "bob@example.test", "two")
		testkit.Must(t, s.InsertFirstSigningKey(t.Context(), tokendb.SigningKey{ID: "k", Algorithm: "ES256",
			Sealed: []byte("old")}))
		_, err := s.UpdateAccount(t.Context(), a.UID, func(a *resource.Account) error {
			a.Password = "hash"
			return nil
		})
		testkit.Must(t, err)
		_, err = s.UpdateAccount(t.Context(), b.UID, func(b *resource.Account) error {
			b.TOTP, b.Password = []byte("readable"), "hash"
			return nil
		})
		testkit.Must(t, err)
		everything := func(string, []byte) bool { return true }
		if lost, err := s.ForgetSealed(t.Context(), everything); !lost.IsZero() || err != nil {
			t.Errorf("of what can be opened, %+v is lost: %v", lost, err)
		}
		wantCodes(t, s, b.UID, 1)
		lost, err := s.ForgetSealed(t.Context(), func(_ string, sealed []byte) bool { return string(sealed) == "readable" })
		testkit.Must(t, err)
		if lost.SigningKeys != 1 || len(lost.Accounts) != 1 || lost.Accounts[0].UID != a.UID || lost.RecoveryCodes != 2 {
			t.Errorf("lost = %+v", lost)
		}
		got, err := s.Account(t.Context(), a.UID)
		testkit.Must(t, err)
		if len(got.TOTP) > 0 || got.Password != "" || len(got.Passkeys) != 1 {
			t.Errorf("the account is %+v", got)
		}
		if got, err = s.Account(t.Context(), b.UID); err != nil || len(got.TOTP) == 0 || got.Password == "" {
			t.Errorf("an account that lost nothing is %+v, %v", got, err)
		}
		wantCodes(t, s, b.UID, 0)
	},
	"with a lost key go the secrets of providers, and codes though no app does": func(t *testing.T, s *iamtest.Store) {
		a := withCodes(t, s, "ann@example.test", "one")
		_, err := s.UpdateAccount(t.Context(), a.UID, func(a *resource.Account) error {
			a.TOTP, a.Password = []byte("readable"), "hash"
			return nil
		})
		testkit.Must(t, err)
		org := iamtest.AddGroup(t, s.IAMStore, "", "providers").UID
		gone := iamtest.AddProvider(t, s.IAMStore, org, iamtest.AddRole(t, s.IAMStore, org, "r").UID, "gone")
		kept := iamtest.NewProvider(org, gone.DefaultRole, "kept")
		kept.OIDC.ClientSecret.Sealed = []byte("readable")
		testkit.Must(t, s.InsertProvider(t.Context(), kept))
		lost, err := s.ForgetSealed(t.Context(), func(_ string, sealed []byte) bool { return string(sealed) == "readable" })
		testkit.Must(t, err)
		if len(lost.Providers) != 1 || lost.Providers[0].UID != gone.UID || len(lost.Accounts) != 0 ||
			lost.RecoveryCodes != 1 {
			t.Errorf("lost = %+v", lost)
		}
		if p, err := s.Provider(t.Context(), gone.UID); err != nil || len(p.OIDC.ClientSecret.Sealed) > 0 {
			t.Errorf("the secret that nobody can read is there: %v", err)
		}
		if p, err := s.Provider(t.Context(), kept.UID); err != nil || len(p.OIDC.ClientSecret.Sealed) == 0 {
			t.Errorf("the secret that can be read is gone: %v", err)
		}
		wantCodes(t, s, a.UID, 0)
	},
	"a code is used once, by its account": func(t *testing.T, s *iamtest.Store) {
		a, b := withCodes(t, s, "ann@example.test", "one", "two"), withCodes(t, s, "bob@example.test", "three")
		use(t, s, a.UID, "three", false)
		use(t, s, a.UID, "one", true)
		use(t, s, a.UID, "one", false)
		wantCodes(t, s, a.UID, 1)
		wantCodes(t, s, b.UID, 1)
	},
	"others take the place of codes": func(t *testing.T, s *iamtest.Store) {
		a := withCodes(t, s, "ann@example.test", "one", "two")
		testkit.Must(t, s.SetRecoveryCodes(t.Context(), a.UID, digests("three")))
		use(t, s, a.UID, "one", false)
		use(t, s, a.UID, "three", true)
		wantCodes(t, s, a.UID, 0)
	},
	"an account that is not there has none": func(t *testing.T, s *iamtest.Store) {
		uid := iamtest.AddGroup(t, s.IAMStore, "", "org").UID.NewChild()
		testkit.WantFault(t, s.SetRecoveryCodes(t.Context(), uid, digests("one")), fault.NotFound,
			fault.Resource{Type: "account", Name: string(uid)})
		_, err := s.UseRecoveryCode(t.Context(), uid, []byte("one"))
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{Type: "account", Name: string(uid)})
	},
	"of many who come with one code at once, one is let in": func(t *testing.T, s *iamtest.Store) {
		a := withCodes(t, s, "ann@example.test", "one", "two")
		in := make(chan bool, 8)
		for range cap(in) {
			go func() {
				good, err := s.UseRecoveryCode(t.Context(), a.UID, []byte("one"))
				in <- good && err == nil
			}()
		}
		n := 0
		for range cap(in) {
			if <-in {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d were let in", n)
		}
		wantCodes(t, s, a.UID, 1)
	},
	"codes stay as long as there is a factor": func(t *testing.T, s *iamtest.Store) {
		a := withCodes(t, s, "ann@example.test", "one")
		off := func(a *resource.Account) error { a.TOTP = nil; return nil }
		_, err := s.UpdateAccount(t.Context(), a.UID, off)
		testkit.Must(t, err)
		wantCodes(t, s, a.UID, 1) // the codes stay, because there is still the passkey
		testkit.Must(t, s.DropPasskey(t.Context(), a.UID, []byte(a.Email)))
		wantCodes(t, s, a.UID, 0)
		b := withCodes(t, s, "bob@example.test", "one")
		testkit.Must(t, s.DropPasskey(t.Context(), b.UID, []byte(b.Email)))
		wantCodes(t, s, b.UID, 1) // the codes stay, because there is still the app
		_, err = s.UpdateAccount(t.Context(), b.UID, off)
		testkit.Must(t, err)
		wantCodes(t, s, b.UID, 0)
	},
	"codes go with a link that takes the factors": func(t *testing.T, s *iamtest.Store) {
		for factors, want := range map[bool]int{false: 1, true: 0} {
			a := withCodes(t, s, fmt.Sprint(factors, "@example.test"), "one")
			link := []byte(a.Email)
			_, err := s.UpdateAccount(t.Context(), a.UID, func(a *resource.Account) error {
				a.Link = resource.Link{Digest: link, Expires: time.Now().Add(time.Hour), Factors: factors}
				return nil
			})
			testkit.Must(t, err)
			followed, err := s.FollowLink(t.Context(), link, func(*resource.Account) error { return nil })
			testkit.Must(t, err)
			wantCodes(t, s, a.UID, want)
			if followed.RecoveryCodes != want {
				t.Errorf("%d codes are told, want %d", followed.RecoveryCodes, want)
			}
		}
	},
	"codes go with their account": func(t *testing.T, s *iamtest.Store) {
		a := withCodes(t, s, "ann@example.test", "one")
		testkit.Must(t, s.DeleteAccount(t.Context(), a.UID))
		testkit.Must(t, s.InsertAccount(t.Context(), a, iamtest.IdentityOf(a)))
		use(t, s, a.UID, "one", false)
	},
	"what is done with codes makes events, and what is refused none": func(t *testing.T, s *iamtest.Store) {
		a := withCodes(t, s, "ann@example.test", "one")
		count := func() (n int) {
			all, err := outbox.Read(t.Context(), s.DB, 0, 1000)
			testkit.Must(t, err)
			for _, e := range all {
				if e.Type == resource.AccountUpdated && e.Subject == a.UID {
					n++
				}
			}
			return n
		}
		before := count()
		use(t, s, a.UID, "two", false)
		if n := count() - before; n != 0 {
			t.Errorf("a code that is none made %d events", n)
		}
		use(t, s, a.UID, "one", true)
		testkit.Must(t, s.SetRecoveryCodes(t.Context(), a.UID, nil))
		if n := count() - before; n != 2 {
			t.Errorf("using and setting made %d events", n)
		}
	},
}

func TestRecoveryPromises(t *testing.T) {
	for name, promise := range recoveryPromises {
		t.Run(name, func(t *testing.T) { iamtest.Each(t, promise) })
	}
}

// recoveryDuels contains pairs of writes that use and remove recovery codes concurrently.
var recoveryDuels = map[string]func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel{
	"use a recovery code and make others": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		a := withCodes(t, s, lastSegment(org.NewChild())+"@example.test", "old")
		good := false
		return dbtest.NewDuel(
			func() (err error) { good, err = s.UseRecoveryCode(t.Context(), a.UID, []byte("old")); return err },
			func() error { return s.SetRecoveryCodes(t.Context(), a.UID, digests("new", "newer")) },
			func(a1, b error) error { // the old code may have been used in time; in both cases both new codes exist
				after, err := s.Account(t.Context(), a.UID)
				if after.RecoveryCodes != 2 {
					err = fmt.Errorf("%d codes are left, the old one was good: %v", after.RecoveryCodes, good)
				}
				return errors.Join(a1, b, err)
			},
		)
	},
	"use a recovery code and switch the app off": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		a := withCodes(t, s, lastSegment(org.NewChild())+"@example.test", "one", "two")
		testkit.Must(t, s.DropPasskey(t.Context(), a.UID, []byte(a.Email)))
		return dbtest.NewDuel(
			func() error { _, err := s.UseRecoveryCode(t.Context(), a.UID, []byte("one")); return err },
			func() error {
				_, err := s.UpdateAccount(t.Context(), a.UID, func(a *resource.Account) error { a.TOTP = nil; return nil })
				return err
			},
			func(a1, b error) error {
				after, err := s.Account(t.Context(), a.UID)
				if after.RecoveryCodes != 0 {
					err = fmt.Errorf("%d codes are left of nothing", after.RecoveryCodes)
				}
				return errors.Join(a1, b, err)
			},
		)
	},
	"make recovery codes and delete the account": func(t *testing.T, s *iamtest.Store, org resource.UID) dbtest.Duel {
		a := withCodes(t, s, lastSegment(org.NewChild())+"@example.test", "one")
		return dbtest.NewDuel(
			func() error { return s.SetRecoveryCodes(t.Context(), a.UID, digests("two")) },
			func() error { return s.DeleteAccount(t.Context(), a.UID) },
			func(a, b error) error {
				if b != nil || a != nil && !errors.Is(a, fault.NotFound) {
					return fmt.Errorf("errors = %v and %v", a, b)
				}
				return nil
			},
		)
	},
}

func lastSegment(uid resource.UID) string { return string(uid)[len(uid)-16:] }

func TestRecoveryDuels(t *testing.T) {
	const rounds = 40
	iamtest.Each(t, func(t *testing.T, s *iamtest.Store) {
		org := iamtest.AddGroup(t, s.IAMStore, "", "org").UID
		for name, prepare := range recoveryDuels {
			t.Run(name, func(t *testing.T) {
				for range rounds {
					d := prepare(t, s, org)
					a, b := dbtest.AtOnce(d.A, d.B)
					if err := d.OK(a, b); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		dbtest.WantExact(t, s.DB)
	})
}
