package findingdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// ClaimDayRun returns an organization whose findings are due to be counted, and claims it until the time next, so that
// no other caller on any replica gets it. ok is false if none is due. The caller must call FinishDayRun. If it does
// not, for example because its process was killed, the organization is due again at next.
func (s *Store) ClaimDayRun(ctx context.Context, now, next time.Time) (root resource.UID, ok bool, _ error) {
	err := s.Row(ctx, `SELECT g.uid FROM `+store.GroupRows+` AS g LEFT JOIN finding_day_runs AS r ON r.root = g.seg
		WHERE g.parent IS NULL AND (r.due_ms IS NULL OR r.due_ms <= $1) ORDER BY COALESCE(r.due_ms, 0), g.seg LIMIT 1`,
		[]any{store.MS(now)}, &root)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	n, err := s.Exec(ctx, `INSERT INTO finding_day_runs (root, due_ms) VALUES ($1, $2)
		ON CONFLICT (root) DO UPDATE SET due_ms = excluded.due_ms WHERE finding_day_runs.due_ms <= $3`,
		store.Segment(root), store.MS(next), store.MS(now))
	return root, n > 0, err
}

// FinishDayRun sets when an organization is due again, and why its last count failed. "" means that it succeeded.
func (s *Store) FinishDayRun(ctx context.Context, root resource.UID, next time.Time, failure string) error {
	_, err := s.Exec(ctx, `UPDATE finding_day_runs SET due_ms = $1, failure = $2 WHERE root = $3`, store.MS(next), failure,
		store.Segment(root))
	return err
}

// DayFailure returns why the last count of an organization failed. It is "" if the count succeeded, or if there was
// none.
func (s *Store) DayFailure(ctx context.Context, root resource.UID) (failure string, _ error) {
	err := s.Row(ctx, `SELECT r.failure FROM finding_day_runs AS r JOIN `+store.GroupRows+` AS g ON g.seg = r.root
		WHERE g.uid = $1`, []any{string(root)}, &failure)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return failure, err
}

// LastDay returns the last day of a group that has counts, or 0 if there is none.
func (s *Store) LastDay(ctx context.Context, group resource.UID) (day vuln.Day, _ error) {
	var last int64
	err := s.Row(ctx, `SELECT COALESCE(max(d.day), 0) FROM finding_days AS d JOIN `+store.GroupRows+` AS g ON g.seg = d.grp
		WHERE g.uid = $1`, []any{string(group)}, &last)
	return vuln.Day(last), err
}

// PutDays stores the counts of the groups of an organization. It replaces counts of the same day, and deletes counts
// that are too old. closed contains the changes of an earlier day. PutDays raises the stored numbers of that day to
// them; it does not lower a number, because deleted images no longer count, but were counted on the day.
func (s *Store) PutDays(ctx context.Context, root resource.UID, days, closed []vuln.FindingDay) error {
	return s.Write(ctx, func(t *store.Tx) error {
		if err := closeDays(ctx, t, root, closed); err != nil {
			return err
		}
		existing, err := store.ReadColumn[int64](ctx, t.Rows, `SELECT g.seg FROM `+store.GroupRows+` AS g
			WHERE g.uid >= $1 AND g.uid < $1 || '0'`, string(root))
		if err != nil {
			return err
		}
		exists := map[int64]bool{}
		for _, key := range existing {
			exists[key] = true
		}
		var rows [][]any
		for _, d := range days {
			key := store.Segment(d.Group)
			if !exists[key] { // the group was deleted after the count
				continue
			}
			counts, err := json.Marshal(d)
			if err != nil {
				return err
			}
			rows = append(rows, []any{key, int64(d.Day), string(counts)})
		}
		if err := t.InsertRows(ctx, `INSERT INTO finding_days (grp, day, counts)`, rows,
			` ON CONFLICT (grp, day) DO UPDATE SET counts = excluded.counts`); err != nil || len(rows) == 0 {
			return err
		}
		oldest := int64(days[0].Day) - vuln.KeepFindingDays
		_, err = t.Exec(ctx, `DELETE FROM finding_days WHERE day < $1 AND grp IN (SELECT g.seg FROM `+store.GroupRows+` AS g
			WHERE g.uid >= $2 AND g.uid < $2 || '0')`, oldest, string(root))
		return err
	})
}

// closeDays raises the stored changes of groups of an organization on a day. It adds no day to a group.
func closeDays(ctx context.Context, t *store.Tx, root resource.UID, closed []vuln.FindingDay) error {
	if len(closed) == 0 || closed[0].Day == 0 {
		return nil
	}
	stored, err := store.ReadMap[int64, []byte](ctx, t.Rows, `SELECT d.grp, d.counts FROM finding_days AS d
		JOIN `+store.GroupRows+` AS g ON g.seg = d.grp WHERE g.uid >= $1 AND g.uid < $1 || '0' AND d.day = $2`,
		string(root), int64(closed[0].Day))
	if err != nil {
		return err
	}
	for _, c := range closed {
		counts, ok := stored[store.Segment(c.Group)]
		if !ok {
			continue
		}
		var d vuln.FindingDay
		if err := json.Unmarshal(counts, &d); err != nil {
			return err
		}
		opened, gone := max(d.Opened, c.Opened), max(d.Closed, c.Closed)
		if opened == d.Opened && gone == d.Closed {
			continue
		}
		d.Opened, d.Closed = opened, gone
		raised, err := json.Marshal(d)
		if err != nil {
			return err
		}
		if err := t.Later(ctx, `UPDATE finding_days SET counts = $1 WHERE grp = $2 AND day = $3`, string(raised),
			store.Segment(c.Group), int64(c.Day)); err != nil {
			return err
		}
	}
	return nil
}

// Days returns the counts of a group from a day on, in order. It compares the whole UID of the group.
func (s *Store) Days(ctx context.Context, group resource.UID, from vuln.Day) ([]vuln.FindingDay, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (d vuln.FindingDay, err error) {
		var counts []byte
		if err = row.Scan(&d.Day, &counts); err == nil {
			err = json.Unmarshal(counts, &d)
		}
		d.Group = group
		return d, err
	}, `SELECT d.day, d.counts FROM finding_days AS d JOIN `+store.GroupRows+` AS g ON g.seg = d.grp
		WHERE g.uid = $1 AND d.day >= $2 ORDER BY d.day`, string(group), int64(from))
}

// CheckGroup returns fault.NotFound if there is no group with that UID.
func (s *Store) CheckGroup(ctx context.Context, group resource.UID) error {
	var n int
	err := s.Row(ctx, `SELECT count(*) FROM `+store.GroupRows+` AS g WHERE g.uid = $1`, []any{string(group)}, &n)
	if err == nil && n == 0 {
		err = fault.Missing("group", string(group))
	}
	return err
}

// GroupsUnder returns a group and all groups below it.
func (s *Store) GroupsUnder(ctx context.Context, root resource.UID) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT g.uid FROM `+store.GroupRows+` AS g
		WHERE g.uid >= $1 AND g.uid < $1 || '0'`, string(root))
}
