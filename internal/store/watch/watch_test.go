package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamtest"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/watch"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// A recorder is a Reader that keeps what it is called with. Several replicas can share it.
type recorder struct {
	mu      sync.Mutex
	wanted  bool
	becomes func() // if set, it is called after the next question, and events are wanted from then on
	cursor  int64
	groups  []resource.UID // groups whose creation was handled
	missed  []int64
	refuse  error // error of the next call of Handle
}

func (r *recorder) Wanted(context.Context) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := r.wanted
	if r.becomes != nil {
		r.becomes()
		r.wanted, r.becomes = true, nil
	}
	return wanted, nil
}

func (r *recorder) Cursor(context.Context) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cursor, nil
}

func (r *recorder) Save(_ context.Context, seq int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cursor = seq
	return nil
}

func (r *recorder) Missed(_ context.Context, seq int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cursor, r.missed = seq, append(r.missed, seq)
	return nil
}

func (r *recorder) Handle(_ context.Context, events []resource.Event, seq int64) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refuse; err != nil {
		r.refuse = nil
		return false, err
	}
	for _, e := range events {
		if e.Type == resource.GroupCreated {
			r.groups = append(r.groups, e.Subject)
		}
	}
	r.cursor = seq
	return true, nil
}

// has reports whether the groups were handled once, in their order, after Missed was called n times.
func (r *recorder) has(n int, groups ...resource.UID) func() bool {
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.missed) == n && slices.Equal(r.groups, groups)
	}
}

// set changes the recorder.
func (r *recorder) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// start watches until the returned function is called.
func start(t *testing.T, s *iamtest.Store, r *recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := watch.Watch{DB: s.DB, Lease: "test", Reader: r, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not happen: %s", what)
		}
	}
}

// TestPromises contains a test for each promise of a Watch.
func TestPromises(t *testing.T) {
	for name, f := range map[string]func(*testing.T, *iamtest.Store){
		"events are handled once, also after a restart": handledOnce,
		"events after an unknown cursor are missed":     unknownCursor,
		"nobody needs events":                           notWanted,
		"one replica reads at a time":                   oneAtATime,
		"an error repeats the events":                   afterAnError,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			iamtest.Each(t, f)
		})
	}
}

// add adds groups to the database and returns them.
func add(t *testing.T, s *iamtest.Store, names ...string) (groups []resource.UID) {
	t.Helper()
	for _, name := range names {
		groups = append(groups, iamtest.AddGroup(t, s.IAMStore, "", name).UID)
	}
	return groups
}

func handledOnce(t *testing.T, s *iamtest.Store) {
	r := &recorder{wanted: true}
	groups := add(t, s, "a", "b")
	stop := start(t, s, r)
	until(t, "the first are handled", r.has(0, groups...))
	groups = append(groups, add(t, s, "c")...)
	until(t, "a later one is handled", r.has(0, groups...))
	stop()
	groups = append(groups, add(t, s, "d", "e")...)
	start(t, s, r)
	until(t, "those of the pause are handled", r.has(0, groups...))
}

func unknownCursor(t *testing.T, s *iamtest.Store) {
	add(t, s, "a")
	for _, cursor := range []int64{-1, 1 << 40} {
		r := &recorder{wanted: true, cursor: cursor}
		stop := start(t, s, r)
		until(t, fmt.Sprint("the cursor is ", cursor), r.has(1))
		b := add(t, s, fmt.Sprint("after ", max(cursor, 0)))
		until(t, "a later one is handled", r.has(1, b...))
		stop()
	}
}

// notWanted checks that events are passed over while nobody needs them. If somebody needs them by then, an event that
// is passed over is reported as missed.
func notWanted(t *testing.T, s *iamtest.Store) {
	r := &recorder{}
	start(t, s, r)
	add(t, s, "a")
	r.set(func() { r.becomes = func() { add(t, s, "b") } })
	saw := func() (n int) { // the question may also be one after which events are read again, and then b is handled
		r.set(func() { n = len(r.missed) + len(r.groups) })
		return n
	}
	until(t, "the event is missed", func() bool { return saw() == 1 })
	c := add(t, s, "c")
	until(t, "a later one is handled", func() bool { return saw() == 2 })
	if last := r.groups[len(r.groups)-1]; last != c[0] {
		t.Errorf("%s was handled last, want %s", last, c[0])
	}
}

func oneAtATime(t *testing.T, s *iamtest.Store) {
	if !s.DB.Replicated() {
		return // only one process uses the database
	}
	r := &recorder{wanted: true}
	groups := add(t, s, "a")
	stops := []func(){start(t, s, r), start(t, s, r)}
	until(t, "the first is handled", r.has(0, groups...))
	for _, stop := range stops {
		groups = append(groups, add(t, s, fmt.Sprint("g", len(groups)))...)
		until(t, "another one is handled once", r.has(0, groups...))
		stop()
	}
	groups = append(groups, add(t, s, "z")...)
	start(t, s, r)
	until(t, "the lease was released", r.has(0, groups...))
}

func afterAnError(t *testing.T, s *iamtest.Store) {
	r := &recorder{wanted: true, refuse: errors.New("not now")}
	groups := add(t, s, "a", "b")
	start(t, s, r)
	until(t, "the events are handled after all", r.has(0, groups...))
	testkit.Must(t, r.refuse)
}
