// Package allowance makes limits of counters cheap to enforce.
package allowance

import "sync"

const (
	part       = 16
	maxEntries = 10_000 // number of counters; when it is exceeded, all are counted again
)

// A Table has the amounts that this process may add to counters before it counts again. Without it, every write of a
// limited kind would count. A process may add a sixteenth of the amount that was left when it counted. So a limit is
// exact with one process, and each further replica can exceed it by a sixteenth at most. The zero value is ready to
// use.
type Table[K comparable] struct {
	mu   sync.Mutex
	left map[K]int64
}

// Take reports whether n may be added to a counter, and subtracts n from its allowance.
func (t *Table[K]) Take(key K, n int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left[key] < n {
		return false
	}
	t.left[key] -= n
	return true
}

// Set stores the allowance of a counter that can grow by left.
func (t *Table[K]) Set(key K, left int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left == nil || len(t.left) >= maxEntries {
		t.left = map[K]int64{}
	}
	t.left[key] = left / part
}
