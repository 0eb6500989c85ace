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

// manyPackages is how many packages are looked for one by one. Anybody can push very many
// versions of a package, and what they have must not cost others time; so if there are
// more, those are read that the caller's own images have.
const manyPackages = 1000

// isMany reports whether a query has more rows than that.
func isMany(ctx context.Context, read store.Reader, text string, args ...any) (bool, error) {
	args = append(slices.Clone(args), manyPackages+1)
	found, err := store.ReadColumn[int](ctx, read, fmt.Sprintf(`%s LIMIT $%d`, text, len(args)), args...)
	return len(found) > manyPackages, err
}

// held returns the packages that images in reach have.
func (s *Store) held(ctx context.Context, read store.Reader, reach map[int64]*bitmap.Set) ([]int64, error) {
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT b.chunk, b.package, b.bits FROM %s AS c CROSS JOIN package_images AS b WHERE b.chunk = c.v`,
		s.Engine.Unnest(&q, slices.Collect(maps.Keys(reach))))
	all := map[int64]bool{}
	err := read(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var chunk, id int64
		var bits []byte
		if err := row.Scan(&chunk, &id, &bits); err != nil || all[id] {
			return false, err
		}
		set, err := bitmap.Decode(bits)
		if set.And(reach[chunk]); set.Len() > 0 {
			all[id] = true
		}
		return false, err
	})
	return slices.Sorted(maps.Keys(all)), err
}

// heldNamed returns the packages that images in reach have whose column has a value.
func (s *Store) heldNamed(
	ctx context.Context, read store.Reader, reach map[int64]*bitmap.Set, column, name string,
) (all []Known, _ error) {
	ids, err := s.held(ctx, read, reach)
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(ids, packageBatch) {
		q := store.Query{Engine: s.Engine}
		found, err := store.ReadAll(ctx, read, scanPackage, fmt.Sprintf(`SELECT %s FROM %s AS s CROSS JOIN packages AS p
			WHERE p.seq = s.v AND %s = %s`, packageColumns, s.Engine.Unnest(&q, some), column, q.Arg(name)), q.Args...)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// AffectedBy returns the packages that advisories affect. If these are many, it returns
// those that images in the groups, or repos, have.
func (s *Store) AffectedBy(ctx context.Context, groups []resource.UID, advisories []int64) (all []int64, _ error) {
	err := s.Snapshot(ctx, func(read store.Reader) error {
		q := store.Query{Engine: s.Engine}
		text := fmt.Sprintf(`SELECT m.package FROM %s AS s CROSS JOIN matches AS m WHERE m.advisory = s.v LIMIT %s`,
			s.Engine.Unnest(&q, advisories), q.Arg(manyPackages+1))
		var err error
		if all, err = store.ReadColumn[int64](ctx, read, text, q.Args...); err != nil || len(all) <= manyPackages {
			return err
		}
		all = nil
		reach, err := s.reach(ctx, read, groups)
		if err != nil {
			return err
		}
		ids, err := s.held(ctx, read, reach)
		for some := range slices.Chunk(ids, packageBatch) {
			q := store.Query{Engine: s.Engine}
			found, err := store.ReadColumn[int64](ctx, read, fmt.Sprintf(`SELECT m.package FROM %s AS s CROSS JOIN %s AS a
				CROSS JOIN matches AS m WHERE m.package = s.v AND m.advisory = a.v`, s.Engine.Unnest(&q, some),
				s.Engine.Unnest(&q, advisories)), q.Args...)
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
		return err
	})
	return all, err
}
