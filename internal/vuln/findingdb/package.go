package findingdb

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
	"github.com/holdfast-dev/holdfast/internal/store/engine"
)

// keyOf returns the key of a package. It is a cryptographic digest, because anybody can
// push packages with long names, and nobody must be able to construct two packages with
// the same key.
func keyOf(p registry.Package) string {
	h := sha256.New()
	for _, text := range []string{p.Ecosystem, p.Name, p.Version, p.SourceName, p.SourceVersion, p.PURL,
		strconv.FormatBool(p.Owned)} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(text)))
		h.Write(length[:])
		h.Write([]byte(text))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:20])
}

// packageBatch is the number of packages that are looked up or added together.
const packageBatch = 1000

// AddPackages returns the IDs of packages, and adds packages that are new.
func (s *Store) AddPackages(ctx context.Context, packages []registry.Package) ([]int64, error) {
	keys := make([]string, len(packages))
	for i, p := range packages {
		keys[i] = keyOf(p)
	}
	known := map[string]int64{}
	for i := 0; i < len(packages); i += packageBatch {
		end := min(i+packageBatch, len(packages))
		if err := s.addPackages(ctx, keys[i:end], packages[i:end], known); err != nil {
			return nil, err
		}
	}
	ids := make([]int64, len(packages))
	for i, key := range keys {
		ids[i] = known[key]
	}
	return ids, nil
}

func (s *Store) addPackages(
	ctx context.Context, keys []string, packages []registry.Package, known map[string]int64,
) error {
	find := func() error {
		q := store.Query{Engine: s.Engine}
		found, err := store.ReadMap[string, int64](ctx, s.Rows, fmt.Sprintf(`SELECT p.key, p.seq FROM %s AS s
			CROSS JOIN packages AS p WHERE p.key = s.v`, s.Engine.Unnest(&q, keys)), q.Args...)
		for key, id := range found {
			known[key] = id
		}
		return err
	}
	if err := find(); err != nil {
		return err
	}
	var rows [][]any
	for i, p := range packages {
		if known[keys[i]] == 0 {
			rows = append(rows, []any{keys[i], p.Ecosystem, p.Name, p.Version, p.SourceName, p.SourceVersion, p.PURL, p.Owned,
				p.Owned})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	// The rows are sorted by key, so that two transactions that add the same packages do not deadlock.
	slices.SortFunc(rows, func(a, b []any) int { return cmp.Compare(a[0].(string), b[0].(string)) })
	err := s.Write(ctx, func(t *store.Tx) error {
		t.Wakes(store.MatchQueue)
		return t.InsertRows(ctx,
			`INSERT INTO packages (key, ecosystem, name, version, source_name, source_version, purl, owned,
			matched)`, rows, ` ON CONFLICT (key) DO NOTHING`)
	})
	if err != nil {
		return err
	}
	return find()
}

const packageColumns = `p.seq, p.ecosystem, p.name, p.version, p.source_name, p.source_version, p.purl, p.owned`

// A StoredPackage is a package with its ID.
type StoredPackage struct {
	ID int64
	registry.Package
}

func scanPackage(row store.Scanner) (p StoredPackage, err error) {
	err = row.Scan(&p.ID, &p.Ecosystem, &p.Name, &p.Version, &p.SourceName, &p.SourceVersion, &p.PURL, &p.Owned)
	return p, err
}

// ByID returns the packages with these IDs, by ID.
func (s *Store) ByID(ctx context.Context, ids []int64) (map[int64]registry.Package, error) {
	byID := map[int64]registry.Package{}
	for batch := range slices.Chunk(ids, packageBatch) {
		q := store.Query{Engine: s.Engine}
		found, err := store.ReadAll(ctx, s.Rows, scanPackage, fmt.Sprintf(`SELECT %s FROM %s AS s
			CROSS JOIN packages AS p WHERE p.seq = s.v`, packageColumns, s.Engine.Unnest(&q, batch)), q.Args...)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			byID[p.ID] = p.Package
		}
	}
	return byID, nil
}

// PackagesNamed returns at most n versions of a package: packages that have the name, and packages whose source package
// has the name. It returns only packages of images in the groups or repos.
func (s *Store) PackagesNamed(
	ctx context.Context, groups []resource.UID, name string, n int,
) (found []StoredPackage, _ error) {
	err := s.Snapshot(ctx, func(read store.Reader) error {
		reach, err := s.reach(ctx, read, groups)
		if err != nil || len(reach) == 0 {
			return err
		}
		for _, column := range []string{`p.name`, `p.source_name <> '' AND p.source_name`} {
			many, err := isMany(ctx, read, `SELECT 1 FROM packages AS p WHERE `+column+` = $1`, name)
			if err != nil {
				return err
			}
			if many {
				held, err := s.heldNamed(ctx, read, reach, column, name)
				if err != nil {
					return err
				}
				found = append(found, held...)
				continue
			}
			q := store.Query{Engine: s.Engine}
			text := fmt.Sprintf(`SELECT %s, b.chunk, b.bits FROM packages AS p CROSS JOIN %s AS c
				CROSS JOIN package_images AS b WHERE %s = %s AND b.chunk = c.v AND b.package = p.seq ORDER BY p.seq`,
				packageColumns, s.Engine.Unnest(&q, slices.Collect(maps.Keys(reach))), column, q.Arg(name))
			if found, err = appendHeld(ctx, read, text, q.Args, reach, found, n); err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortFunc(found, func(a, b StoredPackage) int { return cmp.Compare(a.ID, b.ID) })
	found = slices.CompactFunc(found, func(a, b StoredPackage) bool { return a.ID == b.ID })
	return found[:min(n, len(found))], err
}

// appendHeld runs a query for packages, and appends those that an image in reach has, until found has n packages.
func appendHeld(
	ctx context.Context, read store.Reader, text string, args []any, reach map[int64]*bitmap.Set,
	found []StoredPackage, n int,
) ([]StoredPackage, error) {
	err := read(ctx, text, args, func(row store.Scanner) (bool, error) {
		var p StoredPackage
		var chunk int64
		var bits []byte
		if err := row.Scan(&p.ID, &p.Ecosystem, &p.Name, &p.Version, &p.SourceName, &p.SourceVersion, &p.PURL, &p.Owned,
			&chunk, &bits); err != nil {
			return false, err
		}
		set, err := bitmap.Decode(bits)
		if set.And(reach[chunk]); set.Len() > 0 && (len(found) == 0 || found[len(found)-1].ID != p.ID) {
			found = append(found, p)
		}
		return len(found) >= n, err
	})
	return found, err
}

// reach returns the images in groups or repos, as a bitmap for each chunk. It compares whole UIDs, because a caller can
// make up a UID that has the segment of somebody else's group below a group of the caller.
func (s *Store) reach(ctx context.Context, read store.Reader, groups []resource.UID) (map[int64]*bitmap.Set, error) {
	holders, err := s.holders(ctx, read, groups)
	if err != nil || len(holders) == 0 {
		return nil, err
	}
	return sets(ctx, read, s.Engine, `SELECT b.chunk, b.bits FROM %s AS s CROSS JOIN `+imagedb.GroupImageRows+` AS b
		WHERE b.grp = s.v`, holders)
}

// holders returns the keys of the groups and repos that exist. It compares whole UIDs, because a caller can make up a
// UID that has the segment of somebody else's group below a group of the caller.
func (s *Store) holders(ctx context.Context, read store.Reader, groups []resource.UID) ([]int64, error) {
	texts := make([]string, len(groups))
	for i, g := range groups {
		texts[i] = string(g)
	}
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT g.seg FROM %s AS s CROSS JOIN `+store.GroupRows+` AS g WHERE g.uid = s.v
		UNION ALL SELECT r.seg FROM %s AS s CROSS JOIN `+registrydb.RepoRows+` AS r
		WHERE r.uid = s.v`, s.Engine.Unnest(&q, texts),
		s.Engine.Unnest(&q, texts))
	return store.ReadColumn[int64](ctx, read, text, q.Args...)
}

// changeImages changes the bitmaps of a chunk that contain the images with each package. The chunk must be locked.
func (t Tx) changeImages(ctx context.Context, chunk int64, packages []int64, change func(*bitmap.Set)) error {
	for batch := range slices.Chunk(packages, packageBatch) {
		q := store.Query{Engine: t.DB.Engine}
		have, err := store.ReadMap[int64, []byte](ctx, t.Rows, fmt.Sprintf(`SELECT p.package, p.bits FROM %s AS s
			CROSS JOIN package_images AS p WHERE p.chunk = %s AND p.package = s.v`, t.DB.Engine.Unnest(&q, batch),
			q.Arg(chunk)), q.Args...)
		if err != nil {
			return err
		}
		var rows [][]any
		for _, p := range batch {
			set, err := bitmap.Decode(have[p])
			if err != nil {
				return err
			}
			change(&set)
			if set.Len() > 0 {
				rows = append(rows, []any{chunk, p, set.Encode()})
			} else if err := t.Later(ctx, `DELETE FROM package_images WHERE chunk = $1 AND package = $2`, chunk, p); err != nil {
				return err
			}
		}
		err = t.InsertRows(ctx, `INSERT INTO package_images (chunk, package, bits)`, rows,
			` ON CONFLICT (chunk, package) DO UPDATE SET bits = excluded.bits`)
		if err != nil {
			return err
		}
	}
	return nil
}

// ChangeImages records that images have the packages in add, and do not have the
// packages in remove. Their chunks must be locked.
func (t Tx) ChangeImages(ctx context.Context, numbers, add, remove []int64) error {
	places := map[int64]*bitmap.Set{}
	for _, n := range numbers {
		chunk, place := bitmap.At(n)
		if places[chunk] == nil {
			places[chunk] = &bitmap.Set{}
		}
		places[chunk].Add(place)
	}
	for chunk, set := range places {
		if err := t.changeImages(ctx, chunk, add, func(s *bitmap.Set) { s.Or(set) }); err != nil {
			return err
		}
		if err := t.changeImages(ctx, chunk, remove, func(s *bitmap.Set) { s.Minus(set) }); err != nil {
			return err
		}
	}
	return nil
}

// Having returns the numbers of the images in the groups or repos that have one of the
// packages, in order.
func (s *Store) Having(ctx context.Context, groups []resource.UID, packages []int64) (numbers []int64, _ error) {
	var found map[int64]*bitmap.Set
	err := s.Snapshot(ctx, func(read store.Reader) error {
		reach, err := s.reach(ctx, read, groups)
		if err != nil || len(reach) == 0 {
			return err
		}
		chunks := slices.Collect(maps.Keys(reach))
		found, err = sets(ctx, read, s.Engine, `SELECT b.chunk, b.bits FROM %s AS s CROSS JOIN %s AS c
			CROSS JOIN package_images AS b WHERE b.package = s.v AND b.chunk = c.v`, packages, chunks)
		for c, set := range found {
			set.And(reach[c])
		}
		return err
	})
	for _, c := range slices.Sorted(maps.Keys(found)) {
		for place := range found[c].All() {
			numbers = append(numbers, c*bitmap.Size+int64(place))
		}
	}
	return numbers, err
}

// PackagesIn returns which of the given packages each image has.
func (s *Store) PackagesIn(ctx context.Context, numbers, packages []int64) (map[int64][]registry.Package, error) {
	var chunks []int64
	for _, n := range numbers {
		chunk, _ := bitmap.At(n)
		chunks = append(chunks, chunk)
	}
	slices.Sort(chunks)
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT b.chunk, b.package, b.bits FROM %s AS s CROSS JOIN %s AS c CROSS JOIN package_images AS b
		WHERE b.package = s.v AND b.chunk = c.v`, s.Engine.Unnest(&q, packages), s.Engine.Unnest(&q, slices.Compact(chunks)))
	found := map[int64][]int64{}
	var wanted []int64
	err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
		var chunk, id int64
		var bits []byte
		if err := row.Scan(&chunk, &id, &bits); err != nil {
			return false, err
		}
		set, err := bitmap.Decode(bits)
		for _, n := range numbers {
			if c, place := bitmap.At(n); c == chunk && set.Has(place) {
				found[n] = append(found[n], id)
				wanted = append(wanted, id)
			}
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(wanted)
	known, err := s.ByID(ctx, slices.Compact(wanted))
	byImage := map[int64][]registry.Package{}
	for n, ids := range found {
		slices.Sort(ids)
		for _, id := range ids {
			byImage[n] = append(byImage[n], known[id])
		}
	}
	return byImage, err
}

// CountHaving returns, for each package, how many of the given images have it.
func (s *Store) CountHaving(ctx context.Context, numbers, packages []int64) (map[int64]int64, error) {
	counts := map[int64]int64{}
	return counts, s.eachHaving(ctx, numbers, packages, func(id, _ int64,
		set *bitmap.Set) {
		counts[id] += int64(set.Len())
	})
}

// HavingEach returns, for each package, the numbers of the given images that have it, the highest first.
func (s *Store) HavingEach(ctx context.Context, numbers, packages []int64) (map[int64][]int64, error) {
	byPackage := map[int64][]int64{}
	err := s.eachHaving(ctx, numbers, packages, func(id, chunk int64, set *bitmap.Set) {
		for place := range set.All() {
			byPackage[id] = append(byPackage[id], chunk*bitmap.Size+int64(place))
		}
	})
	for _, numbersOf := range byPackage {
		slices.SortFunc(numbersOf, func(a, b int64) int { return cmp.Compare(b, a) })
	}
	return byPackage, err
}

// eachHaving calls f for each package and chunk, with the given images in the chunk that have the package.
func (s *Store) eachHaving(
	ctx context.Context, numbers, packages []int64, f func(id, chunk int64, set *bitmap.Set),
) error {
	among := map[int64]*bitmap.Set{}
	for _, n := range numbers {
		chunk, place := bitmap.At(n)
		if among[chunk] == nil {
			among[chunk] = &bitmap.Set{}
		}
		among[chunk].Add(place)
	}
	chunks := slices.Collect(maps.Keys(among))
	for batch := range slices.Chunk(packages, keyBatch) {
		q := store.Query{Engine: s.Engine}
		text := fmt.Sprintf(`SELECT b.chunk, b.package, b.bits FROM %s AS s CROSS JOIN %s AS c CROSS JOIN package_images AS b
			WHERE b.package = s.v AND b.chunk = c.v`, s.Engine.Unnest(&q, batch), s.Engine.Unnest(&q, chunks))
		err := s.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
			var chunk, id int64
			var bits []byte
			if err := row.Scan(&chunk, &id, &bits); err != nil {
				return false, err
			}
			set, err := bitmap.Decode(bits)
			set.And(among[chunk])
			f(id, chunk, &set)
			return false, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sets runs a query that returns chunks and bitmaps, and returns the union of the bitmaps for each chunk.
func sets(
	ctx context.Context, read store.Reader, e engine.Engine, text string, lists ...[]int64,
) (map[int64]*bitmap.Set, error) {
	q := store.Query{Engine: e}
	var tables []any
	for _, l := range lists {
		tables = append(tables, e.Unnest(&q, l))
	}
	united := map[int64]*bitmap.Set{}
	err := read(ctx, fmt.Sprintf(text, tables...), q.Args, func(row store.Scanner) (bool, error) {
		var chunk int64
		var bits []byte
		if err := row.Scan(&chunk, &bits); err != nil {
			return false, err
		}
		set, err := bitmap.Decode(bits)
		if united[chunk] == nil {
			united[chunk] = &bitmap.Set{}
		}
		united[chunk].Or(&set)
		return false, err
	})
	return united, err
}

// SweepChunks removes the bits of deleted images from chunks in which many or all
// images are deleted. It also removes inspections of images that no repo has. It
// returns the number of rows that it has read.
func (s *Store) SweepChunks(ctx context.Context) (n int, _ error) {
	const many = bitmap.Size / 8
	chunks, err := store.ReadColumn[int64](ctx, s.Rows, `SELECT chunk FROM `+imagedb.ChunkRows+` AS image_chunks
		WHERE gone >= $1
		OR gone > 0 AND gone = used`, many)
	if err != nil {
		return 0, err
	}
	for _, c := range chunks {
		err := s.Write(ctx, func(t *store.Tx) error {
			did, err := In(t).sweepChunk(ctx, c)
			n += did
			return err
		})
		if err != nil {
			return n, err
		}
	}
	gone, err := s.Exec(ctx, `DELETE FROM inspections WHERE NOT EXISTS (SELECT 1 FROM `+imagedb.ImageRows+` AS i
		WHERE i.digest = inspections.digest)`)
	return n + int(gone), err
}

func (t Tx) sweepChunk(ctx context.Context, chunk int64) (int, error) {
	if err := imagedb.In(t.Tx).LockChunk(ctx, chunk); err != nil {
		return 0, err
	}
	numbers, err := store.ReadColumn[int64](ctx, t.Rows, `SELECT number FROM `+imagedb.ImageRows+` AS images
		WHERE number >= $1 AND number < $2`,
		chunk*bitmap.Size, (chunk+1)*bitmap.Size)
	if err != nil {
		return 0, err
	}
	var alive bitmap.Set
	for _, n := range numbers {
		_, place := bitmap.At(n)
		alive.Add(place)
	}
	packages, err := store.ReadColumn[int64](ctx, t.Rows, `SELECT package FROM package_images WHERE chunk = $1`, chunk)
	if err != nil {
		return 0, err
	}
	if err := t.changeImages(ctx, chunk, packages, func(s *bitmap.Set) { s.And(&alive) }); err != nil {
		return 0, err
	}
	return len(packages), imagedb.In(t.Tx).MarkSwept(ctx, chunk)
}
