package api

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// defaultDeadline is the time that a call may take. A caller can set an earlier
// deadline.
const defaultDeadline = 30 * time.Second

// errOverdue is the cause of a context that ended because of defaultDeadline.
var errOverdue = errors.New("the call has reached the time limit")

// withDeadline returns a context that ends after defaultDeadline, or earlier if
// the caller has set an earlier deadline.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, defaultDeadline, errOverdue)
}

// overdue returns err, unless err means that the call has reached defaultDeadline.
// Then it returns a fault that blames the server, because DeadlineExceeded would
// blame the caller.
func overdue(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), errOverdue) {
		return fault.Overdue(defaultDeadline, err)
	}
	return err
}
