package main

import (
	"context"
	"errors"
	"slices"
)

// A measurement is one section on one engine. Like a test, it ends with its first
// error and then closes what it has opened: check and must panic with a failure,
// which run recovers. Operations and other goroutines return their errors.
type measurement struct {
	*bench
	*report
	engine  engine
	closers []func() error
}

// A failure is the error that ends a measurement.
type failure struct{ error }

// check ends the measurement if err is not nil.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns v, or ends the measurement if err is not nil.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// run runs a section, and returns its error.
func (m *measurement) run(ctx context.Context, section func(context.Context, *measurement)) (err error) {
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

// atEnd has f called when the measurement ends.
func (m *measurement) atEnd(f func() error) { m.closers = append(m.closers, f) }

// close closes what was opened, the last first.
func (m *measurement) close() (err error) {
	for _, f := range slices.Backward(m.closers) {
		err = errors.Join(err, f())
	}
	return err
}
