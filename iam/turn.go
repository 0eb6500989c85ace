package iam

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// How many simulations run at once, and how many of one tenant may wait.
const (
	simulations      = 2
	simulationsQueue = 8
)

// turns lets tenants do something expensive, one at a time each and few altogether. So whoever asks a lot waits for
// themselves, and others wait for one of theirs at most.
type turns struct {
	slots chan struct{}

	mu      sync.Mutex
	tenants map[resource.UID]*tenantTurn
}

type tenantTurn struct {
	slot  chan struct{}
	users int // that run or wait
}

func newTurns() *turns {
	return &turns{slots: make(chan struct{}, simulations), tenants: map[resource.UID]*tenantTurn{}}
}

// acquire waits for the turn of a tenant. It returns fault.ResourceExhausted if too many of the tenant wait already, and
// the error of ctx. release ends the turn.
func (t *turns) acquire(ctx context.Context, tenant resource.UID) (release func(), _ error) {
	t.mu.Lock()
	own := t.tenants[tenant]
	if own == nil {
		own = &tenantTurn{slot: make(chan struct{}, 1)}
		t.tenants[tenant] = own
	}
	if own.users > simulationsQueue {
		t.mu.Unlock()
		f := fault.New(fault.ResourceExhausted, "Resource exhausted: too many simulations at once; try again")
		f.RetryIn = time.Second
		return nil, f
	}
	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.tenants, tenant)
		}
	}
	for i, slot := range []chan struct{}{own.slot, t.slots} {
		select {
		case slot <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-own.slot
			}
			leave()
			return nil, ctx.Err()
		}
	}
	return func() {
		<-t.slots
		<-own.slot
		leave()
	}, nil
}
