package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
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
	a, b  time.Duration // medians
	ratio float64       // of the medians
}

// alternate measures a and b alternately. i counts the turns.
func alternate(ctx context.Context, a, b operation) (pair, error) {
	var as, bs []time.Duration
	begin := time.Now()
	for i := range maxTurns + warmUp {
		if i == warmUp {
			as, bs, begin = nil, nil, time.Now()
		}
		if len(as) >= minTurns && time.Since(begin) > turnTime {
			break
		}
		ta, err := timed(ctx, i, a)
		if err != nil {
			return pair{}, err
		}
		tb, err := timed(ctx, i, b)
		if err != nil {
			return pair{}, err
		}
		as, bs = append(as, ta), append(bs, tb)
	}
	p := pair{a: median(as), b: median(bs)}
	p.ratio = float64(p.a) / float64(p.b)
	return p, nil
}

func timed(ctx context.Context, i int, f operation) (time.Duration, error) {
	begin := time.Now()
	err := f(ctx, i)
	return time.Since(begin), err
}

// rates is how often per second two operations can be done.
type rates struct {
	a, b       float64       // medians of the rounds
	ratio      float64       // the median of the rounds' ratios
	cpuA, cpuB time.Duration // of this process, per operation
}

// race lets clients do a as often as they can for a time, then b, and so on. Which comes
// first alternates, so that periodic work of the database affects both.
func race(ctx context.Context, a, b operation) (rates, error) {
	return raceOf(ctx, rounds, roundTime, a, b)
}

// raceOf is a race of n rounds, in which a and b each take length.
func raceOf(ctx context.Context, n int, length time.Duration, a, b operation) (rates, error) {
	var as, bs, ratios []float64
	var cpuA, cpuB []time.Duration
	for i := range n + 1 {
		var ra, rb float64
		var ca, cb time.Duration
		first := func() (err error) { ra, ca, err = rateOf(ctx, length, a); return err }
		second := func() (err error) { rb, cb, err = rateOf(ctx, length, b); return err }
		if i%2 == 1 {
			first, second = second, first
		}
		if err := first(); err != nil {
			return rates{}, err
		}
		if err := second(); err != nil {
			return rates{}, err
		}
		if i == 0 { // warm-up
			continue
		}
		as, bs, ratios = append(as, ra), append(bs, rb), append(ratios, ra/rb)
		cpuA, cpuB = append(cpuA, ca), append(cpuB, cb)
	}
	return rates{median(as), median(bs), median(ratios), median(cpuA), median(cpuB)}, nil
}

// rateOf lets clients call f for a time. It returns the calls per second, and the
// processor time of this process per call.
func rateOf(ctx context.Context, length time.Duration, f operation) (rate float64, cpu time.Duration, _ error) {
	var done atomic.Int64
	begin, used := time.Now(), processorTime()
	err := together(clients, func(client int) error {
		for time.Since(begin) < length {
			if err := f(ctx, client); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	n := done.Load()
	return float64(n) / time.Since(begin).Seconds(), (processorTime() - used) / time.Duration(max(n, 1)), err
}

// together runs f for each of n clients concurrently, and returns the first error.
func together(n int, f func(client int) error) error {
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for client := range n {
		wg.Go(func() {
			if err := f(client); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	wg.Wait()
	return first
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median[T cmp.Ordered](all []T) T { return quantile(all, 0.5) }

// quantile returns the q-quantile of all.
func quantile[T cmp.Ordered](all []T, q float64) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
