package budget_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/budget"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/replica"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// A process is a budget service over a database, with a fixed clock.
type process struct {
	*budget.Service
	store *storetest.Store
	now   time.Time
}

var morning = time.Date(2026, 1, 2, 8, 0, 0, 0, time.UTC)

func newProcess(t *testing.T, url string) *process {
	t.Helper()
	p := &process{store: storetest.Open(t, url), now: morning}
	checker, err := authz.Load(t.Context(), p.store.DB, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return p.now }
	p.Service = budget.New(p.store.DB, checker, page.NewTokens([]byte("key"), now), budget.Config{Now: now})
	return p
}

// group adds a group with a budget.
func (p *process) group(t *testing.T, parent resource.UID, limits map[resource.Metric]int64) resource.UID {
	t.Helper()
	g := resource.Group{UID: resource.NewRoot(), CreateTime: morning, UpdateTime: morning}
	if parent != "" {
		g.UID = parent.NewChild()
	}
	g.Name = string(g.UID[len(g.UID)-16:])
	if _, err := p.store.InsertGroup(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	p.limit(t, g.UID, limits)
	return g.UID
}

func (p *process) limit(t *testing.T, group resource.UID, limits map[resource.Metric]int64) {
	t.Helper()
	if _, err := p.Set(t.Context(), group, func(b *resource.Budget) error { b.Limits = limits; return nil }); err != nil {
		t.Fatal(err)
	}
}

// admitted makes n requests of an identity, and returns the number of admitted requests and the last error.
func (p *process) admitted(t *testing.T, identity resource.UID, n int) (ok int, last error) {
	t.Helper()
	ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: identity})
	for range n {
		if err := p.Admit(ctx); err != nil {
			last = err
		} else {
			ok++
		}
	}
	return ok, last
}

// TestAdmit checks that the tightest budget limits the requests of a second, also after a
// long pause, and that the organization can still make requests when a folder cannot.
func TestAdmit(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		p := newProcess(t, url)
		org := p.group(t, "", map[resource.Metric]int64{resource.RequestsPerSecond: 10})
		team := p.group(t, org, map[resource.Metric]int64{resource.RequestsPerSecond: 4})
		other := p.group(t, "", nil)
		check := func(step string, group resource.UID, n, want int) {
			t.Helper()
			ok, err := p.admitted(t, group.NewChild(), n)
			if ok != want {
				t.Errorf("%s: %d of %d requests were admitted, want %d", step, ok, n, want)
			}
			if f := fault.From(err); ok < n && (f.Code != fault.ResourceExhausted || f.RetryIn <= 0 || f.Quota == nil) {
				t.Errorf("%s: error = %+v", step, f)
			}
		}
		check("of the folder", team, 20, 4)
		check("of the organization, which had the folder's, too", org, 20, 6)
		check("of another one", other, 20, 20)
		p.now = p.now.Add(500 * time.Millisecond)
		check("half a second later", team, 20, 2)
		p.now = p.now.Add(time.Hour)
		check("after a pause", org, 50, 10)
		p.now = p.now.Add(-time.Minute)
		check("if the clock goes back", org, 50, 0)
		p.now = p.now.Add(time.Second)
		p.limit(t, org, map[resource.Metric]int64{resource.RequestsPerSecond: 1})
		p.limit(t, team, nil)
		check("of a smaller budget", team, 50, 1)
		p.limit(t, org, nil)
		check("without a budget", team, 50, 50)
		if n := p.Refused(resource.RequestsPerSecond); n == 0 || p.Refused(resource.PullsPerDay) != 0 {
			t.Errorf("%d refusals", n)
		}
		person := resource.UserUID("https://people.example", "ann")
		if ok, err := p.admitted(t, person, 50); ok != 50 {
			t.Errorf("%d requests of a person in no group: %v", ok, err)
		}
	})
}

// TestVouchedRequests checks that the requests of a person count in the group of their provider.
func TestVouchedRequests(t *testing.T) {
	p := newProcess(t, storetest.SQLite(t))
	org := p.group(t, "", map[resource.Metric]int64{resource.RequestsPerSecond: 3})
	ctx := authz.WithCaller(t.Context(), authz.Caller{
		Identity: resource.UserUID("https://people.example", "ann"), Voucher: resource.NewVoucher(org.NewChild(), 1),
	})
	for range 3 {
		if err := p.Admit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Admit(ctx); !errors.Is(err, fault.ResourceExhausted) {
		t.Errorf("the fourth request: %v", err)
	}
}

// TestCharge checks that a request that does the work of many delays the next ones, but by maxDebt at most, and no
// requests of another organization.
func TestCharge(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		p := newProcess(t, url)
		org := p.group(t, "", map[resource.Metric]int64{resource.RequestsPerSecond: 10})
		other := p.group(t, "", map[resource.Metric]int64{resource.RequestsPerSecond: 10})
		author := org.NewChild()
		charge := func(n int) {
			p.Charge(authz.WithCaller(t.Context(), authz.Caller{Identity: author}), n)
		}
		check := func(step string, after time.Duration, identity resource.UID, want int) {
			t.Helper()
			p.now = p.now.Add(after)
			if ok, _ := p.admitted(t, identity, 20); ok != want {
				t.Errorf("%s: %d of 20 requests were admitted, want %d", step, ok, want)
			}
		}
		charge(5)
		check("nothing was admitted before", 0, author, 10)
		charge(20)
		check("after 20 more requests", time.Second, author, 0)
		check("two seconds later they are paid", time.Second+100*time.Millisecond, author, 1)
		charge(20_000)
		check("another organization", 0, other.NewChild(), 10)
		check("shortly before the longest delay ends", 9900*time.Millisecond, author, 0)
		check("shortly after it", 300*time.Millisecond, author, 2)
	})
}

// TestReplicasShare checks that each of two replicas admits half of the requests, and that
// a change of a budget on one replica has effect on the other.
func TestReplicasShare(t *testing.T) {
	url := storetest.Postgres(t)
	here, there := newProcess(t, url), newProcess(t, url)
	follow(t, here.store)
	follow(t, there.store)
	org := here.group(t, "", map[resource.Metric]int64{resource.RequestsPerSecond: 20})
	testkit.Until(t, func() bool { return here.store.Replicas() == 2 && there.store.Replicas() == 2 })
	for _, p := range []*process{here, there} {
		if ok, _ := p.admitted(t, org.NewChild(), 50); ok != 10 {
			t.Errorf("a replica admits %d of 20 requests", ok)
		}
	}
	for range 20 {
		here.limit(t, org, map[resource.Metric]int64{resource.BudgetRepos: 0})
		if err := addRepo(t.Context(), there.store, org); !errors.Is(err, fault.FailedPrecondition) {
			t.Fatalf("after the other replica has limited it: %v", err)
		}
		here.limit(t, org, nil)
		if err := addRepo(t.Context(), there.store, org); err != nil {
			t.Fatalf("after the other replica has lifted the limit: %v", err)
		}
	}
}

// follow applies the changes of other processes until the test ends.
func follow(t *testing.T, s *storetest.Store) {
	t.Helper()
	newest, err := s.Renew(t.Context(), replica.Position{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		for ctx.Err() == nil {
			if n, err := s.Renew(ctx, newest); err == nil {
				newest = n
			}
		}
	})
}

func addRepo(ctx context.Context, s *storetest.Store, group resource.UID) error {
	uid := group.NewChild()
	return s.InsertRepo(ctx,
		registry.Repo{UID: uid, Name: string(uid[len(uid)-16:]), CreateTime: morning, UpdateTime: morning})
}

// TestPulls checks that the pulls of a day count on all replicas and after a restart, and
// that the next day begins with zero.
func TestPulls(t *testing.T) {
	storetest.EachURL(t, func(t *testing.T, url string) {
		here := newProcess(t, url)
		org := here.group(t, "", map[resource.Metric]int64{resource.PullsPerDay: 10})
		team := here.group(t, org, nil)
		repo := team.NewChild()
		pulled := func(p *process, n int, public bool) (ok int, last error) {
			for range n {
				if err := p.Pull(t.Context(), repo, public); err != nil {
					last = err
				} else {
					ok++
				}
			}
			return ok, last
		}
		flush := func(p *process) {
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if ok, err := pulled(here, 4, false); ok != 4 {
			t.Fatal(err)
		}
		flush(here)
		there := here // SQLite allows only one process
		if here.store.Replicated() {
			there = newProcess(t, url)
		}
		if ok, err := pulled(there, 4, false); ok != 4 {
			t.Fatal(err)
		}
		flush(there)
		if ok, err := pulled(here, 1, false); ok != 1 {
			t.Fatal(err)
		}
		flush(here) // flush also reads the pulls of other replicas
		ok, err := pulled(here, 10, false)
		if f := fault.From(err); ok != 1 || f.Code != fault.ResourceExhausted || f.RetryIn != 16*time.Hour {
			t.Errorf("%d further pulls of 1, %+v", ok, f)
		}
		if ok, _ := pulled(here, 20, true); ok != 10 {
			t.Errorf("%d pulls of strangers", ok)
		}
		flush(here)
		r, err := here.Show(t.Context(), org)
		if err != nil || r.Usage.Pulls != 10 || r.Usage.PublicPulls != 10 {
			t.Errorf("usage = %+v, %v", r.Usage, err)
		}
		here.now = here.now.Add(16 * time.Hour)
		if ok, err := pulled(here, 3, false); ok != 3 {
			t.Errorf("the next day: %d, %v", ok, err)
		}
	})
}

// TestSurvey checks that Survey counts the groups that are near a limit.
func TestSurvey(t *testing.T) {
	p := newProcess(t, storetest.SQLite(t))
	near := p.group(t, "", map[resource.Metric]int64{resource.BudgetRepos: 10, resource.Webhooks: 10})
	p.group(t, "", map[resource.Metric]int64{resource.BudgetRepos: 10})
	for range 9 {
		if err := addRepo(t.Context(), p.store, near); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Survey(t.Context()); err != nil {
		t.Fatal(err)
	}
	if repos, hooks := p.NearlyUsed(resource.BudgetRepos), p.NearlyUsed(resource.Webhooks); repos != 1 || hooks != 0 {
		t.Errorf("%d groups nearly without repos, %d without webhooks", repos, hooks)
	}
}

// BenchmarkNoBudget measures a check without any budget.
func BenchmarkNoBudget(b *testing.B) {
	url := storetest.SQLite(b)
	s, err := store.Open(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }() // an error does not matter, because nothing was written
	checker, err := authz.Load(b.Context(), s, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	svc := budget.New(s, checker, nil, budget.Config{})
	ctx := authz.WithCaller(b.Context(), authz.Caller{Identity: resource.NewRoot().NewChild().NewChild()})
	for b.Loop() {
		if err := svc.Admit(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
