package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// checks measures authorization with very many bindings: the time to load them, and the time
// of a check.
func checks(ctx context.Context, m *measurement) {
	d := m.bindings(ctx, m.bench.rows)
	var took []time.Duration
	for range checkStarts - 1 {
		s, _, d := load(ctx, d.url)
		took = append(took, d)
		check(s.Close())
	}
	before, used := heap(), processorTime()
	s, c, last := load(ctx, d.url)
	m.atEnd(s.Close)
	m.under("check: start with all bindings", median(append(took, last)).Seconds(), 5, seconds)
	m.note("Start with all bindings: %s of processor time in this process.", brief(processorTime()-used))
	m.under("check: memory for all bindings", float64(heap()-before), 0, megabytes)
	m.follow(ctx, c)
	m.checkCallers(d, c)
	m.whoCan(ctx, d, iamdb.New(s), c)
	m.checkTimed(ctx, d, c)
}

// follow lets the checker apply changes until the measurement ends.
func (m *measurement) follow(ctx context.Context, c *authz.Checker) {
	ctx, cancel := context.WithCancel(ctx)
	followed := make(chan error, 1)
	go func() { followed <- c.Run(ctx) }()
	m.atEnd(func() error {
		cancel()
		return <-followed
	})
}

// whoCan measures the first page of the identities that can do something in a group, and the
// bindings through which one identity can.
func (m *measurement) whoCan(ctx context.Context, d dataset, s *iamdb.Store, c *authz.Checker) {
	random := rand.New(rand.NewPCG(6, 6))
	var who, can []time.Duration
	var found int64
	byUID := page.Order{Field: "uid"}
	for range whoCanTurns {
		identity := d.identity(random.IntN(d.identities))
		held := c.GrantsOf(identity)
		group := held[random.IntN(len(held))].Group
		h := iamdb.HolderQuery{Groups: append(group.Ancestors(), group), Roles: c.RolesWith(resource.GroupsList)}
		begin := time.Now()
		found += must(s.Holders(ctx, h, page.Request{Size: page.DefaultSize, Order: byUID})).Total
		who = append(who, time.Since(begin))
		begin = time.Now()
		must(s.HeldBy(ctx, identity, h.Groups))
		can = append(can, time.Since(begin))
	}
	m.under("who-can: first page", slices.Max(who).Seconds(), 0.05, seconds)
	m.under("can: with its bindings", slices.Max(can).Seconds(), 0.05, seconds)
	m.note("Who-can: %d bindings apply to a group on average; the times are the worst of %d.",
		found/whoCanTurns, whoCanTurns)
}

// load opens a store and loads its bindings, and returns how long that took.
func load(ctx context.Context, url string) (*store.DB, *authz.Checker, time.Duration) {
	begin := time.Now()
	s := must(store.Open(ctx, url))
	c := must(authz.Load(ctx, s, slog.New(slog.DiscardHandler)))
	return s, c, time.Since(begin)
}

// heap returns how many bytes of the heap are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

const (
	checkStarts = 3
	checkTurns  = 20
	checkCalls  = 50_000
	questions   = 8192
	whoCanTurns = 200
	useTurns    = 60
)

// A question is whether a caller may list a group.
type question struct {
	ctx   context.Context
	group resource.UID
}

// callerOf returns the context of a request by an identity.
func callerOf(identity resource.UID) context.Context {
	return authz.WithCaller(context.Background(), authz.Caller{Identity: identity, Issued: time.Now()})
}

// checkCallers measures checks of callers who are allowed, two levels below a group they hold a
// role on, and of callers who are not.
func (m *measurement) checkCallers(d dataset, c *authz.Checker) {
	random := rand.New(rand.NewPCG(5, 5))
	var yes, no []question
	for range questions {
		identity := d.identity(random.IntN(d.identities))
		held := c.GrantsOf(identity)
		ctx := callerOf(identity)
		h := held[random.IntN(len(held))]
		below := resource.UID(segment(random) + segment(random))
		if h.Capabilities.Has(resource.GroupsList) {
			yes = append(yes, question{ctx, h.Group + below})
		}
		no = append(no, question{ctx, d.org + below})
	}
	took, allocations := ask(c, yes, nil)
	m.under("check: allowed", took.Seconds(), 2e-6, seconds)
	m.none("check: allocations, allowed", allocations)
	m.checkUses(c, yes)
	took, _ = ask(c, no, fault.PermissionDenied)
	m.under("check: denied", took.Seconds(), 0, seconds)
}

// checkUses compares checks that note what is used with those that do not, in time of the processor. The two take turns,
// because the machine is not always equally fast.
func (m *measurement) checkUses(c *authz.Checker, yes []question) {
	turn := func(on bool) float64 {
		c.RecordUses(on)
		used := processorTime()
		for i := range checkCalls {
			q := &yes[i%len(yes)]
			check(c.Require(q.ctx, resource.GroupsList, q.group))
		}
		return checkCalls / (processorTime() - used).Seconds()
	}
	turn(true)
	var with, without []float64
	for range useTurns {
		without, with = append(without, turn(false)), append(with, turn(true))
	}
	c.RecordUses(false)
	a, b := median(with), median(without)
	m.faster("check: allowed, with use recorded", rates{a: a, b: b, ratio: a / b}, 0.95)
}

// ask returns the median time of a check, whose result has to be want, and its median number
// of allocations.
func ask(c *authz.Checker, all []question, want error) (time.Duration, float64) {
	var took []time.Duration
	var allocations []float64
	for range checkTurns {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := time.Now()
		for i := range checkCalls {
			q := &all[i%len(all)]
			if err := c.Require(q.ctx, resource.GroupsList, q.group); !errors.Is(err, want) {
				check(fmt.Errorf("answer is %v, not %v", err, want))
			}
		}
		took = append(took, time.Since(begin)/checkCalls)
		runtime.ReadMemStats(&after)
		allocations = append(allocations, float64(after.Mallocs-before.Mallocs)/checkCalls)
	}
	return median(took), median(allocations)
}
