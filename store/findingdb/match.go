package findingdb

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// A Match says that an advisory affects a package. Both are named by their keys, and so is
// the organization of the advisory.
type Match struct{ Package, Root, Advisory int64 }

// A Rating is what an advisory says about a package that it affects.
type Rating struct {
	Score int64    // of CVSS, in tenths; 0 if there is none
	Fixed []string // the versions that fix it
}

// A NamedAdvisory is an advisory with everything that it is called.
type NamedAdvisory struct {
	UID   resource.UID
	Names []string // the ID first
}

// Matches are matches as they should be, and what their advisories are called, by key.
type Matches struct {
	Ratings    map[Match]Rating
	Advisories map[int64]NamedAdvisory
}

// NewMatches returns none.
func NewMatches() Matches {
	return Matches{map[Match]Rating{}, map[int64]NamedAdvisory{}}
}

// Unmatched returns packages that were not compared with the advisories yet, at most n.
func (s *Store) Unmatched(ctx context.Context, n int) ([]Known, error) {
	return store.ReadAll(ctx, s.Rows, scanPackage,
		`SELECT `+packageColumns+` FROM packages AS p WHERE NOT p.matched ORDER BY p.seq LIMIT $1`, n)
}

// MatchAgain has all packages compared with the advisories again.
func (s *Store) MatchAgain(ctx context.Context) error {
	const batch = 5000
	for after := int64(0); ; {
		var last *int64
		if err := s.Row(ctx, `SELECT max(seq) FROM (SELECT seq FROM packages WHERE seq > $1 ORDER BY seq LIMIT $2) AS p`,
			[]any{after, batch}, &last); err != nil || last == nil {
			return err
		}
		if _, err := s.Exec(ctx, `UPDATE packages SET matched = $3 WHERE seq > $1 AND seq <= $2 AND NOT owned`, after,
			*last, false); err != nil {
			return err
		}
		after = *last
	}
}

// Subjects returns the packages that advisories with these names may be about: those with
// the name, or built from a source of that name.
func (s *Store) Subjects(ctx context.Context, names []string) (all []Known, _ error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT %s FROM %s AS s CROSS JOIN packages AS p WHERE p.name = s.v AND p.source_name = ''
		AND NOT p.owned`,
		packageColumns, s.Engine.Each(&q, names))
	all, err := store.ReadAll(ctx, s.Rows, scanPackage, text, q.Args...)
	if err != nil {
		return nil, err
	}
	q = store.Query{Engine: s.Engine}
	text = fmt.Sprintf(`SELECT %s FROM %s AS s CROSS JOIN packages AS p WHERE p.source_name = s.v
		AND p.source_name <> '' AND NOT p.owned`, packageColumns, s.Engine.Each(&q, names))
	built, err := store.ReadAll(ctx, s.Rows, scanPackage, text, q.Args...)
	return append(all, built...), err
}

// setMatches makes the matches of packages, or of advisories, those given: column says of
// which, and keys are their keys. One that stays keeps its time.
func (t Tx) setMatches(ctx context.Context, column string, keys []int64, want Matches) error {
	have, err := t.ratings(ctx, column, keys)
	if err != nil {
		return err
	}
	for m := range have {
		if _, ok := want.Ratings[m]; !ok {
			if err := t.Later(ctx, `DELETE FROM matches WHERE package = $1 AND root = $2 AND advisory = $3`, m.Package,
				m.Root, m.Advisory); err != nil {
				return err
			}
		}
	}
	var rows [][]any
	now := store.MS(t.DB.Time())
	for m, r := range want.Ratings {
		fixed, err := json.Marshal(append([]string{}, r.Fixed...))
		if err != nil {
			return err
		}
		if old, ok := have[m]; !ok || old != (rating{r.Score, string(fixed)}) {
			rows = append(rows, []any{m.Package, m.Root, m.Advisory, now, r.Score, string(fixed)})
		}
	}
	if err := t.InsertRows(ctx, `INSERT INTO matches (package, root, advisory, since_ms, score, fixed)`, rows,
		` ON CONFLICT (package, root, advisory) DO UPDATE SET score = excluded.score, fixed = excluded.fixed`); err != nil {
		return err
	}
	return t.nameAdvisories(ctx, want.Advisories)
}

// A rating is a Rating as it is stored.
type rating struct {
	score int64
	fixed string
}

func (t Tx) ratings(ctx context.Context, column string, keys []int64) (map[Match]rating, error) {
	q := store.Query{Engine: t.DB.Engine}
	have := map[Match]rating{}
	return have, t.Rows(ctx, fmt.Sprintf(`SELECT m.package, m.root, m.advisory, m.score, m.fixed FROM %s AS s
		CROSS JOIN matches AS m WHERE m.%s = s.v`, t.DB.Engine.Each(&q, keys), column), q.Args,
		func(row store.Scanner) (bool, error) {
			var m Match
			var r rating
			err := row.Scan(&m.Package, &m.Root, &m.Advisory, &r.score, &r.fixed)
			have[m] = r
			return false, err
		})
}

func (t Tx) nameAdvisories(ctx context.Context, all map[int64]NamedAdvisory) error {
	var rows [][]any
	for _, key := range slices.Sorted(maps.Keys(all)) {
		names, err := json.Marshal(all[key].Names)
		if err != nil {
			return err
		}
		rows = append(rows, []any{key, string(all[key].UID), string(names)})
	}
	return t.InsertRows(ctx, `INSERT INTO matched_advisories (advisory, uid, names)`, rows,
		` ON CONFLICT (advisory) DO UPDATE SET uid = excluded.uid, names = excluded.names`)
}

// MatchPackages makes the matches of packages those given, and notes that they are up to
// date.
func (t Tx) MatchPackages(ctx context.Context, packages []Known, want Matches) error {
	keys := make([]int64, len(packages))
	for i, p := range packages {
		keys[i] = p.ID
	}
	if err := t.setMatches(ctx, "package", keys, want); err != nil {
		return err
	}
	q := store.Query{Engine: t.DB.Engine}
	text := fmt.Sprintf(`UPDATE packages SET matched = %s WHERE seq IN (SELECT v FROM %s AS s)`, q.Arg(true),
		t.DB.Engine.Each(&q, keys))
	return t.Later(ctx, text, q.Args...)
}

// MatchAdvisories makes the matches of advisories those given.
func (t Tx) MatchAdvisories(ctx context.Context, advisories []int64, want Matches) error {
	return t.setMatches(ctx, "advisory", advisories, want)
}

// A Hit is a match as it is read: the package, the key of the advisory, and since when.
type Hit struct {
	Package, Advisory, Since int64
	Rating
}

const hitColumns = `m.package, m.advisory, m.since_ms, m.score, m.fixed`

func scanHit(row store.Scanner) (h Hit, err error) {
	var fixed []byte
	if err := row.Scan(&h.Package, &h.Advisory, &h.Since, &h.Score, &fixed); err != nil {
		return h, err
	}
	return h, json.Unmarshal(fixed, &h.Fixed)
}

// HitsOf returns the advisories of organizations that affect packages.
func (s *Store) HitsOf(ctx context.Context, packages []int64, roots []resource.UID) (all []Hit, _ error) {
	keys := make([]int64, len(roots))
	for i, r := range roots {
		keys[i] = store.Segment(r)
	}
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT %s FROM %s AS s CROSS JOIN %s AS r CROSS JOIN matches AS m
		WHERE m.package = s.v AND m.root = r.v`, hitColumns, s.Engine.Each(&q, packages), s.Engine.Each(&q, keys))
	return store.ReadAll(ctx, s.Rows, scanHit, text, q.Args...)
}

// HitsBy returns the packages that advisories affect.
func (s *Store) HitsBy(ctx context.Context, advisories []int64) ([]Hit, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT %s FROM %s AS s CROSS JOIN matches AS m
		WHERE m.advisory = s.v`, hitColumns, s.Engine.Each(&q, advisories))
	return store.ReadAll(ctx, s.Rows, scanHit, text, q.Args...)
}

// PackageIDs returns the numbers of the packages that an image has, in order, and how many
// of them were not compared with the advisories yet.
func (s *Store) PackageIDs(ctx context.Context, digest string) (ids []int64, unmatched int, _ error) {
	var text []byte
	if err := s.Row(ctx, `SELECT packages FROM inspections WHERE digest = $1`, []any{digest}, &text); err != nil {
		return nil, 0, store.Missing(err, "inspection", resource.UID(digest))
	}
	c, err := decode(text, nil)
	if err != nil {
		return nil, 0, err
	}
	q := store.Query{Engine: s.Engine}
	err = s.Row(ctx, fmt.Sprintf(`SELECT count(*) FROM %s AS s CROSS JOIN packages AS p WHERE p.seq = s.v AND NOT p.matched`,
		s.Engine.Each(&q, c.ids)), q.Args, &unmatched)
	return c.ids, unmatched, err
}
