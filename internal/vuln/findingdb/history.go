package findingdb

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

func scanPastHit(row store.Scanner) (h Hit, err error) {
	var fixed []byte
	if err := row.Scan(&h.Package, &h.Advisory, &h.Since, &h.Score, &h.Vendor, &fixed, &h.OpenedBy,
		&h.Until, &h.ClosedBy); err != nil {
		return h, err
	}
	return h, json.Unmarshal(fixed, &h.Fixed)
}

// PastHitsOf returns the matches of packages with advisories of organizations, limited to matches that ended after a
// time.
func (s *Store) PastHitsOf(ctx context.Context, packages []int64, roots []resource.UID, after int64) ([]Hit, error) {
	keys := make([]int64, len(roots))
	for i, r := range roots {
		keys[i] = store.Segment(r)
	}
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT %s, m.until_ms, m.closed_by FROM %s AS s CROSS JOIN %s AS r CROSS JOIN past_matches AS m
		WHERE m.package = s.v AND m.root = r.v AND m.until_ms > %s`, hitColumns, s.Engine.Unnest(&q, packages),
		s.Engine.Unnest(&q, keys), q.Arg(after))
	return store.ReadAll(ctx, s.Rows, scanPastHit, text, q.Args...)
}

// Named returns the names of advisories, by key, for advisories that affect or have affected a package. It includes
// deleted advisories.
func (s *Store) Named(ctx context.Context, advisories []int64) (map[int64]NamedAdvisory, error) {
	q := store.Query{Engine: s.Engine}
	return readNamed(ctx, s.Rows, fmt.Sprintf(`SELECT a.advisory, a.uid, a.names, a.fixes FROM %s AS s
		CROSS JOIN matched_advisories AS a WHERE a.advisory = s.v`, s.Engine.Unnest(&q, advisories)), q.Args...)
}
