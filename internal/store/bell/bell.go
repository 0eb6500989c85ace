// Package bell wakes the readers of a queue.
package bell

import "sync"

// A Bell wakes all goroutines that wait for it. The zero value is ready to use.
type Bell struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next ring; nil if nobody waits
}

// Ring wakes everybody who waits.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// Wait returns a channel that the next Ring closes.
func (b *Bell) Wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}
