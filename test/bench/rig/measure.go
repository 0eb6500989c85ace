package rig

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// These constants set the length of comparisons.
const (
	warmUp   = 16
	minTurns = 15
	maxTurns = 400
	turnTime = 4 * time.Second

	Rounds    = 21
	RoundTime = 300 * time.Millisecond
	Clients   = 16
)

// An Operation is an action to measure. Its second argument is the number of the client or of the turn.
type Operation func(ctx context.Context, client int) error

// A Pair contains the durations of two operations, and their ratio.
type Pair struct {
	A, B  time.Duration
	Ratio float64
}

// NewPair returns a Pair with the durations a and b.
func NewPair(a, b time.Duration) Pair { return Pair{a, b, float64(a) / float64(b)} }

// Alternate measures a and b alternately, and returns the medians. It passes the number of the turn to the
// operations.
func Alternate(ctx context.Context, a, b Operation) Pair {
	var as, bs []time.Duration
	begin := time.Now()
	for i := range maxTurns + warmUp {
		if i == warmUp {
			as, bs, begin = nil, nil, time.Now()
		}
		if len(as) >= minTurns && time.Since(begin) > turnTime {
			break
		}
		as, bs = append(as, Timed(ctx, i, a)), append(bs, Timed(ctx, i, b))
	}
	return NewPair(Median(as), Median(bs))
}

// Timed returns the duration of one operation.
func Timed(ctx context.Context, i int, f Operation) time.Duration {
	begin := time.Now()
	Check(f(ctx, i))
	return time.Since(begin)
}

// Rates are the numbers of operations per second that the clients reach with operation A and with operation B.
type Rates struct {
	A, B       float64       // median over the rounds
	Ratio      float64       // median of the rounds' ratios
	cpuA, cpuB time.Duration // processor time of this process, per operation
}

// Race lets clients call a as often as they can for RoundTime, then b, and so on. The operation that comes first
// alternates, so that periodic work of the database affects both operations.
func Race(ctx context.Context, a, b Operation) Rates { return RaceRounds(ctx, Rounds, RoundTime, a, b) }

// RaceRounds is like Race, but with n rounds. In each round a and b each run for the given length.
func RaceRounds(ctx context.Context, n int, length time.Duration, a, b Operation) Rates {
	var perSecond [2][]float64
	var cpu [2][]time.Duration
	var ratios []float64
	for i := range n + 1 {
		if i == 1 { // the first round is for warm-up
			perSecond, cpu, ratios = [2][]float64{}, [2][]time.Duration{}, nil
		}
		var rate [2]float64
		for _, side := range [...]int{i % 2, 1 - i%2} {
			var used time.Duration
			rate[side], used = Rate(ctx, length, []Operation{a, b}[side])
			perSecond[side], cpu[side] = append(perSecond[side], rate[side]), append(cpu[side], used)
		}
		ratios = append(ratios, rate[0]/rate[1])
	}
	return Rates{Median(perSecond[0]), Median(perSecond[1]), Median(ratios), Median(cpu[0]), Median(cpu[1])}
}

// Rate lets clients call f as often as they can for the given length. It returns the number of calls per second, and
// the processor time of this process per call.
func Rate(ctx context.Context, length time.Duration, f Operation) (rate float64, cpu time.Duration) {
	var done atomic.Int64
	begin, used := time.Now(), ProcessorTime()
	Check(Concurrently(Clients, func(client int) error {
		for time.Since(begin) < length {
			if err := f(ctx, client); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	}))
	n := done.Load()
	return float64(n) / time.Since(begin).Seconds(), (ProcessorTime() - used) / time.Duration(max(n, 1))
}

// Concurrently runs f for each of n clients concurrently, and returns the first error.
func Concurrently(n int, f func(client int) error) error {
	var g errgroup.Group
	for client := range n {
		g.Go(func() error { return f(client) })
	}
	return g.Wait()
}

// ProcessorTime returns the processor time that this process has used.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	Check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Median returns the median of values.
func Median[T cmp.Ordered](values []T) T { return Quantile(values, 0.5) }

// Quantile returns the q-quantile of values.
func Quantile[T cmp.Ordered](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
