package dbtest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// A Duel is two conflicting writes that run concurrently, and a check of their errors and effects. Each round of a
// test has a new duel.
type Duel struct {
	A, B func() error
	OK   func(a, b error) error
}

// NewDuel returns a duel of two writes.
func NewDuel(a, b func() error, ok func(a, b error) error) Duel { return Duel{a, b, ok} }

// Run runs both writes and returns the result of the check.
func (d Duel) Run() error { return d.OK(AtOnce(d.A, d.B)) }

// AtOnce runs both functions concurrently and returns their errors.
func AtOnce(f, g func() error) (a, b error) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	wg.Go(func() { <-start; a = f() })
	wg.Go(func() { <-start; b = g() })
	close(start)
	wg.Wait()
	return a, b
}

// OneOf returns a check that exactly one of the two writes succeeded, and that the other failed with ifA or ifB.
func OneOf(ifA, ifB fault.Code) func(a, b error) error {
	return func(a, b error) error {
		if a == nil && errors.Is(b, ifB) || b == nil && errors.Is(a, ifA) {
			return nil
		}
		return fmt.Errorf("errors = %v and %v", a, b)
	}
}
