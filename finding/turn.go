package finding

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// Reads over many images take time and memory, so few of them run at the same time on a
// replica. What one organization asks for must not keep others waiting.
const (
	readsAtOnce         = 8
	readsOfOrganization = 2
	queueOfOrganization = 32
	longestWait         = 10 * time.Second
)

var errBusy = &fault.Error{
	Code: fault.ResourceExhausted, RetryIn: 5 * time.Second,
	Message: "Resource exhausted: too many questions about whole groups are asked here at once; try again in a moment",
}

// turns are taken by reads over many images.
type turns struct {
	slots chan struct{}

	mu sync.Mutex
	of map[resource.UID]*lane
}

// A lane has the turns of an organization.
type lane struct {
	slots chan struct{}
	users int // waiting or running
}

func newTurns() *turns {
	return &turns{slots: make(chan struct{}, readsAtOnce), of: map[resource.UID]*lane{}}
}

// take waits for a turn, and returns what ends it. It returns fault.ResourceExhausted if
// too many others of the organization wait, or if it takes too long.
func (t *turns) take(ctx context.Context, whose resource.UID) (done func(), _ error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longestWait, errBusy)
	defer cancel()
	l := t.enter(whose)
	if l == nil {
		return nil, errBusy
	}
	for i, slots := range []chan struct{}{l.slots, t.slots} {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-l.slots
			}
			t.leave(whose)
			return nil, context.Cause(ctx)
		}
	}
	return func() {
		<-t.slots
		<-l.slots
		t.leave(whose)
	}, nil
}

// enter returns the lane of an organization, or nil if it is full.
func (t *turns) enter(whose resource.UID) *lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.of[whose]
	if l == nil {
		l = &lane{slots: make(chan struct{}, readsOfOrganization)}
		t.of[whose] = l
	}
	if l.users >= queueOfOrganization {
		return nil
	}
	l.users++
	return l
}

func (t *turns) leave(whose resource.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[whose].users--; t.of[whose].users == 0 {
		delete(t.of, whose)
	}
}

// takeTurn waits for a turn to read what is in reach. It is one of the organization, or of
// the caller if there are several.
func (s *Service) takeTurn(ctx context.Context, reach []resource.UID) (done func(), _ error) {
	all := roots(reach)
	if len(all) == 1 {
		return s.turns.take(ctx, all[0])
	}
	caller, _ := authz.CallerFrom(ctx)
	return s.turns.take(ctx, caller.Identity)
}
