package eventdb

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// MaxAttempts is the number of attempts that are stored per subscription. Older attempts are deleted.
const MaxAttempts = 100

// An Attempt is a request to the sink of a subscription.
type Attempt struct {
	EventSeq int64 // 0 for an event that is not in the outbox
	EventID  string
	Type     resource.EventType
	Subject  resource.UID
	Time     time.Time
	Latency  time.Duration
	Status   int       // status of the response; 0 if there was none
	Error    string    // the reason why the event was not accepted, or ""
	Response string    // the beginning of a response that did not accept the event
	Next     time.Time // time of the next attempt; zero if there is none
}

// A SinkReport contains the new attempts of a subscription, and its state after them.
type SinkReport struct {
	Failing  resource.Failing
	Attempts []Attempt
}

// SaveReports stores the reports of subscriptions in one transaction. Deleted subscriptions are ignored. It returns
// fault.Aborted if history differs from store.DB.History; see SaveCursors.
func (s *Store) SaveReports(ctx context.Context, history int64, reports map[resource.UID]SinkReport) error {
	return s.write(ctx, func(t Tx) error {
		if s.History() != history {
			return fault.New(fault.Aborted, "the history of the database has changed")
		}
		for _, uid := range slices.Sorted(maps.Keys(reports)) {
			if err := t.saveReport(ctx, uid, reports[uid]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t Tx) saveReport(ctx context.Context, uid resource.UID, r SinkReport) error {
	since := int64(0)
	if r.Failing.Failing() {
		since = store.MS(r.Failing.Since)
	}
	n, err := t.Exec(ctx, `UPDATE subscriptions SET failing_ms = $2, failing_error = $3,
		failing_reported = failing_reported AND failing_ms = $2 WHERE uid = $1`,
		string(uid), since, r.Failing.Error)
	if err != nil || n == 0 { // the subscription was deleted
		return err
	}
	return t.addAttempts(ctx, uid, r.Attempts)
}

// AddAttempt stores an attempt that is not part of the queue of a subscription, such as a test.
func (s *Store) AddAttempt(ctx context.Context, sub resource.UID, a Attempt) error {
	return s.write(ctx, func(t Tx) error {
		_, err := store.Lock(ctx, t.Tx, &subscriptions, sub, s.Engine.ForUpdate)
		if err != nil {
			return err
		}
		return t.addAttempts(ctx, sub, []Attempt{a})
	})
}

// addAttempts inserts attempts, and deletes the oldest attempts of the subscription.
func (t Tx) addAttempts(ctx context.Context, sub resource.UID, attempts []Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	for _, a := range attempts {
		next := int64(0)
		if !a.Next.IsZero() {
			next = store.MS(a.Next)
		}
		_, err := t.Exec(ctx, `INSERT INTO delivery_attempts (subscription, at_us, event_id, event_seq, event_type, subject,
			status, latency_ms, error, response, next_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
			ON CONFLICT DO NOTHING`,
			store.Segment(sub), a.Time.UnixMicro(), a.EventID, a.EventSeq, string(a.Type), string(a.Subject), a.Status,
			a.Latency.Milliseconds(), a.Error, a.Response, next)
		if err != nil {
			return err
		}
	}
	_, err := t.Exec(ctx, `DELETE FROM delivery_attempts WHERE subscription = $1 AND at_us <= coalesce((
		SELECT at_us FROM delivery_attempts WHERE subscription = $1 ORDER BY at_us DESC LIMIT 1 OFFSET $2), 0)`,
		store.Segment(sub), MaxAttempts)
	return err
}

const selectAttempt = `SELECT at_us, event_id, event_seq, event_type, subject, status, latency_ms, error, response,
	next_ms FROM delivery_attempts WHERE subscription = $1`

// Attempts returns the stored attempts of a subscription, the latest first.
func (s *Store) Attempts(ctx context.Context, sub resource.UID) ([]Attempt, error) {
	return store.ReadAll(ctx, s.Rows, scanAttempt, selectAttempt+` ORDER BY at_us DESC, event_id`, store.Segment(sub))
}

// AttemptOf returns the latest stored attempt of a subscription for an event, or fault.NotFound.
func (s *Store) AttemptOf(ctx context.Context, sub resource.UID, event string) (Attempt, error) {
	attempts, err := store.ReadAll(ctx, s.Rows, scanAttempt,
		selectAttempt+` AND event_id = $2 ORDER BY at_us DESC LIMIT 1`, store.Segment(sub), event)
	if err == nil && len(attempts) == 0 {
		err = fault.New(fault.NotFound, "Not found: the delivery log has no event %q", event)
	}
	if err != nil {
		return Attempt{}, err
	}
	return attempts[0], nil
}

func scanAttempt(row store.Scanner) (a Attempt, _ error) {
	var at, latency, next int64
	err := row.Scan(&at, &a.EventID, &a.EventSeq, &a.Type, &a.Subject, &a.Status, &latency, &a.Error, &a.Response, &next)
	a.Time, a.Latency = time.UnixMicro(at).UTC(), time.Duration(latency)*time.Millisecond
	if next != 0 {
		a.Next = store.FromMS(next)
	}
	return a, err
}

// ReportFailing records that a subscription has been failing for long: with the event SubscriptionFailing, and with the
// changes in also. It does nothing if that was recorded since the last success, if the subscription was deleted, or if
// it is not failing.
func (s *Store) ReportFailing(
	ctx context.Context, uid resource.UID, also func(*store.Tx, resource.Subscription) error,
) error {
	err := s.write(ctx, func(t Tx) error {
		v, err := store.Lock(ctx, t.Tx, &subscriptions, uid, s.Engine.ForUpdate)
		if err != nil || !v.Failing.Failing() {
			return err
		}
		n, err := t.Exec(ctx, `UPDATE subscriptions SET failing_reported = $2 WHERE uid = $1 AND NOT failing_reported`,
			string(uid), true)
		if err != nil || n == 0 {
			return err
		}
		if err := t.Emit(ctx, resource.SubscriptionFailing, uid, v.Group(), nil, v.Redacted()); err != nil {
			return err
		}
		return also(t.Tx, v)
	})
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// FailingSubscriptions returns the number of subscriptions whose sinks do not accept events.
func (s *Store) FailingSubscriptions(ctx context.Context) (n int, err error) {
	err = s.Row(ctx, `SELECT count(*) FROM subscriptions WHERE failing_ms > 0`, nil, &n)
	return n, err
}
