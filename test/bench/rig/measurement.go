package rig

import (
	"context"
	"errors"
	"slices"
)

// A Measurement is the run of one section on one engine. Like a test, it ends at its first error, and then closes
// everything that it has opened. Check and Must panic with a failure, from which Run recovers. Operations and other
// goroutines must return their errors instead.
type Measurement struct {
	*Bench
	*Report
	Engine  Engine
	closers []func() error
}

// A failure is the error that ends a measurement.
type failure struct{ error }

// Check ends the measurement if err is not nil.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Must returns v. It ends the measurement if err is not nil.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Run runs a section, and returns the error that ended it, if any.
func (m *Measurement) Run(ctx context.Context, section func(context.Context, *Measurement)) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		default:
			panic(v)
		}
		err = errors.Join(err, m.close())
	}()
	section(ctx, m)
	return nil
}

// AtEnd registers f to be called when the measurement ends.
func (m *Measurement) AtEnd(f func() error) { m.closers = append(m.closers, f) }

// close calls the functions registered with AtEnd, the last one first.
func (m *Measurement) close() (err error) {
	for _, f := range slices.Backward(m.closers) {
		err = errors.Join(err, f())
	}
	return err
}

// CompareRates reports the number of calls per second that clients reach with a and with b, and the processor time
// per call.
func (m *Measurement) CompareRates(ctx context.Context, what string, least float64, a, b Operation) {
	p := Race(ctx, a, b)
	m.Faster(what, p, least)
	m.Note("%s: %s of processor time in this process, client included; the baseline %s.",
		what, FormatDuration(p.cpuA), FormatDuration(p.cpuB))
}
