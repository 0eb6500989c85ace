package denials

import "context"

// WriteDue does what Run does each second.
func (r *Recorder) WriteDue(ctx context.Context) { r.write(ctx, r.due(false)) }

// Kept returns how many different refusals are counted.
func (r *Recorder) Kept() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, all := range r.tallies {
		n += len(all)
	}
	return n + len(r.tallies)
}

// FailWrite does what Flush does if the database fails, and meanwhile runs f.
func (r *Recorder) FailWrite(f func()) {
	due := r.due(true)
	f()
	r.restore(due)
}
