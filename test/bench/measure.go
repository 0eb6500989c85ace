package main

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// How long comparisons take.
const (
	warmUp   = 16
	minTurns = 15
	maxTurns = 400
	turnTime = 4 * time.Second

	rounds    = 21
	roundTime = 300 * time.Millisecond
	clients   = 16
)

// An operation is what is measured. It gets the number of its client, or of its turn.
type operation func(ctx context.Context, client int) error

// A pair is the times of two operations.
type pair struct {
	a, b  time.Duration
	ratio float64
}

func newPair(a, b time.Duration) pair { return pair{a, b, float64(a) / float64(b)} }

// alternate measures a and b alternately, and returns their medians. i counts the turns.
func alternate(ctx context.Context, a, b operation) pair {
	var as, bs []time.Duration
	begin := time.Now()
	for i := range maxTurns + warmUp {
		if i == warmUp {
			as, bs, begin = nil, nil, time.Now()
		}
		if len(as) >= minTurns && time.Since(begin) > turnTime {
			break
		}
		as, bs = append(as, timed(ctx, i, a)), append(bs, timed(ctx, i, b))
	}
	return newPair(median(as), median(bs))
}

func timed(ctx context.Context, i int, f operation) time.Duration {
	begin := time.Now()
	check(f(ctx, i))
	return time.Since(begin)
}

// rates is how often per second two operations can be done.
type rates struct {
	a, b       float64       // medians of the rounds
	ratio      float64       // the median of the rounds' ratios
	cpuA, cpuB time.Duration // of this process, per operation
}

// race lets clients do a as often as they can for a time, then b, and so on. Which comes
// first alternates, so that periodic work of the database affects both.
func race(ctx context.Context, a, b operation) rates { return raceOf(ctx, rounds, roundTime, a, b) }

// raceOf is a race of n rounds, in which a and b each take length.
func raceOf(ctx context.Context, n int, length time.Duration, a, b operation) rates {
	var all [2][]float64
	var cpu [2][]time.Duration
	var ratios []float64
	for i := range n + 1 {
		if i == 1 { // the first round is for warm-up
			all, cpu, ratios = [2][]float64{}, [2][]time.Duration{}, nil
		}
		var rate [2]float64
		for _, side := range [...]int{i % 2, 1 - i%2} {
			var used time.Duration
			rate[side], used = rateOf(ctx, length, []operation{a, b}[side])
			all[side], cpu[side] = append(all[side], rate[side]), append(cpu[side], used)
		}
		ratios = append(ratios, rate[0]/rate[1])
	}
	return rates{median(all[0]), median(all[1]), median(ratios), median(cpu[0]), median(cpu[1])}
}

// rateOf lets clients call f for a time. It returns the calls per second, and the
// processor time of this process per call.
func rateOf(ctx context.Context, length time.Duration, f operation) (rate float64, cpu time.Duration) {
	var done atomic.Int64
	begin, used := time.Now(), processorTime()
	check(together(clients, func(client int) error {
		for time.Since(begin) < length {
			if err := f(ctx, client); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	}))
	n := done.Load()
	return float64(n) / time.Since(begin).Seconds(), (processorTime() - used) / time.Duration(max(n, 1))
}

// together runs f for each of n clients concurrently, and returns the first error.
func together(n int, f func(client int) error) error {
	var g errgroup.Group
	for client := range n {
		g.Go(func() error { return f(client) })
	}
	return g.Wait()
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median[T cmp.Ordered](all []T) T { return quantile(all, 0.5) }

// quantile returns the q-quantile of all.
func quantile[T cmp.Ordered](all []T, q float64) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
