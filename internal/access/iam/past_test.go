package iam_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// over waits until all changes are in the past, and returns the current time. Each change has its own millisecond, so
// many changes in a row can have times after the current time.
func (w *world) over() time.Time {
	w.t.Helper()
	var last int64
	must(w.t, w.store.Row(w.t.Context(), `SELECT at_ms FROM revision WHERE id = 1`, nil, &last))
	at := time.UnixMilli(max(last, time.Now().UnixMilli()))
	testkit.Until(w.t, func() bool { return time.Since(at) >= 2*time.Millisecond })
	return at
}

// TestOldHistoryIsDeleted checks that the records of past grants are deleted after the time that the operator has set.
func TestOldHistoryIsDeleted(t *testing.T) {
	each(t, iam.Config{KeepHistory: time.Millisecond}, func(t *testing.T, w *world) {
		at := w.over()
		ask := func() error {
			_, err := w.ListAccessAt(w.owner, resource.GroupsList, w.acme.UID, at, page.Params{})
			return err
		}
		must(t, ask())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx, slog.New(slog.DiscardHandler)) }()
		testkit.Until(t, func() bool {
			err := ask()
			if errors.Is(err, fault.FailedPrecondition) {
				return true
			}
			must(t, err)
			return false
		})
		cancel()
		must(t, <-done)
		if _, err := w.CheckAccess(w.owner, w.acme.UID, resource.GroupsList, w.acme.UID); err != nil {
			t.Errorf("now: %v", err)
		}
	})
}

// TestPagesOfThePast checks that a page token contains the time of its list, and is valid only for that time.
func TestPagesOfThePast(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		viewer := resource.ManagedRoleUID("viewer")
		for range 3 {
			_, err := w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{Identity: resource.NewRoot(), Role: viewer})
			must(t, err)
		}
		at := w.over()
		_, err := w.CreateBinding(w.owner, w.acme.UID, resource.RoleBinding{Identity: resource.NewRoot(), Role: viewer})
		must(t, err)
		seen := 0
		p := page.Params{Size: 1}
		for asked := at; ; asked = (time.Time{}) {
			got, err := w.ListAccessAt(w.owner, resource.GroupsList, w.acme.UID, asked, p)
			must(t, err)
			if seen += len(got.Items); got.Total != 4 { // bindings of the owner and of three other identities
				t.Fatalf("as of %s there were %d", at, got.Total)
			}
			if !got.Allowed {
				t.Errorf("as of %s nobody held the capability", at)
			}
			if p.Token = got.Next; p.Token == "" {
				break
			}
			_, err = w.ListAccessAt(w.owner, resource.GroupsList, w.acme.UID, at.Add(time.Millisecond), p)
			if !errors.Is(err, fault.InvalidArgument) {
				t.Fatalf("the token of another time: %v", err)
			}
		}
		if seen != 4 {
			t.Errorf("%d bindings on all pages", seen)
		}
	})
}

// TestNobodyInThePast checks that a list says that nobody held a capability at a time before the first binding.
func TestNobodyInThePast(t *testing.T) {
	story(t, iam.Config{}, func(t *testing.T, w *world) {
		var since int64
		must(t, w.store.Row(t.Context(), `SELECT since_ms FROM access_history WHERE id = 1`, nil, &since))
		got, err := w.ListAccessAt(w.owner, resource.GroupsList, w.acme.UID, time.UnixMilli(since), page.Params{})
		must(t, err)
		if got.Allowed || got.Total != 0 || len(got.Items) > 0 {
			t.Errorf("before the first binding, %d bindings gave the capability, allowed: %t", got.Total, got.Allowed)
		}
	})
}
