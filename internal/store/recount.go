package store

import (
	"context"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// The version before this one stores and deletes blobs without counting their bytes: it
// runs beside this one during an upgrade, and alone after a step back. So the
// counters of bytes are compared with the rows from time to time, and corrected.
//
// A difference between a counter and what it counts does not depend on when it is
// read, because every writer of this version changes both in one transaction. So
// nobody has to wait: what is added to a counter is the difference that one statement
// has read. Only two who correct the same counter must not do so at once; they lock
// its first shard.

// A recount is one level of counters of bytes.
type recount struct {
	table string // of what has the counter, as t
	rows  string // the sum of what the counter should have
}

const (
	repoBytes = `coalesce((SELECT sum(b.size) FROM repo_blobs AS l JOIN blobs AS b ON b.digest = l.digest
			WHERE l.repo = t.seg), 0)
		+ coalesce((SELECT sum(m.size) FROM manifests AS m WHERE m.repo = t.seg), 0)
		+ ` + trashBytes
	trashBytes = `coalesce((SELECT sum(b.size) FROM trash_blobs AS l JOIN blobs AS b ON b.digest = l.digest
			WHERE l.repo = t.seg), 0)
		+ coalesce((SELECT sum(m.size) FROM trash_manifests AS m WHERE m.repo = t.seg), 0)`
	groupBytes = `coalesce((SELECT sum(c.n) FROM groups AS g
			JOIN counters AS c ON c.kind = 'stored_bytes' AND c.grp = g.seg WHERE g.parent = t.seg), 0)
		+ coalesce((SELECT sum(c.n) FROM repos AS r JOIN counters AS c ON c.kind = 'stored_bytes' AND c.grp = r.seg
			WHERE r.parent = t.seg), 0)
		+ coalesce((SELECT sum(c.n) FROM trash_repos AS r
			JOIN counters AS c ON c.kind = 'stored_bytes' AND c.grp = r.seg WHERE r.parent = t.seg), 0)
		+ ` + uploadBytes
	uploadBytes = `coalesce((SELECT sum(u.size) FROM uploads AS u WHERE u.grp = t.uid), 0)`
)

var (
	recountRepos  = recount{"repos", repoBytes}
	recountTrash  = recount{"trash_repos", trashBytes}
	recountGroups = recount{"groups", groupBytes}
)

// query selects the keys of rows and how much their counters lack.
func (c recount) query(where string) string {
	return `SELECT t.seg, CAST(` + c.rows + ` - coalesce((SELECT sum(n) FROM counters WHERE kind = 'stored_bytes'
		AND grp = t.seg), 0) AS BIGINT) FROM ` + c.table + ` AS t WHERE ` + where
}

// recountBatch is how many rows one statement compares.
const recountBatch = 100

// RecountBytes corrects the counters of stored bytes, and returns how many were
// wrong. Corrected are those of repos first. A group is compared with what is
// directly in it, and so again until the correction has reached its organization.
func (s *DB) RecountBytes(ctx context.Context) (corrected int, err error) {
	for _, c := range []recount{recountRepos, recountTrash} {
		n, err := s.recount(ctx, c)
		if corrected += n; err != nil {
			return corrected, fmt.Errorf("count stored bytes of repos: %w", err)
		}
	}
	for range resource.MaxDepth {
		n, err := s.recount(ctx, recountGroups)
		if err != nil {
			return corrected, fmt.Errorf("count stored bytes of groups: %w", err)
		}
		if n == 0 {
			break
		}
		corrected += n
	}
	return corrected, nil
}

// recount corrects the counters of one level.
func (s *DB) recount(ctx context.Context, c recount) (corrected int, _ error) {
	var last *int64
	for {
		where, args := `1 = 1`, []any{recountBatch}
		if last != nil {
			where, args = `t.seg > $2`, append(args, *last)
		}
		seen := 0
		var wrong []int64
		err := s.Rows(ctx, c.query(where)+` ORDER BY t.seg LIMIT $1`, args, func(row Scanner) (bool, error) {
			var seg, lacks int64
			err := row.Scan(&seg, &lacks)
			if lacks != 0 {
				wrong = append(wrong, seg)
			}
			seen++
			last = &seg
			return false, err
		})
		if err != nil {
			return corrected, err
		}
		for _, seg := range wrong {
			if err := s.correct(ctx, c, seg); err != nil {
				return corrected, err
			}
			corrected++
		}
		if seen < recountBatch {
			return corrected, nil
		}
	}
}

// correct adds to a counter what it lacks.
func (s *DB) correct(ctx context.Context, c recount, seg int64) error {
	return s.Write(ctx, func(t *Tx) error {
		n, err := t.Exec(ctx, `INSERT INTO counters (kind, grp, shard, n, children)
			SELECT 'stored_bytes', seg, 0, 0, 0 FROM `+c.table+` WHERE seg = $1
			ON CONFLICT (kind, grp, shard) DO UPDATE SET n = counters.n`, seg)
		if err != nil || n == 0 { // it is gone
			return err
		}
		var lacks int64
		if err := t.Row(ctx, c.query(`t.seg = $1`), []any{seg}, &seg, &lacks); err != nil {
			return err
		}
		_, err = t.Exec(ctx, `UPDATE counters SET n = n + $2 WHERE kind = 'stored_bytes' AND grp = $1 AND shard = 0`, seg,
			lacks)
		return err
	})
}

// byteDrifts compares the counters of stored bytes with the rows.
func byteDrifts(ctx context.Context, read Reader) (all []Drift, _ error) {
	rows := map[resource.UID]int64{}
	err := read(ctx, `SELECT t.uid, CAST(`+repoBytes+` AS BIGINT) FROM repos AS t
		UNION ALL SELECT t.uid, CAST(`+trashBytes+` AS BIGINT) FROM trash_repos AS t
		UNION ALL SELECT t.uid, CAST(`+uploadBytes+` AS BIGINT) FROM groups AS t`, nil, func(row Scanner) (bool, error) {
		var place resource.UID
		var n int64
		err := row.Scan(&place, &n)
		for _, g := range append(place.Ancestors(), place) {
			rows[g] += n
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	err = read(ctx, `SELECT g.uid, CAST(coalesce(sum(c.n), 0) AS BIGINT)
		FROM (SELECT seg, uid FROM groups UNION ALL SELECT seg, uid FROM repos UNION ALL SELECT seg, uid FROM trash_repos) AS g
		LEFT JOIN counters AS c ON c.grp = g.seg AND c.kind = 'stored_bytes' GROUP BY g.uid`, nil,
		func(row Scanner) (bool, error) {
			d := Drift{Kind: BytesCounter}
			err := row.Scan(&d.Group, &d.Counted)
			if d.Rows = rows[d.Group]; d.Counted != d.Rows {
				all = append(all, d)
			}
			return false, err
		})
	return all, err
}
