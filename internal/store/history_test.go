package store_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/registrytest"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/dbtest"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// replace gives the database another history, as if a back-up were restored in its
// place. The revision stays the same.
func (p pair) replace(t *testing.T) {
	t.Helper()
	p.exec(t, `ALTER TABLE revision RENAME TO old;
		CREATE TABLE revision (LIKE old INCLUDING ALL); INSERT INTO revision SELECT * FROM old; DROP TABLE old`)
}

// TestAnotherHistory replaces the database with one that has the same revision and
// other contents. It checks that the caches are not used any more, and that nothing is
// read or written until the leases in the previous history have ended.
func TestAnotherHistory(t *testing.T) {
	p := newPair(t)
	g := iamtest.AddGroup(t, p.here.IAMStore, "", "g")
	r := registrytest.AddRepo(t, p.here.RegistryStore, g.UID, "app")
	setBudget(t, p.here, g.UID, map[resource.Metric]int64{resource.BudgetRepos: 5})
	dbtest.Renew(t, p.here.DB)
	wantLimit(t, p.here, g.UID, 5)
	before, err := p.here.Renew(t.Context(), replica.Position{})
	testkit.Must(t, err)
	wantRepo(t, p.here, r.UID, "g", "app")
	p.exec(t, `UPDATE repos SET name = 'other'`)
	// the version of the budgets stays the same
	p.exec(t, `UPDATE budgets SET detail = replace(detail, '"repos":5', '"repos":7')`)
	p.replace(t)
	wantRepo(t, p.here, r.UID, "g", "app") // the lease has not ended yet
	if _, err := p.here.Renew(t.Context(), before); !errors.Is(err, fault.Unavailable) {
		t.Fatalf("the first heartbeat: %v, want Unavailable", err)
	}
	if got := p.here.History(); got != before.History+1 {
		t.Errorf("history %d, want %d", got, before.History+1)
	}
	if p.here.Current() {
		t.Error("the caches are believed")
	}
	if err := p.here.Ping(t.Context()); !errors.Is(err, fault.Unavailable) {
		t.Errorf("a read: %v, want Unavailable", err)
	}
	v := map[resource.UID]int64{g.UID.NewChild(): 7}
	dbtest.Renew(t, p.here.DB)
	after, err := p.here.Renew(t.Context(), before)
	testkit.Must(t, err)
	if after.History != before.History+1 || after.Revision != before.Revision {
		t.Errorf("at %v, and before at %v", after, before)
	}
	wantRepo(t, p.here, "", "g", "app")
	wantRepo(t, p.here, r.UID, "g", "other")
	wantLimit(t, p.here, g.UID, 7)
	if err := p.here.SaveCursors(t.Context(), before.History, v); !errors.Is(err, fault.Aborted) {
		t.Errorf("cursors of another history: %v, want Aborted", err)
	}
	testkit.Must(t, p.here.SaveCursors(t.Context(), after.History, v))
}

func wantLimit(t *testing.T, s *storetest.Store, group resource.UID, want int64) {
	t.Helper()
	all, err := s.DB.Budgets(t.Context())
	testkit.Must(t, err)
	above := all.Above(group, resource.BudgetRepos)
	if len(above) != 1 || above[0].Limits[resource.BudgetRepos] != want {
		t.Errorf("the budgets are %v, want a limit of %d", above, want)
	}
}

// TestAnotherHistoryOnStart checks that opening a database whose history has changed takes
// LeaseWait, because other replicas may still hold leases in the previous history.
func TestAnotherHistoryOnStart(t *testing.T) {
	p := newPair(t)
	open := func() {
		s, err := store.Open(t.Context(), p.url)
		testkit.Must(t, err)
		testkit.Must(t, s.Close())
	}
	same := quickest(open)
	p.replace(t)
	start := time.Now()
	open()
	if took := time.Since(start); took < store.LeaseWait || same > took/2 {
		t.Errorf("to open the same history took %s, and another one %s, want a lease of %s", same, took, store.LeaseWait)
	}
}

// TestSeveralServers checks that Open connects if an address names several servers, and
// the first one does not answer, refuses, or does not exist.
func TestSeveralServers(t *testing.T) {
	database, err := url.Parse(storetest.Postgres(t))
	testkit.Must(t, err)
	folder := database.Query().Get("host")
	// a listener that never accepts a connection
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer silent.Close()
	_, port, err := net.SplitHostPort(silent.Addr().String())
	testkit.Must(t, err)
	for name, first := range map[string][2]string{
		"silent":  {"127.0.0.1", port},
		"refuses": {"127.0.0.1", "1"},
		"missing": {t.TempDir(), "5432"},
	} {
		t.Run(name, func(t *testing.T) {
			query := url.Values{"host": {first[0] + "," + folder}, "port": {first[1] + ",5432"}}
			query.Set("target_session_attrs", "read-write")
			address := fmt.Sprintf("postgres://%s@%s?%s", database.User, database.Path, query.Encode())
			start := time.Now()
			s := storetest.Open(t, address)
			dbtest.Renew(t, s.DB)
			if took := time.Since(start); took > time.Minute { // without a limit, the attempt would never end
				t.Errorf("it took %s", took)
			}
		})
	}
}
