package refusal

import "context"

// WriteDue does what Run does each second.
func (r *Recorder) WriteDue(ctx context.Context) { r.write(ctx, r.due(false)) }
