package finding

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
)

var errBusy = &fault.Error{
	Code: fault.ResourceExhausted, RetryIn: 5 * time.Second,
	Message: "Resource exhausted: too many questions about whole groups are asked here at once; try again in a moment",
}

// newTurns returns turns at reads over many images. They take time and memory, so few of them run at the same time on a
// replica. What one organization asks for must not keep others waiting.
func newTurns() *fairlimit.Limiter {
	return fairlimit.New(fairlimit.Limits{Total: 8, PerTenant: 2, QueuedPerTenant: 32, Wait: 10 * time.Second, Busy: errBusy})
}

// takeTurn waits for a turn to read what is in reach. It is one of the organization, or of
// the caller if there are several.
func (s *Service) takeTurn(ctx context.Context, reach []resource.UID) (done func(), _ error) {
	all := roots(reach)
	if len(all) == 1 {
		return s.turns.Acquire(ctx, all[0])
	}
	caller, _ := authz.CallerFrom(ctx)
	return s.turns.Acquire(ctx, caller.Identity)
}
