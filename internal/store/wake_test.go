package store_test

import (
	"errors"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestWoken checks that a commit wakes the readers of the queues to which it adds, and that nothing else does.
func TestWoken(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		failed := errors.New("failed")
		for name, tt := range map[string]struct {
			dry  bool
			add  func(*store.Tx) error
			want bool
		}{
			"a commit":             {false, func(x *store.Tx) error { x.Wakes(store.MatchQueue); return nil }, true},
			"another queue":        {false, func(x *store.Tx) error { x.Wakes(store.DocumentQueue); return nil }, false},
			"nothing":              {false, func(*store.Tx) error { return nil }, false},
			"a failed transaction": {false, func(x *store.Tx) error { x.Wakes(store.MatchQueue); return failed }, false},
			"a dry run":            {true, func(x *store.Tx) error { x.Wakes(store.MatchQueue); return nil }, false},
		} {
			ctx := t.Context()
			if tt.dry {
				ctx = resource.WithDryRun(ctx)
			}
			first, second := s.Woken(store.MatchQueue), s.Woken(store.MatchQueue)
			if err := s.Write(ctx, tt.add); err != nil && !errors.Is(err, failed) {
				t.Fatal(err)
			}
			for _, woken := range []<-chan struct{}{first, second} {
				select {
				case <-woken:
					if !tt.want {
						t.Errorf("%s wakes the readers", name)
					}
				default:
					if tt.want {
						t.Errorf("%s wakes nobody", name)
					}
				}
			}
		}
	})
}
