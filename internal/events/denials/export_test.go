package denials

import "context"

// WriteDue does the same as Run each second.
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

// FailWrite does the same as Flush if the database fails, and runs f before the refusals are restored.
func (r *Recorder) FailWrite(f func()) {
	due := r.due(true)
	f()
	r.restore(due)
}
