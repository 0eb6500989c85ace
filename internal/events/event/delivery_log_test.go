package event_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/events/eventdb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
	"github.com/holdfast-dev/holdfast/internal/testkit"
)

// TestDeliveryLog checks that the log of a subscription has every attempt with the response of the sink, but without
// the secrets in it, and that the subscription is failing from the first failure to the next success.
func TestDeliveryLog(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		var well atomic.Bool
		s := newSink(t, func(_ int, rw http.ResponseWriter) bool {
			if !well.Load() {
				rw.WriteHeader(http.StatusBadGateway)
				fmt.Fprintf(rw, "no\x00 <b>key=hunter22</b> \xff eyJhbGciOi.eyJpc3MiOiJ.c2lnbmF0dXJl\n%s",
					strings.Repeat("w", 5000))
			}
			return well.Load()
		})
		v := resource.Subscription{UID: w.org.NewChild(), Sink: s.URL + "/?key=hunter22", CreateTime: time.Now()}
		must(t, w.store.InsertSubscription(t.Context(), v))
		w.dispatch(t, event.Config{})
		until(t, "the subscription is failing", func() bool { return w.failing(t, v.UID).Failing() })
		failing := w.failing(t, v.UID)
		if failing.Error != "the sink answered 502 Bad Gateway" {
			t.Errorf("the error is %q", failing.Error)
		}
		first := w.attempts(t, v.UID)
		last := first[0]
		if last.Status != http.StatusBadGateway || last.Error == "" || last.Next.IsZero() || last.EventID == "" ||
			last.Type != resource.SubscriptionCreated || last.Subject != v.UID || last.Time.Before(failing.Since) {
			t.Errorf("the attempt is %+v", last)
		}
		const begins = `no\x00 <b>…</b> \xff … ww`
		if !strings.HasPrefix(last.Response, begins) || len(last.Response) > 400 {
			t.Errorf("the response is %q, want it to begin with %q", last.Response, begins)
		}
		well.Store(true)
		until(t, "the subscription works", func() bool { return !w.failing(t, v.UID).Failing() })
		if last = w.attempts(t, v.UID)[0]; last.Error != "" || last.Status != http.StatusOK || !last.Next.IsZero() {
			t.Errorf("the accepted attempt is %+v", last)
		}
		w.folders(t, w.org, eventdb.MaxAttempts+30)
		until(t, "the log is full", func() bool { return len(w.attempts(t, v.UID)) == eventdb.MaxAttempts })
		must(t, w.store.DeleteSubscription(t.Context(), v.UID))
		if all := w.attempts(t, v.UID); len(all) > 0 {
			t.Errorf("the log of a deleted subscription has %d attempts", len(all))
		}
	})
}

// TestFailingIsReported checks that a sink that fails for long is reported once, with an event, and again only after it
// has accepted an event. A restart does not change that.
func TestFailingIsReported(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		var well atomic.Bool
		s := newSink(t, func(_ int, rw http.ResponseWriter) bool {
			if !well.Load() {
				rw.WriteHeader(http.StatusInternalServerError)
			}
			return well.Load()
		})
		v := w.subscribe(t, w.org, s)
		var told atomic.Int32
		cfg := event.Config{Alarm: 10 * time.Millisecond,
			Failing: func(_ context.Context, _ *store.Tx, failing resource.Subscription) error {
				if failing.UID != v.UID || !failing.Failing.Failing() {
					t.Errorf("%+v was reported", failing)
				}
				told.Add(1)
				return nil
			}}
		for range 2 {
			stop := w.dispatch(t, cfg)
			until(t, "it was reported", func() bool { return told.Load() == 1 })
			before := len(w.attempts(t, v.UID))
			w.folders(t, w.org, 1)
			until(t, "it was tried again", func() bool { return len(w.attempts(t, v.UID)) > before })
			stop()
		}
		w.wantReports(t, 1)
		w.dispatch(t, cfg)
		well.Store(true)
		until(t, "it works", func() bool { return !w.failing(t, v.UID).Failing() })
		well.Store(false)
		w.folders(t, w.org, 1)
		until(t, "it was reported again", func() bool { return told.Load() == 2 })
		w.wantReports(t, 2)
	})
}

// failing returns the stored state of a subscription.
func (w *fixture) failing(t *testing.T, uid resource.UID) resource.Failing {
	t.Helper()
	v, err := w.store.Subscription(t.Context(), uid)
	must(t, err)
	return v.Failing
}

func (w *fixture) attempts(t *testing.T, uid resource.UID) []eventdb.Attempt {
	t.Helper()
	all, err := w.store.Attempts(t.Context(), uid)
	must(t, err)
	return all
}

// wantReports waits until as many events report failing subscriptions, and checks that there are no more.
func (w *fixture) wantReports(t *testing.T, want int) {
	t.Helper()
	n := 0
	until(t, "the reports are committed", func() bool {
		n = 0
		events, err := outbox.Read(t.Context(), w.store.DB, 0, 1000)
		must(t, err)
		for _, e := range events {
			if e.Type == resource.SubscriptionFailing {
				n++
			}
		}
		return n >= want
	})
	if n != want {
		t.Errorf("%d events report the failing subscription, want %d", n, want)
	}
}

// TestAttemptOf checks that only events in the log of a subscription can be sent again.
func TestAttemptOf(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		s := newSink(t, nil)
		v, other := w.subscribe(t, w.org, s), w.subscribe(t, w.org, s)
		must(t, w.store.AddAttempt(t.Context(), v.UID, eventdb.Attempt{EventID: "one", EventSeq: 7, Time: time.Now()}))
		got, err := w.store.AttemptOf(t.Context(), v.UID, "one")
		must(t, err)
		if got.EventSeq != 7 {
			t.Errorf("the event has the number %d, want 7", got.EventSeq)
		}
		_, err = w.store.AttemptOf(t.Context(), other.UID, "one")
		testkit.WantFault(t, err, fault.NotFound, fault.Resource{})
	})
}
