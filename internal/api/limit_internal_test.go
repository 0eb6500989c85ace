package api

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

type limitKey struct{}

// TestLimit: the context from withDeadline ends like one from context.WithDeadline. That
// does not depend on whether Err or Done was called before it ended.
func TestLimit(t *testing.T) {
	tests := map[string]struct {
		end  func(cancelCaller, end func())
		want error
	}{
		"in time":             {func(_, end func()) { end() }, context.Canceled},
		"by its caller":       {func(cancel, _ func()) { cancel() }, context.Canceled},
		"when its time is up": {func(_, _ func()) { time.Sleep(defaultDeadline) }, context.DeadlineExceeded},
		"when it is up, twice": {func(_, end func()) { time.Sleep(defaultDeadline); synctest.Wait(); end() },
			context.DeadlineExceeded},
	}
	for name, tt := range tests {
		for when, before := range map[string]bool{"asked before": true, "asked after": false} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					caller, cancel := context.WithCancel(context.WithValue(t.Context(), limitKey{}, "v"))
					defer cancel()
					ctx, end := withDeadline(caller)
					defer end()
					if at, ok := ctx.Deadline(); !ok || !at.Equal(time.Now().Add(defaultDeadline)) {
						t.Errorf("deadline %v, %v", at, ok)
					}
					if before && (ctx.Err() != nil || done(ctx)) {
						t.Errorf("over at once: %v", ctx.Err())
					}
					tt.end(cancel, end)
					synctest.Wait()
					if err := ctx.Err(); !errors.Is(err, tt.want) || !done(ctx) {
						t.Errorf("error = %v, done: %v, want %v", err, done(ctx), tt.want)
					}
					if ctx.Value(limitKey{}) != "v" {
						t.Error("the caller's values are gone")
					}
				})
			})
		}
	}
}

func done(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// TestALimitIsFollowedWithoutGoroutines: a context that a database driver derives from
// the context of a call needs no goroutine of its own.
func TestALimitIsFollowedWithoutGoroutines(t *testing.T) {
	ctx, end := withDeadline(t.Context())
	before := runtime.NumGoroutine()
	var all []context.Context
	for range 100 {
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		all = append(all, child)
	}
	if n := runtime.NumGoroutine() - before; n > 10 {
		t.Errorf("%d goroutines follow it", n)
	}
	end()
	for _, child := range all {
		<-child.Done()
	}
}

// TestDeadlineOfTheCaller: a caller can set an earlier deadline than the default, but not
// a later one.
func TestDeadlineOfTheCaller(t *testing.T) {
	for name, tt := range map[string]struct{ asked, want time.Duration }{
		"none":    {0, defaultDeadline},
		"shorter": {time.Second, time.Second},
		"longer":  {time.Hour, defaultDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				caller, cancel := context.WithCancel(t.Context())
				if tt.asked > 0 {
					caller, cancel = context.WithTimeout(t.Context(), tt.asked)
				}
				defer cancel()
				start := time.Now()
				ctx, end := withDeadline(caller)
				defer end()
				<-ctx.Done()
				if took := time.Since(start); took != tt.want || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					t.Errorf("ended after %s with %v, want %s", took, ctx.Err(), tt.want)
				}
			})
		})
	}
}
