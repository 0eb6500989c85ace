// Package recount compares counters with the rows that they count, and corrects the
// counters of stored bytes.
package recount

import (
	"context"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The previous version of the program stores and deletes blobs without counting their
// bytes. It runs together with this version during an upgrade, and alone after a
// downgrade. So the counters of bytes are regularly compared with the rows, and
// corrected.
//
// The difference between a counter and its rows does not depend on the time at which it
// is read, because every writer of this version changes both in one transaction. So a
// correction need not block writers: it adds to the counter the difference that one
// statement has read. Only two corrections of the same counter must not run at the same
// time; they lock its first shard.

// A level is a table whose rows have counters of bytes.
type level struct {
	table string // with the alias t
	bytes string // an expression for the value that the counter should have
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
	repoLevel  = level{"repos", repoBytes}
	trashLevel = level{"trash_repos", trashBytes}
	groupLevel = level{"groups", groupBytes}
)

// query selects the keys of rows, and the difference that their counters lack.
func (l level) query(where string) string {
	return `SELECT t.seg, CAST(` + l.bytes + ` - coalesce((SELECT sum(n) FROM counters WHERE kind = 'stored_bytes'
		AND grp = t.seg), 0) AS BIGINT) FROM ` + l.table + ` AS t WHERE ` + where
}

// batchSize is the number of rows that one statement compares.
const batchSize = 100

// Bytes corrects the counters of stored bytes, and returns how many were wrong. It
// corrects the counters of repos first. A group is compared with the counters directly
// in it, so groups are compared repeatedly until the correction has reached the
// organization.
func Bytes(ctx context.Context, s *store.DB) (corrected int, err error) {
	for _, l := range []level{repoLevel, trashLevel} {
		n, err := correctLevel(ctx, s, l)
		if corrected += n; err != nil {
			return corrected, fmt.Errorf("count stored bytes of repos: %w", err)
		}
	}
	for range resource.MaxDepth {
		n, err := correctLevel(ctx, s, groupLevel)
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

// correctLevel corrects the counters of one level.
func correctLevel(ctx context.Context, s *store.DB, l level) (corrected int, _ error) {
	var last *int64
	for {
		where, args := `1 = 1`, []any{batchSize}
		if last != nil {
			where, args = `t.seg > $2`, append(args, *last)
		}
		seen := 0
		var wrong []int64
		err := s.Rows(ctx, l.query(where)+` ORDER BY t.seg LIMIT $1`, args, func(row store.Scanner) (bool, error) {
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
			if err := correct(ctx, s, l, seg); err != nil {
				return corrected, err
			}
			corrected++
		}
		if seen < batchSize {
			return corrected, nil
		}
	}
}

// correct adds the missing difference to the counter of one row.
func correct(ctx context.Context, s *store.DB, l level, seg int64) error {
	return s.Write(ctx, func(t *store.Tx) error {
		n, err := t.Exec(ctx, `INSERT INTO counters (kind, grp, shard, n, children)
			SELECT 'stored_bytes', seg, 0, 0, 0 FROM `+l.table+` WHERE seg = $1
			ON CONFLICT (kind, grp, shard) DO UPDATE SET n = counters.n`, seg)
		if err != nil || n == 0 { // the row was deleted
			return err
		}
		var lacks int64
		if err := t.Row(ctx, l.query(`t.seg = $1`), []any{seg}, &seg, &lacks); err != nil {
			return err
		}
		_, err = t.Exec(ctx, `UPDATE counters SET n = n + $2 WHERE kind = 'stored_bytes' AND grp = $1 AND shard = 0`,
			seg, lacks)
		return err
	})
}

// RepoBytes corrects the counter of stored bytes of one repo, but not the counters of
// the groups above it.
func RepoBytes(ctx context.Context, s *store.DB, repo resource.UID) error {
	return correct(ctx, s, repoLevel, store.Segment(repo))
}
