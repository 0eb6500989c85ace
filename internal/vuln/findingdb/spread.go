package findingdb

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
)

// A Spread contains the images that have one of the packages of a query.
type Spread struct {
	Images   map[int64]*bitmap.Set // bitmaps of image numbers, by chunk
	Packages map[int64]int         // number of images by package; packages without images are left out
}

// Has reports whether an image is in the set.
func (s Spread) Has(number int64) bool {
	chunk, place := bitmap.At(number)
	set := s.Images[chunk]
	return set != nil && set.Has(place)
}

// Numbers returns the numbers of the images, in order.
func (s Spread) Numbers() (numbers []int64) {
	for _, chunk := range slices.Sorted(maps.Keys(s.Images)) {
		for place := range s.Images[chunk].All() {
			numbers = append(numbers, chunk*bitmap.Size+int64(place))
		}
	}
	return numbers
}

// SpreadOf returns the images in the groups or repos that have one of the packages.
func (s *Store) SpreadOf(ctx context.Context, groups []resource.UID, packages []int64) (out Spread, _ error) {
	packages = slices.Compact(slices.Sorted(slices.Values(packages))) // a repeated package would be counted twice
	out = Spread{map[int64]*bitmap.Set{}, map[int64]int{}}
	err := s.Snapshot(ctx, func(read store.Reader) error {
		reach, err := s.reach(ctx, read, groups)
		if err != nil || len(reach) == 0 {
			return err
		}
		q := store.Query{Engine: s.Engine}
		text := fmt.Sprintf(`SELECT b.package, b.chunk, b.bits FROM %s AS s CROSS JOIN %s AS c CROSS JOIN package_images AS b
			WHERE b.package = s.v AND b.chunk = c.v`, s.Engine.Unnest(&q, packages),
			s.Engine.Unnest(&q, slices.Collect(maps.Keys(reach))))
		return read(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
			var id, chunk int64
			var bits []byte
			if err := row.Scan(&id, &chunk, &bits); err != nil {
				return false, err
			}
			set, err := bitmap.Decode(bits)
			if set.And(reach[chunk]); err == nil && set.Len() > 0 {
				out.Packages[id] += set.Len()
				if out.Images[chunk] == nil {
					out.Images[chunk] = &bitmap.Set{}
				}
				out.Images[chunk].Or(&set)
			}
			return false, err
		})
	})
	return out, err
}

// RunningDigests returns the digests in the inventories of an organization that belong
// to one of its images for which has returns true, or to an index that lists such an
// image, directly or through other indexes.
func (s *Store) RunningDigests(ctx context.Context, root resource.UID, has func(number int64) bool) ([]string, error) {
	const digests = `(SELECT DISTINCT e.digest FROM inventory_entries AS e WHERE e.root = $1 AND e.digest <> '') AS d`
	found := map[string]bool{}
	for _, text := range []string{
		`SELECT d.digest, i.number FROM ` + digests + ` JOIN ` + imagedb.ImageRows + ` AS i
			ON i.root = $1 AND i.digest = d.digest
			WHERE i.number IS NOT NULL`,
		`SELECT b.origin, i.number FROM ` + registrydb.ManifestsBelow(`SELECT d.digest AS origin, m.repo AS repo,
			m.digest AS digest FROM `+digests+` JOIN `+registrydb.ManifestRows+` AS m ON m.digest = d.digest`) + ` AS b
			JOIN ` + imagedb.ImageRows + ` AS i ON i.repo = b.repo AND i.digest = b.digest WHERE i.root = $1
			AND i.number IS NOT NULL`,
	} {
		err := s.Rows(ctx, text, []any{store.Segment(root)}, func(row store.Scanner) (bool, error) {
			var digest string
			var number int64
			err := row.Scan(&digest, &number)
			if err == nil && has(number) {
				found[digest] = true
			}
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// RunningAt counts the inventory entries that have one of the digests, at places of one organization. It returns their
// number, and up to n of the entries.
func (s *Store) RunningAt(
	ctx context.Context, places []Place, digests []string, n int,
) (total int64, entries []RunningImage, _ error) {
	byID := map[int64]vuln.InventoryPlace{}
	for _, p := range places {
		byID[p.ID] = p.InventoryPlace
	}
	if len(places) == 0 || len(digests) == 0 {
		return 0, nil, nil
	}
	root := store.Segment(places[0].Group.Root())
	ids := slices.Sorted(maps.Keys(byID))
	where := func(q *store.Query) string {
		return fmt.Sprintf(`%s AS s CROSS JOIN inventory_entries AS e WHERE e.digest = s.v AND e.root = %s
			AND e.place IN (SELECT p.v FROM %s AS p)`, s.Engine.Unnest(q, digests), q.Arg(root), s.Engine.Unnest(q, ids))
	}
	q := store.Query{Engine: s.Engine}
	if err := s.Row(ctx, `SELECT count(*) FROM `+where(&q), q.Args, &total); err != nil {
		return 0, nil, err
	}
	q = store.Query{Engine: s.Engine}
	entries, err := store.ReadAll(ctx, s.Rows, func(row store.Scanner) (e RunningImage, err error) {
		var place, started int64
		err = row.Scan(&place, &e.ID, &e.Digest, &e.Namespace, &e.Workload, &e.Container, &e.Image, &e.Platform, &e.Copies,
			&started)
		e.Place, e.StartTime = byID[place], startTime(started)
		return e, err
	}, `SELECT e.place, e.seq, e.digest, e.namespace, e.workload, e.container, e.image, e.platform, e.copies,
		e.start_ms FROM `+
		where(&q)+` ORDER BY e.place, e.seq LIMIT `+q.Arg(n), q.Args...)
	return total, entries, err
}

// ChangesPending reports whether changed advisories of the organizations have not been compared with packages yet.
func (s *Store) ChangesPending(ctx context.Context, roots []resource.UID) (bool, error) {
	keys := make([]int64, len(roots))
	for i, r := range roots {
		keys[i] = store.Segment(r)
	}
	q := store.Query{Engine: s.Engine}
	var n int
	err := s.Row(ctx, fmt.Sprintf(`SELECT count(*) FROM %s AS s WHERE EXISTS (SELECT 1 FROM `+advisorydb.ChangeRows+` AS c
		WHERE c.root = s.v)`, s.Engine.Unnest(&q, keys)), q.Args, &n)
	return n > 0, err
}
