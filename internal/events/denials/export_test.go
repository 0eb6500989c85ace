package denials

import "context"

// WriteDue writes the tallies that are due, as Run does every second.
func (r *Recorder) WriteDue(ctx context.Context) { r.write(ctx, r.due(false)) }

// Kept returns the number of tallies and organizations in memory.
func (r *Recorder) Kept() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tallies := range r.tallies {
		n += len(tallies)
	}
	return n + len(r.tallies)
}

// FailWrite takes the pending refusals as Flush does, but restores them as after a failed write. It calls f before they
// are restored.
func (r *Recorder) FailWrite(f func()) {
	due := r.due(true)
	f()
	r.restore(due)
}
