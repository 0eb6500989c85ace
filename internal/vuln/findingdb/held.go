package findingdb

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
)

// manyPackages is the number of packages up to which a query looks up packages one by one. If there are more, it reads
// the packages of the caller's images instead. The reason is that anybody can push very many versions of a package, and
// must not slow down other callers.
const manyPackages = 1000

// isMany reports whether a query has more than manyPackages rows.
func isMany(ctx context.Context, read store.Reader, text string, args ...any) (bool, error) {
	args = append(slices.Clone(args), manyPackages+1)
	found, err := store.ReadColumn[int](ctx, read, fmt.Sprintf(`%s LIMIT $%d`, text, len(args)), args...)
	return len(found) > manyPackages, err
}

// held returns the packages of images in reach.
func (s *Store) held(ctx context.Context, read store.Reader, reach map[int64]*bitmap.Set) ([]int64, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT b.chunk, b.package, b.bits FROM %s AS c CROSS JOIN package_images AS b
		WHERE b.chunk = c.v`,
		s.Engine.Unnest(&q, slices.Collect(maps.Keys(reach))))
	ids := map[int64]bool{}
	err := read(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var chunk, id int64
		var bits []byte
		if err := row.Scan(&chunk, &id, &bits); err != nil || ids[id] {
			return false, err
		}
		set, err := bitmap.Decode(bits)
		if set.And(reach[chunk]); set.Len() > 0 {
			ids[id] = true
		}
		return false, err
	})
	return slices.Sorted(maps.Keys(ids)), err
}

// An ImageSet contains the images in groups or repos that were inspected, or to which SBOMs are attached.
type ImageSet struct {
	chunks map[int64]*bitmap.Set
}

// ImagesIn returns the images in groups or repos.
func (s *Store) ImagesIn(ctx context.Context, groups []resource.UID) (set ImageSet, _ error) {
	err := s.Snapshot(ctx, func(read store.Reader) (err error) {
		set.chunks, err = s.reach(ctx, read, groups)
		return err
	})
	return set, err
}

// Len returns the number of images.
func (i ImageSet) Len() (n int) {
	for _, set := range i.chunks {
		n += set.Len()
	}
	return n
}

// Added returns the images that are in i and not in earlier. ok is false if earlier has images that are not in i.
func (i ImageSet) Added(earlier ImageSet) (added ImageSet, ok bool) {
	added.chunks = map[int64]*bitmap.Set{}
	for chunk, current := range i.chunks {
		fresh := *current
		if before := earlier.chunks[chunk]; before != nil {
			fresh.Minus(before)
		}
		if fresh.Len() > 0 {
			added.chunks[chunk] = &fresh
		}
	}
	return added, i.Len()-added.Len() == earlier.Len()
}

// PackagesOf returns the packages in the files and SBOMs of images.
func (s *Store) PackagesOf(ctx context.Context, images ImageSet) (packages []int64, _ error) {
	err := s.Snapshot(ctx, func(read store.Reader) (err error) {
		packages, err = s.held(ctx, read, images.chunks)
		return err
	})
	return packages, err
}

// heldNamed returns the packages of images in reach for which column has the value name.
func (s *Store) heldNamed(
	ctx context.Context, read store.Reader, reach map[int64]*bitmap.Set, column, name string,
) (packages []StoredPackage, _ error) {
	ids, err := s.held(ctx, read, reach)
	if err != nil {
		return nil, err
	}
	for batch := range slices.Chunk(ids, packageBatch) {
		q := store.Query{Engine: s.Engine}
		found, err := store.ReadAll(ctx, read, scanPackage, fmt.Sprintf(`SELECT %s FROM %s AS s CROSS JOIN packages AS p
			WHERE p.seq = s.v AND %s = %s`, packageColumns, s.Engine.Unnest(&q, batch), column, q.Arg(name)), q.Args...)
		if err != nil {
			return nil, err
		}
		packages = append(packages, found...)
	}
	return packages, nil
}

// AffectedBy returns the packages that advisories affect, each once. If there are more than manyPackages, it returns
// only packages of images in the groups or repos.
func (s *Store) AffectedBy(ctx context.Context, groups []resource.UID, advisories []int64) (packages []int64, _ error) {
	err := s.Snapshot(ctx, func(read store.Reader) error {
		q := store.Query{Engine: s.Engine}
		text := fmt.Sprintf(`SELECT m.package FROM %s AS s CROSS JOIN matches AS m WHERE m.advisory = s.v LIMIT %s`,
			s.Engine.Unnest(&q, advisories), q.Arg(manyPackages+1))
		var err error
		if packages, err = store.ReadColumn[int64](ctx, read, text, q.Args...); err != nil || len(packages) <= manyPackages {
			return err
		}
		packages = nil
		reach, err := s.reach(ctx, read, groups)
		if err != nil {
			return err
		}
		ids, err := s.held(ctx, read, reach)
		for batch := range slices.Chunk(ids, packageBatch) {
			q := store.Query{Engine: s.Engine}
			found, err := store.ReadColumn[int64](ctx, read, fmt.Sprintf(`SELECT m.package FROM %s AS s CROSS JOIN %s AS a
				CROSS JOIN matches AS m WHERE m.package = s.v AND m.advisory = a.v`, s.Engine.Unnest(&q, batch),
				s.Engine.Unnest(&q, advisories)), q.Args...)
			if err != nil {
				return err
			}
			packages = append(packages, found...)
		}
		return err
	})
	slices.Sort(packages)
	return slices.Compact(packages), err
}
