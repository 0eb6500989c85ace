package findingdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A Match says that an advisory affects a package. It contains the keys of the package, of the advisory's organization,
// and of the advisory.
type Match struct{ Package, Root, Advisory int64 }

// A Rating is the severity and the fixes that an advisory gives for a package.
type Rating struct {
	Score  int64    // CVSS score in tenths; 0 if there is none
	Vendor int64    // severity in the words of the vendor, from 1 (low) to 4 (critical); 0 if there is none
	Fixed  []string // versions of the package without the vulnerability
}

// A NamedAdvisory is an advisory with its relations to vulnerabilities.
type NamedAdvisory struct {
	UID   resource.UID
	Names []string // ID of the advisory, and then its other names
	Fixes []string // vulnerabilities that the advisory fixes
}

// Vulnerabilities returns the names of each vulnerability that the advisory describes.
func (a NamedAdvisory) Vulnerabilities() [][]string { return vuln.Vulnerabilities(a.Names, a.Fixes) }

// Matches are the matches that should be stored, and the names of their advisories by key. If After or Last is set,
// they are complete only for packages after After and up to Last.
type Matches struct {
	Ratings     map[Match]Rating
	Advisories  map[int64]NamedAdvisory
	After, Last int64
}

// within returns the name of a column in the table m. The condition on packages precedes the name.
func (m Matches) within(column string) string {
	if m.Last > 0 {
		column = fmt.Sprintf("package <= %d AND m.%s", m.Last, column)
	}
	if m.After > 0 {
		column = fmt.Sprintf("package > %d AND m.%s", m.After, column)
	}
	return column
}

// NewMatches returns empty Matches.
func NewMatches() Matches {
	return Matches{Ratings: map[Match]Rating{}, Advisories: map[int64]NamedAdvisory{}}
}

// Unmatched returns at most n packages that were not compared with the advisories yet,
// alternating between the oldest and the newest.
func (s *Store) Unmatched(ctx context.Context, n int) (packages []StoredPackage, _ error) {
	const text = `SELECT ` + packageColumns + ` FROM packages AS p WHERE NOT p.matched ORDER BY p.seq`
	oldest, err := store.ReadAll(ctx, s.Rows, scanPackage, text+` LIMIT $1`, n)
	if err != nil || len(oldest) < n {
		return oldest, err
	}
	newest, err := store.ReadAll(ctx, s.Rows, scanPackage, text+` DESC LIMIT $1`, n/2)
	if err != nil {
		return nil, err
	}
	for i, p := range oldest[:n-len(newest)] {
		if packages = append(packages, p); i < len(newest) && newest[i].ID > oldest[n-1].ID {
			packages = append(packages, newest[i])
		}
	}
	return packages, nil
}

// Subjects returns the packages that advisories about these names may affect: packages that have one of the names, or
// whose source package has one. It returns at most n packages whose ID is greater than after, ordered by ID.
func (s *Store) Subjects(ctx context.Context, names []string, after int64, n int) (packages []StoredPackage, _ error) {
	for _, named := range []string{`p.name = s.v AND p.source_name = ''`, `p.source_name = s.v AND p.source_name <> ''`} {
		q := store.Query{Engine: s.Engine}
		text := fmt.Sprintf(`SELECT %s FROM %s AS s CROSS JOIN packages AS p WHERE %s AND NOT p.owned AND p.seq > %s
			ORDER BY p.seq LIMIT %s`, packageColumns, s.Engine.Unnest(&q, names), named, q.Arg(after), q.Arg(n))
		found, err := store.ReadAll(ctx, s.Rows, scanPackage, text, q.Args...)
		if err != nil {
			return nil, err
		}
		packages = append(packages, found...)
	}
	slices.SortFunc(packages, func(a, b StoredPackage) int { return cmp.Compare(a.ID, b.ID) })
	return packages[:min(n, len(packages))], nil
}

// LastMatched returns the last package of a batch: the n-th match of the advisories with a package above after. It
// returns 0 if no match follows the batch. With several advisories the matches are in no particular order.
func (s *Store) LastMatched(ctx context.Context, advisories []int64, after int64, n int) (last int64, _ error) {
	q := store.Query{Engine: s.Engine}
	order := `` // no order for several advisories, because the database would sort all their matches
	if len(advisories) == 1 {
		order = `ORDER BY m.package`
	}
	text := fmt.Sprintf(`SELECT m.package FROM %s AS s CROSS JOIN matches AS m WHERE m.advisory = s.v AND m.package > %s
		%s LIMIT %s`, s.Engine.Unnest(&q, advisories), q.Arg(after), order, q.Arg(n+1))
	ids, err := store.ReadColumn[int64](ctx, s.Rows, text, q.Args...)
	if err != nil || len(ids) <= n {
		return 0, err
	}
	return ids[n-1], nil
}

// A Change lists the matches that a comparison opens and closes.
type Change struct {
	Opened, Closed []Match
	Ratings        map[Match]Rating            // ratings of the opened matches
	Moved          []Hit                       // stored matches of advisories whose vulnerabilities have changed
	Incomplete     bool                        // whether Moved lacks some matches, because there are too many
	Advisories     map[int64]NamedAdvisory     // advisories of the opened and closed matches, by key
	Sets           AliasSets                   // vulnerabilities of these advisories
	Source         func(advisory int64) string // returns the source of an advisory's change, such as a feed
}

// setMatches replaces the matches of packages or of advisories. column is the column that contains keys. A match that
// remains keeps its time. A match that ends moves to the past matches. source returns the source of an advisory's
// change. If anything changes, setMatches calls announce before it writes anything.
func (t Tx) setMatches(
	ctx context.Context, column string, keys []int64, want Matches, source func(advisory int64) string,
	announce func(Change) error,
) error {
	have, err := t.stored(ctx, want.within(column), keys)
	if err != nil {
		return err
	}
	c := Change{Ratings: want.Ratings, Source: source}
	nowMS := store.MS(t.DB.Time())
	var past, rows [][]any
	for m, old := range have {
		if _, ok := want.Ratings[m]; !ok {
			c.Closed = append(c.Closed, m)
			past = append(past, []any{m.Package, m.Root, m.Advisory, old.since, max(nowMS, old.since), old.score,
				old.vendor, old.fixed, old.openedBy, source(m.Advisory)})
		}
	}
	for m, r := range want.Ratings {
		fixed, err := json.Marshal(append([]string{}, r.Fixed...))
		if err != nil {
			return err
		}
		old, ok := have[m]
		if !ok {
			c.Opened = append(c.Opened, m)
		}
		if !ok || old.score != r.Score || old.vendor != r.Vendor || old.fixed != string(fixed) {
			rows = append(rows, []any{m.Package, m.Root, m.Advisory, nowMS, r.Score, r.Vendor, string(fixed),
				source(m.Advisory)})
		}
	}
	if err := t.joinAliases(ctx, want.Advisories, &c); err != nil {
		return err
	}
	if len(c.Opened)+len(c.Closed)+len(c.Moved) > 0 {
		if err := announce(c); err != nil {
			return err
		}
	}
	if err := t.endMatches(ctx, c.Closed, past); err != nil {
		return err
	}
	if err := t.InsertRows(ctx,
		`INSERT INTO matches (package, root, advisory, since_ms, score, vendor, fixed, opened_by)`, rows,
		` ON CONFLICT (package, root, advisory) DO UPDATE SET score = excluded.score, vendor = excluded.vendor,
		fixed = excluded.fixed`); err != nil {
		return err
	}
	return t.saveAliases(ctx, want.Advisories, c.Sets)
}

// endMatches moves matches to the table of past matches. past contains their rows in that table.
func (t Tx) endMatches(ctx context.Context, ended []Match, past [][]any) error {
	for _, m := range ended {
		if err := t.Later(ctx, `DELETE FROM matches WHERE package = $1 AND root = $2 AND advisory = $3`, m.Package,
			m.Root, m.Advisory); err != nil {
			return err
		}
	}
	return t.InsertRows(ctx,
		`INSERT INTO past_matches (package, root, advisory, since_ms, until_ms, score, vendor, fixed, opened_by,
		closed_by)`, past, ``)
}

// A storedMatch contains the other columns of a row in the table matches.
type storedMatch struct {
	since    int64
	score    int64
	vendor   int64
	fixed    string
	openedBy string
}

func (t Tx) stored(ctx context.Context, column string, keys []int64) (map[Match]storedMatch, error) {
	q := store.Query{Engine: t.DB.Engine}
	have := map[Match]storedMatch{}
	return have, t.Rows(ctx, fmt.Sprintf(`SELECT m.package, m.root, m.advisory, m.since_ms, m.score, m.vendor, m.fixed,
		m.opened_by FROM %s AS s CROSS JOIN matches AS m WHERE m.%s = s.v`, t.DB.Engine.Unnest(&q, keys), column), q.Args,
		func(row store.Scanner) (bool, error) {
			var m Match
			var r storedMatch
			err := row.Scan(&m.Package, &m.Root, &m.Advisory, &r.since, &r.score, &r.vendor, &r.fixed, &r.openedBy)
			have[m] = r
			return false, err
		})
}

// MatchPackages replaces the matches of packages, and marks the packages as compared. If a match changes, it first
// calls announce.
func (t Tx) MatchPackages(
	ctx context.Context, packages []StoredPackage, want Matches, announce func(Change) error,
) error {
	keys := make([]int64, len(packages))
	for i, p := range packages {
		keys[i] = p.ID
	}
	if err := t.setMatches(ctx, "package", keys, want, func(int64) string { return byImage }, announce); err != nil {
		return err
	}
	q := store.Query{Engine: t.DB.Engine}
	text := fmt.Sprintf(`UPDATE packages SET matched = %s WHERE seq IN (SELECT v FROM %s AS s)`, q.Arg(true),
		t.DB.Engine.Unnest(&q, keys))
	return t.Later(ctx, text, q.Args...)
}

// MatchWithin replaces the matches of packages with the advisories of one organization, by its key. source returns the
// source of an advisory's change. If a match changes, it first calls announce.
func (t Tx) MatchWithin(
	ctx context.Context, root int64, packages []int64, want Matches, source func(advisory int64) string,
	announce func(Change) error,
) error {
	return t.setMatches(ctx, fmt.Sprintf("root = %d AND m.package", root), packages, want, source, announce)
}

// byImage is the source of a match that a new package opens.
const byImage = "image"

// MatchAdvisories replaces the matches of advisories. sources contains the source of each advisory's change. If a match
// changes, it first calls announce.
func (t Tx) MatchAdvisories(
	ctx context.Context, advisories []int64, want Matches, sources map[int64]string, announce func(Change) error,
) error {
	return t.setMatches(ctx, "advisory", advisories, want, func(a int64) string { return sources[a] }, announce)
}

// A Hit is a stored match: the package, the key of the advisory, and the time at which the match was opened. For a past
// match, it also contains the time at which the match ended.
type Hit struct {
	Package, Advisory, Since int64
	Rating
	OpenedBy string
	Until    int64 // time at which the match ended, in milliseconds; 0 if it has not ended
	ClosedBy string
}

const hitColumns = `m.package, m.advisory, m.since_ms, m.score, m.vendor, m.fixed, m.opened_by`

func scanHit(row store.Scanner) (h Hit, err error) {
	var fixed []byte
	if err := row.Scan(&h.Package, &h.Advisory, &h.Since, &h.Score, &h.Vendor, &fixed, &h.OpenedBy); err != nil {
		return h, err
	}
	return h, json.Unmarshal(fixed, &h.Fixed)
}

// HitsOf returns the matches of packages with advisories of organizations.
func (s *Store) HitsOf(ctx context.Context, packages []int64, roots []resource.UID) (hits []Hit, _ error) {
	keys := make([]int64, len(roots))
	for i, r := range roots {
		keys[i] = store.Segment(r)
	}
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT %s FROM %s AS s CROSS JOIN %s AS r CROSS JOIN matches AS m
		WHERE m.package = s.v AND m.root = r.v`, hitColumns, s.Engine.Unnest(&q, packages), s.Engine.Unnest(&q, keys))
	return store.ReadAll(ctx, s.Rows, scanHit, text, q.Args...)
}

// HitsBy returns the matches of advisories.
func (s *Store) HitsBy(ctx context.Context, advisories []int64) ([]Hit, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT %s FROM %s AS s CROSS JOIN matches AS m
		WHERE m.advisory = s.v`, hitColumns, s.Engine.Unnest(&q, advisories))
	return store.ReadAll(ctx, s.Rows, scanHit, text, q.Args...)
}

// PackageIDs returns the IDs of the packages of an image, in order. unmatched is the number of these packages that were
// not compared with the advisories yet.
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
	err = s.Row(ctx,
		fmt.Sprintf(`SELECT count(*) FROM %s AS s CROSS JOIN packages AS p WHERE p.seq = s.v AND NOT p.matched`,
			s.Engine.Unnest(&q, c.ids)), q.Args, &unmatched)
	return c.ids, unmatched, err
}

// PackageSets returns the IDs of the packages of images, by digest. It also returns which of these packages were not
// compared with the advisories yet. An image that was not inspected is left out.
func (s *Store) PackageSets(
	ctx context.Context, digests []string,
) (byDigest map[string][]int64, unmatched map[int64]bool, _ error) {
	q := store.Query{Engine: s.Engine}
	texts, err := store.ReadMap[string, []byte](ctx, s.Rows, fmt.Sprintf(`SELECT i.digest, i.packages FROM %s AS s
		CROSS JOIN inspections AS i WHERE i.digest = s.v`, s.Engine.Unnest(&q, digests)), q.Args...)
	if err != nil {
		return nil, nil, err
	}
	byDigest, unmatched = map[string][]int64{}, map[int64]bool{}
	var ids []int64
	for digest, text := range texts {
		c, err := decode(text, nil)
		if err != nil {
			return nil, nil, err
		}
		byDigest[digest] = c.ids
		ids = append(ids, c.ids...)
	}
	slices.Sort(ids)
	q = store.Query{Engine: s.Engine}
	late, err := store.ReadColumn[int64](ctx, s.Rows, fmt.Sprintf(`SELECT p.seq FROM %s AS s CROSS JOIN packages AS p
		WHERE p.seq = s.v AND NOT p.matched`, s.Engine.Unnest(&q, slices.Compact(ids))), q.Args...)
	for _, id := range late {
		unmatched[id] = true
	}
	return byDigest, unmatched, err
}
