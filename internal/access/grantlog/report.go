package grantlog

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// DueReports returns the groups with a subscription whose last report of unused access was before a time. For a group
// without a report, the creation of its first subscription counts instead.
func (s *Store) DueReports(ctx context.Context, before time.Time) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows, `
		SELECT g.uid FROM `+store.GroupRows+` AS g
		JOIN (SELECT parent, min(create_ms) AS first_ms FROM subscriptions GROUP BY parent) AS s ON s.parent = g.seg
		LEFT JOIN unused_reports AS r ON r.grp = g.seg
		WHERE coalesce(r.last_ms, s.first_ms) < $1 ORDER BY g.uid`, store.MS(before))
}

// Report emits the event with the report of unused access in a group, unless the group already has a report since the
// time given as before. It returns whether it has emitted the event. Several replicas may call it at the same time.
func (s *Store) Report(ctx context.Context, r resource.UnusedReport, before time.Time) (done bool, _ error) {
	err := s.Write(ctx, func(t *store.Tx) error {
		currentTime, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		n, err := t.Exec(ctx, `INSERT INTO unused_reports (grp, last_ms)
			SELECT seg, CAST($2 AS BIGINT) FROM `+store.GroupRows+` AS groups WHERE uid = $1
			ON CONFLICT (grp) DO UPDATE SET last_ms = excluded.last_ms WHERE unused_reports.last_ms < $3`,
			string(r.Group), store.MS(currentTime), store.MS(before))
		if done = err == nil && n > 0; !done {
			return err
		}
		return t.Emit(ctx, resource.AccessUnused, r.Group, r.Group, nil, r)
	})
	return done, err
}
