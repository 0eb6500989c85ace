package findingdb

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
)

// Limits on the number of keys that one statement looks up.
const (
	contentBatch = 1000
	keyBatch     = 10_000
)

// Contents calls f for each inspected digest with the IDs of its packages, in order. f
// must not keep the slice.
func (s *Store) Contents(ctx context.Context, digests []string, f func(digest string, packages []int64) error) error {
	var ids []int64
	for batch := range slices.Chunk(digests, contentBatch) {
		q := store.Query{Engine: s.Engine}
		err := s.Rows(ctx, fmt.Sprintf(`SELECT i.digest, i.packages FROM %s AS s CROSS JOIN inspections AS i
			WHERE i.digest = s.v`, s.Engine.Unnest(&q, batch)), q.Args, func(row store.Scanner) (_ bool, err error) {
			var digest string
			var packages []byte
			if err := row.Scan(&digest, &packages); err != nil {
				return false, err
			}
			if ids, err = appendIDs(ids[:0], packages); err != nil {
				return false, err
			}
			return false, f(digest, ids)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// appendIDs decodes only the IDs of the packages, and appends them to ids. See decode.
func appendIDs(ids []int64, packages []byte) ([]int64, error) {
	last := int64(0)
	for len(packages) > 0 {
		distance, n := binary.Uvarint(packages)
		if n <= 0 {
			return nil, errContent
		}
		_, m := binary.Uvarint(packages[n:])
		if m <= 0 {
			return nil, errContent
		}
		packages = packages[n+m:]
		last += int64(distance)
		ids = append(ids, last)
	}
	return ids, nil
}

// Hits are the matches of many packages.
type Hits struct {
	ByPackage  map[int64][]Hit
	Advisories map[int64]NamedAdvisory // advisories of the matches, by key
}

// A hitReader reads hits. It decodes equal texts once, and keeps equal sources once.
type hitReader struct {
	Hits
	fixed   map[string][]string
	sources map[string]string
}

func (r *hitReader) add(h Hit, fixed, openedBy []byte) (err error) {
	source, ok := r.sources[string(openedBy)]
	if !ok {
		source = string(openedBy)
		r.sources[source] = source
	}
	h.OpenedBy = source
	known, ok := r.fixed[string(fixed)]
	if !ok {
		if err := json.Unmarshal(fixed, &known); err != nil {
			return err
		}
		r.fixed[string(fixed)] = known
	}
	h.Fixed = known
	r.ByPackage[h.Package] = append(r.ByPackage[h.Package], h)
	r.Advisories[h.Advisory] = NamedAdvisory{}
	return nil
}

// Hits returns the advisories in reach that affect packages. Unlike HitsOf, it is made for many packages: it does not
// read the texts of advisories. It omits deleted advisories, even if the matcher has not removed their matches yet.
func (s *Store) Hits(ctx context.Context, packages []int64, reach []resource.UID) (Hits, error) {
	r := hitReader{Hits{map[int64][]Hit{}, map[int64]NamedAdvisory{}}, map[string][]string{}, map[string]string{}}
	roots := rootKeys(reach)
	for batch := range slices.Chunk(packages, keyBatch) {
		q := store.Query{Engine: s.Engine}
		text := fmt.Sprintf(`SELECT m.package, m.advisory, m.since_ms, m.score, m.vendor, m.fixed, m.opened_by
			FROM %s AS s CROSS JOIN %s AS r
			CROSS JOIN matches AS m WHERE m.package = s.v AND m.root = r.v`,
			s.Engine.Unnest(&q, batch), s.Engine.Unnest(&q, roots))
		err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
			var h Hit
			var fixed, openedBy []byte
			if err := row.Scan(&h.Package, &h.Advisory, &h.Since, &h.Score, &h.Vendor, &fixed, &openedBy); err != nil {
				return false, err
			}
			return false, r.add(h, fixed, openedBy)
		})
		if err != nil {
			return r.Hits, err
		}
	}
	return r.Hits, s.keepVisible(ctx, r.Hits, reach)
}

// rootKeys returns the keys of the organizations that contain groups, each once.
func rootKeys(groups []resource.UID) (keys []int64) {
	for _, g := range groups {
		keys = append(keys, store.Segment(g.Root()))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// keepVisible adds the names of the advisories, and removes hits whose advisory is
// deleted or not in reach.
func (s *Store) keepVisible(ctx context.Context, h Hits, reach []resource.UID) error {
	keys := make([]int64, 0, len(h.Advisories))
	for key := range h.Advisories {
		keys = append(keys, key)
	}
	clear(h.Advisories)
	slices.Sort(keys)
	for batch := range slices.Chunk(keys, keyBatch) {
		q := store.Query{Engine: s.Engine}
		text := fmt.Sprintf(`SELECT n.advisory, a.uid, n.names, n.fixes FROM %s AS s CROSS JOIN matched_advisories AS n
			CROSS JOIN `+advisorydb.AdvisoryRows+` AS a WHERE n.advisory = s.v AND a.seg = s.v`, s.Engine.Unnest(&q, batch))
		err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
			var key int64
			var uid resource.UID
			var names, fixes []byte
			if err := row.Scan(&key, &uid, &names, &fixes); err != nil {
				return false, err
			}
			if !store.Covered(reach, uid.Parent()) {
				return false, nil
			}
			a, err := decodeNamed(uid, names, fixes)
			h.Advisories[key] = a
			return false, err
		})
		if err != nil {
			return err
		}
	}
	for id, hits := range h.ByPackage {
		hits = slices.DeleteFunc(hits, func(v Hit) bool { return h.Advisories[v.Advisory].UID == "" })
		if h.ByPackage[id] = hits; len(hits) == 0 {
			delete(h.ByPackage, id)
		}
	}
	return nil
}

// A PackageKind contains the properties of a package that determine whether advisories can cover it.
type PackageKind struct {
	Ecosystem string
	Owned     bool
	Matched   bool // whether the package was compared with the advisories
}

// CountKinds counts packages by kind.
func (s *Store) CountKinds(ctx context.Context, packages []int64) (map[PackageKind]int, error) {
	counts := map[PackageKind]int{}
	for batch := range slices.Chunk(packages, keyBatch) {
		q := store.Query{Engine: s.Engine}
		err := s.Rows(ctx, fmt.Sprintf(`SELECT p.ecosystem, p.owned, p.matched, count(*) FROM %s AS s
			CROSS JOIN packages AS p WHERE p.seq = s.v GROUP BY p.ecosystem, p.owned, p.matched`, s.Engine.Unnest(&q, batch)),
			q.Args, func(row store.Scanner) (bool, error) {
				var k PackageKind
				var n int
				err := row.Scan(&k.Ecosystem, &k.Owned, &k.Matched, &n)
				counts[k] += n
				return false, err
			})
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// Kinds returns the kinds of packages by ID.
func (s *Store) Kinds(ctx context.Context, packages []int64) (map[int64]PackageKind, error) {
	kinds := make(map[int64]PackageKind, len(packages))
	for batch := range slices.Chunk(packages, keyBatch) {
		q := store.Query{Engine: s.Engine}
		err := s.Rows(ctx, fmt.Sprintf(`SELECT p.seq, p.ecosystem, p.owned, p.matched FROM %s AS s
			CROSS JOIN packages AS p WHERE p.seq = s.v`, s.Engine.Unnest(&q, batch)), q.Args,
			func(row store.Scanner) (bool, error) {
				var id int64
				var k PackageKind
				err := row.Scan(&id, &k.Ecosystem, &k.Owned, &k.Matched)
				kinds[id] = k
				return false, err
			})
		if err != nil {
			return nil, err
		}
	}
	return kinds, nil
}

// HitsAt returns the advisories in reach that affected packages at a time. Advisories that were deleted since then are
// included.
func (s *Store) HitsAt(ctx context.Context, packages []int64, reach []resource.UID, asOf int64) (Hits, error) {
	found := Hits{map[int64][]Hit{}, map[int64]NamedAdvisory{}}
	var roots []resource.UID
	for _, g := range reach {
		roots = append(roots, g.Root())
	}
	slices.Sort(roots)
	roots = slices.Compact(roots)
	hits, err := s.HitsOf(ctx, packages, roots)
	if err != nil {
		return found, err
	}
	// The past matches are read after the current ones. So a match that ends in between is in both results, and never
	// in neither.
	past, err := s.PastHitsOf(ctx, packages, roots, asOf)
	if err != nil {
		return found, err
	}
	hits = slices.DeleteFunc(append(hits, past...), func(h Hit) bool { return h.Since > asOf })
	var keys []int64
	for _, h := range hits {
		keys = append(keys, h.Advisory)
	}
	slices.Sort(keys)
	named, err := s.Named(ctx, slices.Compact(keys))
	for _, h := range hits {
		if a, ok := named[h.Advisory]; ok && store.Covered(reach, a.UID.Parent()) {
			found.ByPackage[h.Package] = append(found.ByPackage[h.Package], h)
			found.Advisories[h.Advisory] = a
		}
	}
	return found, err
}

// HitsSince returns the advisories in reach that affect packages, or affected them
// after a time. Past matches of deleted advisories are included.
func (s *Store) HitsSince(ctx context.Context, packages []int64, reach []resource.UID, after int64) (Hits, error) {
	matched, err := s.Hits(ctx, packages, reach)
	if err != nil {
		return matched, err
	}
	var roots []resource.UID
	for _, g := range reach {
		roots = append(roots, g.Root())
	}
	slices.Sort(roots)
	past, err := s.PastHitsOf(ctx, packages, slices.Compact(roots), after)
	if err != nil || len(past) == 0 {
		return matched, err
	}
	var keys []int64
	for _, h := range past {
		keys = append(keys, h.Advisory)
	}
	slices.Sort(keys)
	named, err := s.Named(ctx, slices.Compact(keys))
	for _, h := range past {
		if a := named[h.Advisory]; store.Covered(reach, a.UID.Parent()) {
			matched.ByPackage[h.Package] = append(matched.ByPackage[h.Package], h)
			matched.Advisories[h.Advisory] = a
		}
	}
	return matched, err
}
