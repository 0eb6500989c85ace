// Package access measures access checks, questions about past access, the exchange of tokens, and sign-in.
package access

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
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

// Checks measures authorization with very many bindings: how long it takes to load them, and how long a check takes.
func Checks(ctx context.Context, m *rig.Measurement) {
	d := m.Bindings(ctx, m.Bench.Rows)
	var took []time.Duration
	for range checkStarts - 1 {
		s, _, d := load(ctx, d.URL)
		took = append(took, d)
		rig.Check(s.Close())
	}
	before, used := heap(), rig.ProcessorTime()
	s, c, last := load(ctx, d.URL)
	m.AtEnd(s.Close)
	m.Below("check: start with all bindings", rig.Median(append(took, last)).Seconds(), 5, rig.Seconds)
	m.Note("Start with all bindings: %s of processor time in this process.", rig.FormatDuration(rig.ProcessorTime()-used))
	m.Below("check: memory for all bindings", float64(heap()-before), 0, rig.Megabytes)
	followChanges(ctx, m, c)
	checkCallers(m, d, c)
	whoCan(ctx, m, d, iamdb.New(s), c)
	checkTimed(ctx, m, d, c)
}

// followChanges runs the loop in which the checker applies changes, until the measurement ends.
func followChanges(ctx context.Context, m *rig.Measurement, c *authz.Checker) {
	ctx, cancel := context.WithCancel(ctx)
	followed := make(chan error, 1)
	go func() { followed <- c.Run(ctx) }()
	m.AtEnd(func() error {
		cancel()
		return <-followed
	})
}

// whoCan measures two queries: the first page of the identities that have a capability in a group, and the bindings
// that give the capability to one identity.
func whoCan(ctx context.Context, m *rig.Measurement, d rig.Dataset, s *iamdb.Store, c *authz.Checker) {
	random := rand.New(rand.NewPCG(6, 6))
	var who, can []time.Duration
	var found int64
	byUID := page.Order{Field: "uid"}
	for range whoCanTurns {
		identity := d.Identity(random.IntN(d.Identities))
		held := c.GrantsOf(identity)
		group := held[random.IntN(len(held))].Group
		h := iamdb.HolderQuery{Groups: append(group.Ancestors(), group), Roles: c.RolesWith(resource.GroupsList)}
		begin := time.Now()
		found += rig.Must(s.Holders(ctx, h, page.Request{Size: page.DefaultSize, Order: byUID})).Total
		who = append(who, time.Since(begin))
		begin = time.Now()
		rig.Must(s.HeldBy(ctx, identity, h.Groups))
		can = append(can, time.Since(begin))
	}
	m.Below("who-can: first page", slices.Max(who).Seconds(), 0.05, rig.Seconds)
	m.Below("can: with its bindings", slices.Max(can).Seconds(), 0.05, rig.Seconds)
	m.Note("Who-can: %d bindings apply to a group on average; the times are the worst of %d.",
		found/whoCanTurns, whoCanTurns)
}

// load opens a store and loads its bindings into a checker. It also returns how long this took.
func load(ctx context.Context, url string) (*store.DB, *authz.Checker, time.Duration) {
	begin := time.Now()
	s := rig.Must(store.Open(ctx, url))
	c := rig.Must(authz.Load(ctx, s, slog.New(slog.DiscardHandler)))
	return s, c, time.Since(begin)
}

// heap returns the number of bytes in use on the heap after a garbage collection.
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

// A question asks whether a caller may list a group.
type question struct {
	ctx   context.Context
	group resource.UID
}

// callerOf returns a context in which the identity is the caller.
func callerOf(identity resource.UID) context.Context {
	return authz.WithCaller(context.Background(), authz.Caller{Identity: identity, Issued: time.Now()})
}

// checkCallers measures checks for callers who are allowed, because they hold a role on a group two levels above, and
// for callers who are denied.
func checkCallers(m *rig.Measurement, d rig.Dataset, c *authz.Checker) {
	random := rand.New(rand.NewPCG(5, 5))
	var yes, no []question
	for range questions {
		identity := d.Identity(random.IntN(d.Identities))
		held := c.GrantsOf(identity)
		ctx := callerOf(identity)
		h := held[random.IntN(len(held))]
		below := resource.UID(rig.RandomSegment(random) + rig.RandomSegment(random))
		if h.Capabilities.Has(resource.GroupsList) {
			yes = append(yes, question{ctx, h.Group + below})
		}
		no = append(no, question{ctx, d.Org + below})
	}
	took, allocations := ask(c, yes, nil)
	m.Below("check: allowed", took.Seconds(), 2e-6, rig.Seconds)
	m.Zero("check: allocations, allowed", allocations)
	checkUses(m, c, yes)
	took, _ = ask(c, no, fault.PermissionDenied)
	m.Below("check: denied", took.Seconds(), 0, rig.Seconds)
}

// checkUses compares the processor time of checks that record the use of grants with checks that do not. The two
// kinds of checks alternate, because the speed of the machine varies.
func checkUses(m *rig.Measurement, c *authz.Checker, yes []question) {
	turn := func(on bool) float64 {
		c.RecordUses(on)
		used := rig.ProcessorTime()
		for i := range checkCalls {
			q := &yes[i%len(yes)]
			rig.Check(c.Require(q.ctx, resource.GroupsList, q.group))
		}
		return checkCalls / (rig.ProcessorTime() - used).Seconds()
	}
	turn(true)
	var with, without []float64
	for range useTurns {
		without, with = append(without, turn(false)), append(with, turn(true))
	}
	c.RecordUses(false)
	a, b := rig.Median(with), rig.Median(without)
	m.Faster("check: allowed, with use recorded", rig.Rates{A: a, B: b, Ratio: a / b}, 0.95)
}

// ask returns the median duration of a check and its median number of allocations. Each check must return want.
func ask(c *authz.Checker, questions []question, want error) (time.Duration, float64) {
	var took []time.Duration
	var allocations []float64
	for range checkTurns {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := time.Now()
		for i := range checkCalls {
			q := &questions[i%len(questions)]
			if err := c.Require(q.ctx, resource.GroupsList, q.group); !errors.Is(err, want) {
				rig.Check(fmt.Errorf("the check returned %v, want %v", err, want))
			}
		}
		took = append(took, time.Since(begin)/checkCalls)
		runtime.ReadMemStats(&after)
		allocations = append(allocations, float64(after.Mallocs-before.Mallocs)/checkCalls)
	}
	return rig.Median(took), rig.Median(allocations)
}
