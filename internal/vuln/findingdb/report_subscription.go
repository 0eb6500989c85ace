package findingdb

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

const subscriptionColumns = `t.uid, t.identity, t.voucher, t.create_ms, t.next_ms, t.last_ms, t.problem`

func readSubscription(row store.Scanner) (v vuln.ReportSubscription, _ error) {
	var created, next, last int64
	err := row.Scan(&v.Group, &v.Identity, &v.Voucher, &created, &next, &last, &v.Problem)
	v.CreateTime, v.NextTime = store.FromMS(created), store.FromMS(next)
	if last != 0 {
		v.LastTime = store.FromMS(last)
	}
	return v, err
}

// ReportSubscriptions returns the subscriptions of a person, by group.
func (s *Store) ReportSubscriptions(ctx context.Context, identity resource.UID) ([]vuln.ReportSubscription, error) {
	return store.ReadAll(ctx, s.Rows, readSubscription, `SELECT `+subscriptionColumns+`
		FROM report_subscriptions AS t WHERE t.identity = $1 ORDER BY t.uid`, string(identity))
}

// AddReportSubscription adds a subscription, whose first report is due now. If the person has subscribed to the group
// before, only the voucher changes. It returns fault.NotFound if there is no such group, and fault.FailedPrecondition
// if the person or the organization has too many subscriptions.
func (s *Store) AddReportSubscription(
	ctx context.Context, v vuln.ReportSubscription,
) (got vuln.ReportSubscription, _ error) {
	err := s.Write(ctx, func(tx *store.Tx) error {
		t := In(tx)
		if err := t.RequireGroup(ctx, v.Group); err != nil {
			return err
		}
		// Subscriptions of one organization are added one after the other, so that they are counted correctly.
		if err := t.LockGroup(ctx, v.Group.Root()); err != nil {
			return err
		}
		before, err := t.reportSubscription(ctx, v.Identity, v.Group)
		if err == nil {
			got = before
			got.Voucher = v.Voucher
			_, err = t.Exec(ctx, `UPDATE report_subscriptions SET voucher = $1 WHERE identity = $2 AND grp = $3`,
				string(v.Voucher), string(v.Identity), store.Segment(v.Group))
			return err
		}
		if !errors.Is(err, fault.NotFound) {
			return err
		}
		if err := t.checkSubscriptions(ctx, v); err != nil {
			return err
		}
		v.CreateTime = s.Time()
		v.NextTime, got = v.CreateTime, v
		got.NextTime = v.NextTime
		if _, err := t.Exec(ctx, `INSERT INTO report_subscriptions (identity, grp, uid, voucher, create_ms, next_ms)
			VALUES ($1, $2, $3, $4, $5, $5)`, string(v.Identity), store.Segment(v.Group), string(v.Group),
			string(v.Voucher), store.MS(v.CreateTime)); err != nil {
			return err
		}
		return t.Emit(ctx, resource.ReportSubscribed, v.Group, v.Group, nil, v)
	})
	return got, err
}

// checkSubscriptions returns fault.FailedPrecondition if one more subscription would be too many.
func (t Tx) checkSubscriptions(ctx context.Context, v vuln.ReportSubscription) error {
	var own, all int
	if err := t.Row(ctx, `SELECT (SELECT count(*) FROM report_subscriptions WHERE identity = $1),
		(SELECT count(*) FROM report_subscriptions WHERE uid >= $2 AND uid < $3)`,
		[]any{string(v.Identity), string(v.Group.Root()), string(v.Group.Root()) + "0"}, &own, &all); err != nil {
		return err
	}
	switch {
	case own >= vuln.MaxReportSubscriptions:
		return fault.Unmet("TOO_MANY_SUBSCRIPTIONS", "you have %d subscriptions, the largest number; unsubscribe first", own)
	case all >= vuln.MaxReportSubscriptionsOrganization:
		return fault.Unmet("TOO_MANY_SUBSCRIPTIONS",
			"the organization has %d subscriptions to reports, the largest number", all)
	}
	return nil
}

// reportSubscription locks and returns a subscription. It returns fault.NotFound if there is none.
func (t Tx) reportSubscription(
	ctx context.Context, identity, group resource.UID,
) (v vuln.ReportSubscription, _ error) {
	found, err := store.ReadAll(ctx, t.Rows, readSubscription, `SELECT `+subscriptionColumns+`
		FROM report_subscriptions AS t WHERE t.identity = $1 AND t.uid = $2`+t.DB.Engine.ForDelete,
		string(identity), string(group))
	if err != nil {
		return v, err
	}
	if len(found) == 0 {
		return v, fault.Missing("subscription to the report of", string(group))
	}
	return found[0], nil
}

// DeleteReportSubscription removes a subscription. It returns fault.NotFound if there is none.
func (s *Store) DeleteReportSubscription(ctx context.Context, identity, group resource.UID) error {
	return s.Write(ctx, func(tx *store.Tx) error {
		t := In(tx)
		before, err := t.reportSubscription(ctx, identity, group)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `DELETE FROM report_subscriptions WHERE identity = $1 AND grp = $2`,
			string(identity), store.Segment(group)); err != nil {
			return err
		}
		return t.Emit(ctx, resource.ReportUnsubscribed, group, group, before, nil)
	})
}

// maxDueRead is the number of due subscriptions among which the next one is chosen.
const maxDueRead = 100

// ClaimReport returns a subscription whose report is due, and claims it until a time, so that no other caller on any
// replica gets it. If several are due, it prefers an organization other than the last one. The NextTime of the
// result is the end of the claim. After that time the report is due again, unless FinishReport has been called.
func (s *Store) ClaimReport(
	ctx context.Context, now, until time.Time, last resource.UID,
) (v vuln.ReportSubscription, ok bool, _ error) {
	due, err := store.ReadAll(ctx, s.Rows, readSubscription, `SELECT `+subscriptionColumns+`
		FROM report_subscriptions AS t WHERE t.next_ms <= $1 ORDER BY t.next_ms LIMIT $2`, store.MS(now), maxDueRead)
	if err != nil || len(due) == 0 {
		return v, false, err
	}
	v = due[0]
	for _, d := range due {
		if d.Group.Root() != last {
			v = d
			break
		}
	}
	// Two replicas may have read the same row. The condition makes the second update change nothing.
	n, err := s.Exec(ctx, `UPDATE report_subscriptions SET next_ms = $1 WHERE identity = $2 AND grp = $3 AND next_ms = $4`,
		store.MS(until), string(v.Identity), store.Segment(v.Group), store.MS(v.NextTime))
	v.NextTime = until
	return v, n == 1 && err == nil, err
}

// FinishReport records the result of a claimed report, and when the next one is due. sent says whether it was queued.
// It reports whether the claim still holds. If not, nothing is written, and the caller must not queue the report.
func (t Tx) FinishReport(
	ctx context.Context, v vuln.ReportSubscription, next time.Time, sent bool, problem string,
) (bool, error) {
	last := int64(0)
	if !v.LastTime.IsZero() {
		last = store.MS(v.LastTime)
	}
	if sent {
		last = store.MS(t.DB.Time())
	}
	n, err := t.Exec(ctx, `UPDATE report_subscriptions SET next_ms = $1, last_ms = $2, problem = $3
		WHERE identity = $4 AND grp = $5 AND next_ms = $6 AND create_ms = $7`, store.MS(next), last, problem,
		string(v.Identity), store.Segment(v.Group), store.MS(v.NextTime), store.MS(v.CreateTime))
	return n == 1, err
}

// DropReportSubscriptions removes all subscriptions of a person who no longer exists.
func (t Tx) DropReportSubscriptions(ctx context.Context, identity resource.UID) error {
	_, err := t.Exec(ctx, `DELETE FROM report_subscriptions WHERE identity = $1`, string(identity))
	return err
}
