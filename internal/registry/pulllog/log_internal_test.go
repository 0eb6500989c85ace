package pulllog

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// pulledRepo returns a Log that writes to a store, and a new repo in that store.
func pulledRepo(t *testing.T, s *storetest.Store) (*Log, resource.UID) {
	t.Helper()
	org := resource.Group{UID: resource.NewRoot(), Name: "acme", CreateTime: time.Now()}
	if _, err := s.InsertGroup(t.Context(), org); err != nil {
		t.Fatal(err)
	}
	repo := registry.Repo{UID: org.UID.NewChild(), Name: "app", CreateTime: time.Now(), UpdateTime: time.Now()}
	if err := s.InsertRepo(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	return New(registrydb.New(s.DB), slog.New(slog.DiscardHandler)), repo.UID
}

// recorded returns the number of records of pulls from a repo, and the total number of pulls in these records.
func recorded(t *testing.T, s *storetest.Store, repo resource.UID) (records int, pulls int64) {
	t.Helper()
	got, err := s.Pulls(t.Context(), store.Reach{Under: []resource.UID{repo}}, resource.Filter{},
		page.Request{Size: 10_000, Order: registrydb.PullList.Default})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range got.Items {
		pulls += 1 + p.More
	}
	return len(got.Items), pulls
}

// TestPullsAlike checks that equal pulls, made concurrently from several addresses, are all counted in few records.
func TestPullsAlike(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		l, repo := pulledRepo(t, s)
		const clients, each = 4, 1000
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				req := httptest.NewRequestWithContext(t.Context(), "GET", "/v2/", nil)
				req.RemoteAddr = fmt.Sprintf("192.0.2.%d:7", i)
				for range each {
					l.Add(req, repo, false, registry.Pull{Digest: "sha256:a", Tag: "v1", Time: time.Now()})
				}
			})
		}
		wg.Wait()
		l.writeAll(t.Context(), l.take())
		if records, pulls := recorded(t, s, repo); records != clients*alikePulls || pulls != clients*each {
			t.Errorf("%d records of %d pulls, want %d of %d", records, pulls, clients*alikePulls, clients*each)
		}
		if all := l.take(); len(all) > 0 {
			t.Errorf("%d records are there twice", len(all))
		}
	})
}

// TestPullsLost checks that a pull without a record is counted as lost, if the queue was full and if the database
// refused the record.
func TestPullsLost(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		l, repo := pulledRepo(t, s)
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/v2/", nil)
		pull := func(n int) {
			for i := range n {
				l.Add(req, repo, false, registry.Pull{Digest: fmt.Sprint("sha256:", i), Time: time.Now()})
			}
		}
		lost := func() (n int64) {
			if err := s.Row(t.Context(), `SELECT CAST(coalesce(sum(n), 0) AS BIGINT) FROM pull_losses`, nil, &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		const beyond = 100
		pull(pullQueue + beyond)
		l.writeAll(t.Context(), l.take())
		if _, pulls := recorded(t, s, repo); pulls != pullQueue || lost() != beyond {
			t.Errorf("%d pulls are recorded and %d lost, want %d and %d", pulls, lost(), pullQueue, beyond)
		}
		pull(1)
		for range alikePulls + 1 {
			pull(1)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		l.writeAll(t.Context(), l.take())
		if want := int64(alikePulls + 2); l.unnoted != want {
			t.Errorf("%d pulls are still to be noted as lost, want %d", l.unnoted, want)
		}
	})
}

// TestLostPullsAgain checks that a number of lost pulls that could not be stored is stored later, even if no further
// pull is lost.
func TestLostPullsAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		l, _ := pulledRepo(t, s)
		if _, err := s.Exec(t.Context(), `ALTER TABLE pull_losses RENAME TO away`); err != nil {
			t.Fatal(err)
		}
		l.dropped.Add(3)
		l.writeAll(t.Context(), nil)
		if _, err := s.Exec(t.Context(), `ALTER TABLE away RENAME TO pull_losses`); err != nil {
			t.Fatal(err)
		}
		l.writeAll(t.Context(), nil)
		var n int64
		if err := s.Row(t.Context(), `SELECT CAST(coalesce(sum(n), 0) AS BIGINT) FROM pull_losses`, nil, &n); err != nil {
			t.Fatal(err)
		}
		if n != 3 || l.unnoted != 0 {
			t.Errorf("%d pulls are noted as lost, and %d are still to be noted", n, l.unnoted)
		}
	})
}
