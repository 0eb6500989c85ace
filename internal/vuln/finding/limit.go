package finding

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var errBusy = &fault.Error{
	Code: fault.ResourceExhausted, RetryIn: 5 * time.Second,
	Message: "Resource exhausted: too many queries about whole groups are running; try again in a moment",
}

// A Limiter bounds the number of queries over many images that run at the same
// time on a replica, because they take time and memory. It bounds them per
// tenant, too, so that one tenant does not block the others.
type Limiter struct {
	db      *store.DB
	limiter *fairlimit.Limiter
}

// NewLimiter returns a Limiter. A replica must have only one.
func NewLimiter(db *store.DB) *Limiter {
	return &Limiter{db, fairlimit.New(fairlimit.Limits{
		Total: 8, PerTenant: 2, QueuedPerTenant: 32, Wait: 10 * time.Second, Busy: errBusy,
	})}
}

// Wait waits until a query over the images in reach may start. The caller must call done when the query ends. The query
// counts for the organization that contains reach, or for the caller if reach is in several organizations. Wait returns
// fault.ResourceExhausted if it takes too long.
func (l *Limiter) Wait(ctx context.Context, reach []resource.UID) (done func(), _ error) {
	organizations := Organizations(reach)
	if len(organizations) == 1 {
		return l.limiter.Acquire(ctx, l.db.Tenant(ctx, organizations[0]))
	}
	caller, _ := authz.CallerFrom(ctx)
	return l.limiter.Acquire(ctx, l.db.Tenant(ctx, caller.Identity))
}
