// Package fairlimit limits how many expensive tasks run at the same time, and
// shares the capacity fairly among tenants.
package fairlimit

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Limits configures a Limiter. 0 means no limit, except for PerTenant, which must
// be at least 1.
type Limits struct {
	Total           int           // largest number of running tasks
	PerTenant       int           // largest number of running tasks per tenant
	QueuedPerTenant int           // largest number of running and waiting tasks per tenant
	Wait            time.Duration // longest wait for admission

	// Rest keeps the slot of a task empty afterwards for as long as the task took. With
	// Total 1, work that the tasks block gets half of the time, no matter how many tasks
	// are waiting.
	Rest bool

	Busy *fault.Error // returned if a task is not admitted
}

// Busy returns an error for Limits.Busy that asks the client to try again.
func Busy(text string) *fault.Error {
	return &fault.Error{
		Code: fault.ResourceExhausted, RetryIn: time.Second, Message: "Resource exhausted: " + text + "; try again",
	}
}

// A Limiter admits tasks of tenants. A task waits for a slot of its tenant first, and
// then for one of the shared slots. So a tenant with many tasks delays mainly itself:
// at most PerTenant of its tasks compete with the tasks of other tenants. It is safe
// for concurrent use.
type Limiter struct {
	limits Limits
	slots  chan struct{} // slots that all tenants share; nil without a limit

	mu      sync.Mutex
	tenants map[resource.Tenant]*tenantQueue
}

// A tenantQueue holds the slots of one tenant.
type tenantQueue struct {
	slots chan struct{}
	tasks int // number of running and waiting tasks
}

// New returns a Limiter on which no task is running.
func New(l Limits) *Limiter {
	t := &Limiter{limits: l, tenants: map[resource.Tenant]*tenantQueue{}}
	if l.Total > 0 {
		t.slots = make(chan struct{}, l.Total)
	}
	return t
}

// YieldToWriters returns a limiter for work that blocks SQLite writers. It admits one
// task at a time, then stays idle for as long as the task took.
func YieldToWriters() *Limiter {
	const queued = 9 // running and waiting tasks per tenant
	return New(Limits{
		Total: 1, PerTenant: 1, QueuedPerTenant: queued, Rest: true, Busy: Busy("too many of these at once"),
	})
}

// Acquire waits until a task of a tenant may run. The caller must call release when
// the task has ended. Acquire returns Limits.Busy if too many tasks of the tenant
// are queued already, or if the wait takes longer than Limits.Wait. It returns the
// error of ctx if ctx ends first.
func (t *Limiter) Acquire(ctx context.Context, tenant resource.Tenant) (release func(), _ error) {
	if t.limits.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.limits.Wait, t.limits.Busy)
		defer cancel()
	}
	queue := t.enter(tenant)
	if queue == nil {
		return nil, t.limits.Busy
	}
	if err := takeSlot(ctx, queue.slots); err != nil {
		t.leave(tenant)
		return nil, err
	}
	if err := takeSlot(ctx, t.slots); err != nil {
		<-queue.slots
		t.leave(tenant)
		return nil, err
	}
	begun := time.Now()
	return func() {
		if t.limits.Rest {
			time.AfterFunc(time.Since(begun), t.freeSlot)
		} else {
			t.freeSlot()
		}
		<-queue.slots
		t.leave(tenant)
	}, nil
}

// takeSlot waits for a slot. If slots is nil, there is no limit.
func takeSlot(ctx context.Context, slots chan struct{}) error {
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

func (t *Limiter) freeSlot() {
	if t.slots != nil {
		<-t.slots
	}
}

// enter adds a task to the queue of a tenant. It returns nil if the queue is full.
func (t *Limiter) enter(tenant resource.Tenant) *tenantQueue {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.tenants[tenant]
	if q == nil {
		q = &tenantQueue{slots: make(chan struct{}, t.limits.PerTenant)}
		t.tenants[tenant] = q
	}
	if t.limits.QueuedPerTenant > 0 && q.tasks >= t.limits.QueuedPerTenant {
		return nil
	}
	q.tasks++
	return q
}

// leave removes a task from the queue of its tenant, and the queue if it is empty.
func (t *Limiter) leave(tenant resource.Tenant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tenants[tenant].tasks--; t.tenants[tenant].tasks == 0 {
		delete(t.tenants, tenant)
	}
}
