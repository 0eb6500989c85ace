package rig

import (
	"fmt"
	"math/rand/v2"
)

// Distribute returns a function that returns one of the values. It spreads the requests of all clients over the
// values.
func Distribute[T any](values []T) func(client int) T {
	next := make([]int, Clients*8) // only every eighth counter is used, so that clients do not share a cache line
	return func(client int) T {
		next[client*8]++
		return values[(next[client*8]*Clients+client)%len(values)]
	}
}

// NewName returns a random name.
func NewName() string { return fmt.Sprintf("n-%016x", rand.Uint64()) }

// Random returns a random one of the values.
func Random[T any](values []T) T { return values[rand.IntN(len(values))] }
