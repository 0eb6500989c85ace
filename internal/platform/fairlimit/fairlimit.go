// Package fairlimit limits expensive work and shares it fairly among tenants.
package fairlimit

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Limits say how many turns there are. 0 means no limit, but for Each.
type Limits struct {
	All   int           // at once
	Each  int           // of one tenant
	Users int           // of one tenant, who have a turn or wait for one
	Wait  time.Duration // for a turn

	// Rest keeps the place of a turn empty afterwards for as long as the turn took. So with one place, who needs what the
	// turns keep from them has it for half of the time, however many ask.
	Rest bool

	Busy *fault.Error // what those get who cannot have a turn
}

// Busy returns the error for those who cannot have a turn.
func Busy(text string) *fault.Error {
	return &fault.Error{Code: fault.ResourceExhausted, RetryIn: time.Second, Message: "Resource exhausted: " + text + "; try again"}
}

// Turns are taken by tenants. Whoever asks a lot waits for themselves: of one tenant, only those wait with others who have
// one of its own places.
type Turns struct {
	limits Limits
	slots  chan struct{} // nil without a limit

	mu    sync.Mutex
	lanes map[resource.UID]*lane
}

// A lane has the places of a tenant.
type lane struct {
	slots chan struct{}
	users int
}

// New returns turns of which none is taken.
func New(l Limits) *Turns {
	t := &Turns{limits: l, lanes: map[resource.UID]*lane{}}
	if l.All > 0 {
		t.slots = make(chan struct{}, l.All)
	}
	return t
}

// BesideWriters returns turns at what keeps the writers of SQLite waiting: one at a time, and as long none.
func BesideWriters() *Turns {
	const users = 9 // of one tenant
	return New(Limits{All: 1, Each: 1, Users: users, Rest: true, Busy: Busy("too many of these at once")})
}

// Take waits for a turn of a tenant. end ends it. It returns Limits.Busy if too many of the tenant wait already, or if it
// takes too long, and the error of ctx.
func (t *Turns) Take(ctx context.Context, tenant resource.UID) (end func(), _ error) {
	if t.limits.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.limits.Wait, t.limits.Busy)
		defer cancel()
	}
	own := t.enter(tenant)
	if own == nil {
		return nil, t.limits.Busy
	}
	if err := take(ctx, own.slots); err != nil {
		t.leave(tenant)
		return nil, err
	}
	if err := take(ctx, t.slots); err != nil {
		<-own.slots
		t.leave(tenant)
		return nil, err
	}
	begun := time.Now()
	return func() {
		if t.limits.Rest {
			time.AfterFunc(time.Since(begun), t.free)
		} else {
			t.free()
		}
		<-own.slots
		t.leave(tenant)
	}, nil
}

// take waits for a place. Without a limit there is always one.
func take(ctx context.Context, slots chan struct{}) error {
	if slots == nil {
		return ctx.Err()
	}
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *Turns) free() {
	if t.slots != nil {
		<-t.slots
	}
}

// enter returns the lane of a tenant, or nil if it is full.
func (t *Turns) enter(tenant resource.UID) *lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lanes[tenant]
	if l == nil {
		l = &lane{slots: make(chan struct{}, t.limits.Each)}
		t.lanes[tenant] = l
	}
	if t.limits.Users > 0 && l.users >= t.limits.Users {
		return nil
	}
	l.users++
	return l
}

// leave forgets a tenant of whom nobody is left.
func (t *Turns) leave(tenant resource.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lanes[tenant].users--; t.lanes[tenant].users == 0 {
		delete(t.lanes, tenant)
	}
}
