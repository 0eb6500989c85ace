// Package turn shares out what can be done one at a time only, among tenants and with everybody else.
package turn

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// maxWaiting is how many of one tenant may wait.
const maxWaiting = 8

// Turns lets tenants do something that keeps the writers of SQLite waiting, one at a time. Of one tenant a single one waits
// for its turn with the others, and after each turn nobody has one for as long as it took: however many ask, writers
// have half of the time.
type Turns struct {
	slot chan struct{}

	mu      sync.Mutex
	tenants map[resource.UID]*tenantTurn
}

type tenantTurn struct {
	slot  chan struct{}
	users int // that run or wait
}

// New returns turns of which none is taken.
func New() *Turns {
	return &Turns{slot: make(chan struct{}, 1), tenants: map[resource.UID]*tenantTurn{}}
}

// Take waits for the turn of a tenant. It returns fault.ResourceExhausted if too many of the tenant wait already, and
// the error of ctx. end ends the turn.
func (t *Turns) Take(ctx context.Context, tenant resource.UID) (end func(), _ error) {
	t.mu.Lock()
	own := t.tenants[tenant]
	if own == nil {
		own = &tenantTurn{slot: make(chan struct{}, 1)}
		t.tenants[tenant] = own
	}
	if own.users > maxWaiting {
		t.mu.Unlock()
		f := fault.New(fault.ResourceExhausted, "Resource exhausted: too many of these at once; try again")
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
	for i, slot := range []chan struct{}{own.slot, t.slot} {
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
	begun := time.Now()
	return func() {
		time.AfterFunc(time.Since(begun), func() { <-t.slot })
		<-own.slot
		leave()
	}, nil
}
