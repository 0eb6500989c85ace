package rig

import (
	"fmt"
	"math/rand/v2"
)

// Distribute distributes the requests of all clients over what there is to ask for.
func Distribute[T any](all []T) func(client int) T {
	next := make([]int, Clients*8) // eight apart, so that clients do not share a cache line
	return func(client int) T {
		next[client*8]++
		return all[(next[client*8]*Clients+client)%len(all)]
	}
}

func NewName() string { return fmt.Sprintf("n-%016x", rand.Uint64()) }

func Random[T any](all []T) T { return all[rand.IntN(len(all))] }
