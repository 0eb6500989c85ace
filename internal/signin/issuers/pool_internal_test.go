package issuers

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestPoolsAddUp changes the pools at random, as requests and fetches do, and checks the
// invariants after each change.
func TestPoolsAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	issuers, err := New(Config{Now: func() time.Time { return time.Unix(1, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	for reason := range issuers.pools {
		issuers.pools[reason].limits = limits{
			fetches: 5, fetchesEach: 2, waitingEach: 3, keys: 60, keysEach: 25, triedEach: 4, tenants: 6,
		}
	}
	for range testkit.Rounds(2_000, 20_000) {
		p := issuers.poolFor(QuotaKey{Tenant: fmt.Sprint(random.IntN(9)), Reason: Reason(random.IntN(int(reasons)))})
		i := issuers.lookup(p, fmt.Sprint(random.IntN(30)))
		issuers.remember(p, i)
		if random.IntN(2) == 0 {
			issuers.setKeys(i, KeySet{make([]publicKey, random.IntN(12))})
		}
		for _, ps := range issuers.pools {
			addsUp(t, issuers, ps)
		}
		for name, i := range issuers.issuers {
			if len(i.pools) == 0 || i.name != name {
				t.Fatalf("%s is known and nobody remembers it", name)
			}
		}
	}
}

func addsUp(t *testing.T, issuers *Issuers, ps *poolSet) {
	t.Helper()
	total := 0
	for _, p := range ps.tenants.Values() {
		keys := 0
		for _, i := range p.withKeys.Values() {
			keys += i.size()
		}
		total += keys
		if keys != p.keys || p.withoutKeys.Len() > ps.triedEach || p.withKeys.Len() > 1 && keys > ps.keysEach {
			t.Fatalf("a pool of %d keys that counts %d, and %d issuers without", keys, p.keys, p.withoutKeys.Len())
		}
		for _, i := range append(p.withKeys.Values(), p.withoutKeys.Values()...) {
			if _, ok := i.pools[p]; !ok || issuers.issuers[i.name] != i {
				t.Fatalf("%s is remembered and not known", i.name)
			}
		}
	}
	if total != ps.keys || total > ps.limits.keys || ps.tenants.Len() > ps.limits.tenants {
		t.Fatalf("%d keys of %d tenants, counted as %d", total, ps.tenants.Len(), ps.keys)
	}
}
