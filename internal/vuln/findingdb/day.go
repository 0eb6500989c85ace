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
// no other caller on any replica gets it. ok is false if none is due.
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

// PutDays stores the counts of the groups of an organization. It replaces counts of the same day, and deletes counts
// that are too old.
func (s *Store) PutDays(ctx context.Context, root resource.UID, days []vuln.FindingDay) error {
	return s.Write(ctx, func(t *store.Tx) error {
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
