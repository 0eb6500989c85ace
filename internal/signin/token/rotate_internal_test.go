package token

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const rotation = 30 * 24 * time.Hour

// A schedule holds two replicas that maintain their keys, and a clock.
type schedule struct {
	t            *testing.T
	mu           sync.Mutex
	at           time.Time
	mine, theirs *Issuer
}

func newSchedule(t *testing.T, over *storetest.Store, every time.Duration) *schedule {
	t.Helper()
	s := &schedule{t: t, at: time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)}
	cfg := Config{Issuer: "https://auth.test", Key: secret.NewKey(), Rotation: every, Now: s.now}
	for _, i := range []**Issuer{&s.mine, &s.theirs} {
		var err error
		if *i, err = New(t.Context(), over.DB, cfg); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *schedule) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// wait advances the clock.
func (s *schedule) wait(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
}

// tend maintains the keys on both replicas, one after the other.
func (s *schedule) tend() {
	s.t.Helper()
	for _, i := range []*Issuer{s.mine, s.theirs, s.mine} {
		if err := i.maintain(s.t.Context(), slog.New(slog.DiscardHandler)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// atOnce maintains the keys on both replicas several times, all at the same time.
func (s *schedule) atOnce() {
	s.t.Helper()
	var group sync.WaitGroup
	begin := make(chan struct{})
	for _, i := range []*Issuer{s.mine, s.theirs, s.mine, s.theirs, s.mine, s.theirs} {
		group.Go(func() {
			<-begin
			if err := i.maintain(s.t.Context(), slog.New(slog.DiscardHandler)); err != nil {
				s.t.Error(err)
			}
		})
	}
	close(begin)
	group.Wait()
}

// keys returns the ids of all keys, newest first, and the id of the key that signs. Both
// replicas must agree.
func (s *schedule) keys() (all []string, signs string) {
	s.t.Helper()
	told := map[string]bool{}
	for _, i := range []*Issuer{s.mine, s.theirs} {
		i.Invalidate() // as a checker does after a change
		states, err := i.Keys(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		all = nil
		for _, k := range states {
			if k.Algorithm != ES256 {
				continue
			}
			if all = append(all, k.ID); k.Signs {
				signs = k.ID
			}
		}
		told[strings.Join(all, " ")+" by "+signs] = true
	}
	if len(told) != 1 {
		s.t.Errorf("the replicas differ: %v", told)
	}
	return all, signs
}

// want fails the test unless there are that many keys and the key with that index signs. The
// index 0 is the newest key.
func (s *schedule) want(when string, keys, signs int) {
	s.t.Helper()
	all, by := s.keys()
	if len(all) != keys || all[min(signs, len(all)-1)] != by {
		s.t.Errorf("%s: %d keys, %s signs of %v; want %d, and number %d", when, len(all), by, all, keys, signs)
	}
}

func (s *schedule) good(when string, raw string, want bool) {
	s.t.Helper()
	for _, i := range []*Issuer{s.mine, s.theirs} {
		if _, err := i.Verify(s.t.Context(), raw, "a"); (err == nil) != want {
			s.t.Errorf("%s the token is good: %v, want %v (%v)", when, err == nil, want, err)
		}
	}
}

// TestScheduledRotation follows two replicas for a month and a day. An old key is replaced. The
// new key signs after it was published long enough. The old key is removed as soon as none of
// its tokens can be valid, and not earlier.
func TestScheduledRotation(t *testing.T) {
	storetest.Each(t, func(t *testing.T, over *storetest.Store) {
		s := newSchedule(t, over, rotation)
		s.tend()
		s.want("at first", 1, 0)
		s.wait(rotation)
		s.tend()
		s.want("on the day", 1, 0)
		s.wait(time.Millisecond)
		s.tend()
		s.want("after it", 2, 1)
		made := s.now()
		s.wait(keyPublishDelay - time.Millisecond)
		s.tend()
		s.want("before the new one is settled", 2, 1)
		last, err := s.theirs.Mint(
			t.Context(), Claims{Subject: resource.NewRoot(), Audience: []string{"a"}, Life: MaxLife},
		)
		if err != nil {
			t.Fatal(err)
		}
		s.wait(time.Millisecond)
		s.want("once it is", 2, 0)
		s.wait(MaxLife - time.Second)
		s.tend()
		s.want("while the last token of the old one lives", 2, 0)
		s.good("at its end", last, true)
		s.wait(made.Add(keyPublishDelay + keyRetention).Sub(s.now()))
		s.tend()
		s.want("when it has ended", 2, 0)
		s.wait(time.Millisecond)
		s.tend()
		s.want("a moment later", 1, 0)
		s.good("long after its end", last, false)
	})
}

// TestRotationAtOnce: replicas replace a key at the same time, and later remove one at the same
// time. One key is created, one is removed, and no replica fails.
func TestRotationAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, over *storetest.Store) {
		s := newSchedule(t, over, rotation)
		for range 3 {
			before, _ := s.keys()
			s.wait(rotation + time.Millisecond)
			s.atOnce()
			s.want("when a key is due", 2, 1)
			s.wait(keyPublishDelay + keyRetention + time.Millisecond)
			s.atOnce()
			s.want("when one is outlived", 1, 0)
			if after, _ := s.keys(); after[0] == before[0] {
				t.Error("the key that was left is the old one")
			}
		}
	})
}

// TestNoRotation: without a schedule, no key is replaced, and the only key is never removed.
func TestNoRotation(t *testing.T) {
	s := newSchedule(t, storetest.Open(t, storetest.SQLite(t)), 0)
	before, _ := s.keys()
	s.wait(10 * rotation)
	s.atOnce()
	s.want("after months", 1, 0)
	if after, _ := s.keys(); after[0] != before[0] {
		t.Error("the key was replaced")
	}
}
