package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// Limits of a Gatherer.
const (
	gatherMost     = 32                    // questions in one statement
	gatherTime     = 30 * time.Second      // that a statement for several may take
	gatherPatience = 50 * time.Millisecond // for how long a statement keeps others from being sent: it may be stuck
	gatherRuns     = 8                     // statements at a time
)

// A Gatherer asks PostgreSQL several questions of one kind in one statement, because there a round trip costs more than an
// answer. SQLite is asked one by one. It never waits for company: a question that comes while none is being asked is asked
// at once, and those that come meanwhile are asked together as soon as its answer is there.
type Gatherer[Q, A any] struct {
	db       *DB
	one      func(context.Context, Q) (A, error)
	several  func(context.Context, []Q) ([]Answer[A], error)
	patience time.Duration

	mu      sync.Mutex
	running int
	waiting []*question[Q, A]
}

// NewGatherer returns a Gatherer. one asks a single question. several asks many, of PostgreSQL alone, and must answer each as
// one would.
func NewGatherer[Q, A any](
	db *DB, one func(context.Context, Q) (A, error), several func(context.Context, []Q) ([]Answer[A], error),
) *Gatherer[Q, A] {
	return &Gatherer[Q, A]{db: db, one: one, several: several, patience: gatherPatience}
}

// An Answer is what was found, or why nothing was.
type Answer[A any] struct {
	Value A
	Err   error
}

type question[Q, A any] struct {
	ctx    context.Context
	asked  Q
	answer Answer[A]
	done   chan struct{}
}

// Ask asks a question. The answer is as new as that of a statement of its own.
func (g *Gatherer[Q, A]) Ask(ctx context.Context, asked Q) (A, error) {
	if !g.db.Engine.Postgres || rehearsalIn(ctx) != nil {
		return g.one(ctx, asked)
	}
	q := &question[Q, A]{ctx: ctx, asked: asked, done: make(chan struct{})}
	g.mu.Lock()
	if g.running == 0 {
		g.running++
		g.mu.Unlock()
		defer g.pass()
		return g.one(ctx, asked)
	}
	g.waiting = append(g.waiting, q)
	g.mu.Unlock()
	span := trace.Leaf(ctx, "asked with others")
	defer span.End(nil)
	late := time.NewTimer(g.patience)
	defer late.Stop()
	for {
		select {
		case <-q.done:
			return q.answer.Value, q.answer.Err
		case <-ctx.Done():
			return *new(A), ctx.Err()
		case <-late.C:
			g.hurry()
		}
	}
}

// hurry asks those who wait without waiting for the statement before.
func (g *Gatherer[Q, A]) hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 && g.running < gatherRuns {
		g.running++
		go g.next()
	}
}

// pass ends a run, or lets another goroutine go on with those who wait: the caller has its answer.
func (g *Gatherer[Q, A]) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 {
		go g.next()
		return
	}
	g.running--
}

// next asks those who wait, until there are none.
func (g *Gatherer[Q, A]) next() {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), gatherMost)
		some := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		if n == 0 {
			g.running--
		}
		g.mu.Unlock()
		if n == 0 {
			return
		}
		g.answer(some)
	}
}

// answer answers questions. If they cannot be asked together although the database is there, each is asked alone: the others
// are not to suffer from one.
func (g *Gatherer[Q, A]) answer(some []*question[Q, A]) {
	var asked []Q
	for _, q := range some {
		asked = append(asked, q.asked)
	}
	var all []Answer[A]
	err := error(nil)
	if len(some) > 1 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(some[0].ctx), gatherTime)
		all, err = g.several(ctx, asked)
		cancel()
	}
	for i, q := range some {
		switch {
		case errors.Is(err, fault.Unavailable):
			q.answer.Err = err
		case err != nil || len(some) == 1:
			q.answer.Value, q.answer.Err = g.one(q.ctx, q.asked)
		default:
			q.answer = all[i]
		}
		close(q.done)
	}
}
