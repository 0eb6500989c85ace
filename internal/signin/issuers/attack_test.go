package issuers_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
)

// answering is a network in which hosts whose names begin with "hang" do not respond. All
// other hosts are issuers with those keys.
func answering(keys ...key) *transport {
	set := string(keySet(keys...))
	return &transport{answer: func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(r.URL.Host, "hang") {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		if r.URL.Path == "/keys" {
			return ok(set)
		}
		return ok(fmt.Sprintf(`{"issuer":"https://%s","jwks_uri":"https://%s/keys"}`, r.URL.Host, r.URL.Host))
	}}
}

// flood presents tokens of n issuers for a tenant at the same time. It returns when all requests wait or were refused.
func flood(t *testing.T, trusted *issuers.Issuers, k key, a issuers.QuotaKey, format string, n int) *sync.WaitGroup {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		tok := k.token(t, good(fmt.Sprintf(format, i)))
		wg.Go(func() { _ = trusted.Verify(t.Context(), a, tok) })
	}
	synctest.Wait()
	return &wg
}

// TestAttackOfOneTenant: if a tenant has thousands of issuers that do not respond, they do not delay other tenants.
func TestAttackOfOneTenant(t *testing.T) {
	for name, attacker := range map[string]issuers.QuotaKey{
		"by a pattern": {Tenant: "b", Reason: issuers.Matched},
		"by name":      {Tenant: "b", Reason: issuers.Named},
		"of people":    {Tenant: "b", Reason: issuers.Person},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKey(t, "one")
				net := answering(k)
				trusted := newIssuers(t, net)
				known := k.token(t, good("https://known.example"))
				if err := trusted.Verify(t.Context(), named, known); err != nil {
					t.Fatal(err)
				}
				wg := flood(t, trusted, k, attacker, "https://hang%d.example", 5000)
				if n := net.count() - 2; n > 8 {
					t.Errorf("%d questions at once for one tenant", n)
				}
				begin := time.Now()
				for n, a := range []issuers.QuotaKey{
					{Tenant: "a", Reason: issuers.Named}, {Tenant: "a", Reason: issuers.Matched},
					{Tenant: "a", Reason: issuers.Person},
					{Tenant: "b", Reason: (attacker.Reason + 1) % 3}, // another pool of the attacking tenant
				} {
					if err := trusted.Verify(t.Context(), a, k.token(t, good(fmt.Sprintf("https://fresh%d.example", n)))); err != nil {
						t.Errorf("%+v: %v", a, err)
					}
				}
				before := net.count()
				if err := trusted.Verify(t.Context(), named, known); err != nil || net.count() != before {
					t.Errorf("what was known: %v, asked again: %v", err, net.count() != before)
				}
				if took := time.Since(begin); took != 0 {
					t.Errorf("others waited for %v", took)
				}
				wg.Wait()
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("the last of the attack was answered after %v", took)
				}
				time.Sleep(10 * time.Minute) // in this time, all queued fetches end
			})
		})
	}
}

// TestAttackOfManyTenants: there are more tenants than concurrent fetches. Fetches alternate
// between tenants, so a further tenant waits for one fetch of each tenant and not for the
// whole queue.
func TestAttackOfManyTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKey(t, "one")
		trusted := newIssuers(t, answering(k))
		var all []*sync.WaitGroup
		for n := range 40 {
			all = append(all, flood(
				t, trusted, k, issuers.QuotaKey{Tenant: fmt.Sprint(n), Reason: issuers.Named},
				fmt.Sprintf("https://hang%d-%%d.example", n), 50,
			))
		}
		begin := time.Now()
		if err := trusted.Verify(t.Context(), named, k.token(t, good(name))); err != nil {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("another waited for %v", took)
		}
		for _, wg := range all {
			wg.Wait()
		}
		time.Sleep(10 * time.Minute)
	})
}

// TestAttackByQueue: a tenant puts the issuer of another tenant at the end of its own queue.
// The other tenant does not wait in that queue and gets no error from it.
func TestAttackByQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKey(t, "one")
		trusted := newIssuers(t, answering(k))
		attacker := issuers.QuotaKey{Tenant: "b", Reason: issuers.Matched}
		wg := flood(t, trusted, k, attacker, "https://hang%d.example", 6) // some of the fetches run, and the others wait
		tok := k.token(t, good(name))
		wg.Go(func() { _ = trusted.Verify(t.Context(), attacker, tok) })
		synctest.Wait()
		begin := time.Now()
		if err := trusted.Verify(t.Context(), named, tok); err != nil || time.Since(begin) != 0 {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		wg.Wait()
		if err := trusted.Verify(t.Context(), attacker, tok); err != nil {
			t.Errorf("the keys that another has fetched: %v", err)
		}
		time.Sleep(10 * time.Minute)
	})
}

// TestAttackOnMemory: tenants have more keys than the cache holds. A tenant with few keys
// loses none. Within a tenant, issuers without keys do not evict issuers with keys.
func TestAttackOnMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKey(t, "one")
		keys := make([]key, 100)
		for i := range keys {
			keys[i] = key{fmt.Sprint(i), k.private}
		}
		keys[0] = k
		net := answering(keys...)
		trusted := newIssuers(t, net)
		verify := func(a issuers.QuotaKey, issuer string) {
			t.Helper()
			if err := trusted.Verify(t.Context(), a, k.token(t, good(issuer))); err != nil {
				t.Fatalf("%s for %+v: %v", issuer, a, err)
			}
		}
		for _, reason := range []issuers.Reason{issuers.Named, issuers.Person, issuers.Matched} {
			victim := issuers.QuotaKey{Tenant: "a", Reason: reason}
			issuer := fmt.Sprintf("https://victim%d.example", reason)
			verify(victim, issuer)
			for n := range 600 { // 60,000 keys for twelve tenants
				verify(
					issuers.QuotaKey{Tenant: fmt.Sprint(n % 12), Reason: reason},
					fmt.Sprintf("https://many%d-%d.example", reason, n),
				)
			}
			for n := range 700 {
				var away *issuers.Unreachable
				dead := k.token(t, good(fmt.Sprintf("ftp://dead%d.example/%d", n, reason)))
				if err := trusted.Verify(t.Context(), victim, dead); err == nil || !errors.As(err, &away) {
					t.Fatalf("a dead issuer: %v", err)
				}
			}
			before := net.count()
			verify(victim, issuer)
			if net.count() != before {
				t.Errorf("reason %d: the keys were fetched again", reason)
			}
		}
	})
}

// TestSharedIssuer: several tenants trust the same issuer. Its keys are fetched once, and all
// tenants see a changed key at the same time.
func TestSharedIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newKey(t, "one"), newKey(t, "two")
		net := &transport{answer: issuing(one)}
		trusted := newIssuers(t, net)
		var wg sync.WaitGroup
		for n := range 50 {
			a := issuers.QuotaKey{Tenant: fmt.Sprint(n % 10), Reason: issuers.Reason(n % 3)}
			tok := one.token(t, good(name))
			wg.Go(func() {
				if err := trusted.Verify(t.Context(), a, tok); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := net.count(); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
		if err := trusted.VerifyCached(one.token(t, good(name))); err != nil {
			t.Error(err)
		}
		unknown := one.token(t, good("https://unknown.example"))
		if err := trusted.VerifyCached(unknown); !errors.Is(err, issuers.ErrUnknownKey) || net.count() != 2 {
			t.Errorf("an issuer that is not known: %v", err)
		}
		net.answer = issuing(two)
		time.Sleep(time.Minute)
		for _, tenant := range []string{"1", "2", "new"} {
			if err := trusted.Verify(t.Context(), issuers.QuotaKey{Tenant: tenant}, two.token(t, good(name))); err != nil {
				t.Errorf("%s: %v", tenant, err)
			}
		}
		if n := net.count(); n != 4 {
			t.Errorf("%d requests, want 4", n)
		}
	})
}
