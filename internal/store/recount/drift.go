package recount

import (
	"context"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// These are SQL expressions for the stored bytes of a row t in repos, in trash_repos, and in groups
// (without the repos of the group).
const (
	repoBytes = `coalesce((SELECT sum(b.size) FROM repo_blobs AS l JOIN blobs AS b ON b.digest = l.digest
			WHERE l.repo = t.seg), 0)
		+ coalesce((SELECT sum(m.size) FROM manifests AS m WHERE m.repo = t.seg), 0)
		+ ` + trashBytes
	trashBytes = `coalesce((SELECT sum(b.size) FROM trash_blobs AS l JOIN blobs AS b ON b.digest = l.digest
			WHERE l.repo = t.seg), 0)
		+ coalesce((SELECT sum(m.size) FROM trash_manifests AS m WHERE m.repo = t.seg), 0)`
	uploadBytes = `coalesce((SELECT sum(u.size) FROM uploads AS u WHERE u.grp = t.uid), 0)`
)

// A Drift is a counter that differs from the rows that it counts.
type Drift struct {
	Kind                      string
	Group                     resource.UID
	Key                       int64 // key of a counter that does not belong to a group
	Counted, Rows             int64
	DirectCounted, DirectRows int64
}

// Drifts compares every counter with the rows that it counts, in one state of the
// database, and returns the differences. It reads every row, so it is for tests and for
// an operator's check.
func Drifts(ctx context.Context, s *store.DB) (drifts []Drift, err error) {
	err = s.Snapshot(ctx, func(read store.Reader) error {
		for _, kind := range store.CounterKinds() {
			found, err := groupDrifts(ctx, read, kind)
			if err != nil {
				return err
			}
			drifts = append(drifts, found...)
		}
		columns := map[string]string{
			store.PartitionCounter: "advisories.partition_id", store.NameCounter: "advisory_names.key",
			store.ScimUserCounter: "scim_users.provider",
		}
		for kind, column := range columns {
			found, err := keyDrifts(ctx, read, kind, column)
			if err != nil {
				return err
			}
			drifts = append(drifts, found...)
		}
		found, err := byteDrifts(ctx, read)
		drifts = append(drifts, found...)
		return err
	})
	return drifts, err
}

// countedRows returns the table, and the condition if there is one, of the rows that a counter
// counts. It follows FROM in a query.
func countedRows(kind string) string {
	for c := resource.PlainTag; c <= resource.EpochTag; c++ {
		if kind == store.TagCounter(c) {
			return `tags WHERE class = ` + strconv.Itoa(int(c))
		}
	}
	switch kind {
	case "pulls":
		return `pulls WHERE NOT push`
	case store.PushCounter:
		return `pulls WHERE push`
	}
	return kind
}

// groupDrifts compares the counters of groups with the rows below the groups and the rows
// directly in them.
func groupDrifts(ctx context.Context, read store.Reader, kind string) (drifts []Drift, _ error) {
	rows, direct := map[resource.UID]int64{}, map[resource.UID]int64{}
	err := read(ctx, `SELECT uid FROM `+countedRows(kind), nil, func(row store.Scanner) (bool, error) {
		var uid resource.UID
		err := row.Scan(&uid)
		for _, g := range uid.Ancestors() {
			rows[g]++
		}
		direct[uid.Parent()]++
		return false, err
	})
	if err != nil {
		return nil, err
	}
	err = read(ctx, `
		SELECT g.uid, CAST(coalesce(sum(c.n), 0) AS BIGINT), CAST(coalesce(sum(c.children), 0) AS BIGINT)
		FROM (SELECT seg, uid FROM groups UNION ALL SELECT seg, uid FROM identity_providers
			UNION ALL SELECT seg, uid FROM repos UNION ALL SELECT seg, uid FROM trash_repos
			UNION ALL SELECT seg, uid FROM subscriptions) AS g
		LEFT JOIN counters AS c ON c.grp = g.seg AND c.kind = $1
		GROUP BY g.uid`, []any{kind}, func(row store.Scanner) (bool, error) {
		d := Drift{Kind: kind}
		err := row.Scan(&d.Group, &d.Counted, &d.DirectCounted)
		d.Rows, d.DirectRows = rows[d.Group], direct[d.Group]
		if d.Counted != d.Rows || d.DirectCounted != d.DirectRows {
			drifts = append(drifts, d)
		}
		return false, err
	})
	return drifts, err
}

// keyDrifts compares the counters of a kind that has a counter per key. column
// contains the key.
func keyDrifts(ctx context.Context, read store.Reader, kind, column string) (drifts []Drift, _ error) {
	table, _, _ := strings.Cut(column, ".")
	rows, err := store.ReadMap[int64, int64](ctx, read, `SELECT `+column+`, count(*) FROM `+table+` GROUP BY `+column)
	if err != nil {
		return nil, err
	}
	counters, err := store.ReadMap[int64, int64](ctx, read,
		`SELECT grp, CAST(sum(n) AS BIGINT) FROM counters WHERE kind = $1 GROUP BY grp`, kind)
	if err != nil {
		return nil, err
	}
	for key, n := range counters {
		if n != rows[key] {
			drifts = append(drifts, Drift{Kind: kind, Key: key, Counted: n, Rows: rows[key]})
		}
		delete(rows, key)
	}
	for key, n := range rows {
		drifts = append(drifts, Drift{Kind: kind, Key: key, Rows: n})
	}
	return drifts, nil
}

// byteDrifts compares the counters for stored bytes with the rows.
func byteDrifts(ctx context.Context, read store.Reader) (drifts []Drift, _ error) {
	rows := map[resource.UID]int64{}
	err := read(ctx, `SELECT t.uid, CAST(`+repoBytes+` AS BIGINT) FROM repos AS t
		UNION ALL SELECT t.uid, CAST(`+trashBytes+` AS BIGINT) FROM trash_repos AS t
		UNION ALL SELECT t.uid, CAST(`+uploadBytes+` AS BIGINT) FROM groups AS t`, nil,
		func(row store.Scanner) (bool, error) {
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
		FROM (SELECT seg, uid FROM groups UNION ALL SELECT seg, uid FROM repos
			UNION ALL SELECT seg, uid FROM trash_repos) AS g
		LEFT JOIN counters AS c ON c.grp = g.seg AND c.kind = 'stored_bytes' GROUP BY g.uid`, nil,
		func(row store.Scanner) (bool, error) {
			d := Drift{Kind: store.BytesCounter}
			err := row.Scan(&d.Group, &d.Counted)
			if d.Rows = rows[d.Group]; d.Counted != d.Rows {
				drifts = append(drifts, d)
			}
			return false, err
		})
	return drifts, err
}
