package findingdb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// Images are numbers of images, by their chunks.
type Images map[int64]*bitmap.Set

// Add adds an image.
func (i Images) Add(number int64) {
	chunk, place := bitmap.At(number)
	if i[chunk] == nil {
		i[chunk] = &bitmap.Set{}
	}
	i[chunk].Add(place)
}

// Has reports whether an image is among them.
func (i Images) Has(number int64) bool {
	chunk, place := bitmap.At(number)
	return i[chunk] != nil && i[chunk].Has(place)
}

// Or adds others.
func (i Images) Or(others Images) {
	for chunk, set := range others {
		if i[chunk] == nil {
			i[chunk] = &bitmap.Set{}
		}
		i[chunk].Or(set)
	}
}

// Minus removes others.
func (i Images) Minus(others Images) {
	for chunk, set := range i {
		if o := others[chunk]; o != nil {
			set.Minus(o)
		}
	}
}

// And returns those that are also among others.
func (i Images) And(others Images) Images {
	both := Images{}
	for chunk, set := range i {
		if o := others[chunk]; o != nil {
			copied := *set
			copied.And(o)
			both[chunk] = &copied
		}
	}
	return both
}

// Len returns how many they are.
func (i Images) Len() (n int) {
	for _, set := range i {
		n += set.Len()
	}
	return n
}

// Numbers returns them in order, the highest first and at most n.
func (i Images) Numbers(n int) (all []int64) {
	for chunk, set := range i {
		for place := range set.All() {
			all = append(all, chunk*bitmap.Size+int64(place))
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all[:min(n, len(all))]
}

// ImagesIn returns the images of a group and below it.
func (t Tx) ImagesIn(ctx context.Context, group resource.UID) (Images, error) {
	found, err := sets(ctx, t.Rows, t.DB.Engine, `SELECT b.chunk, b.bits FROM %s AS s CROSS JOIN group_images AS b
		WHERE b.grp = s.v`, []int64{store.Segment(group)})
	return found, err
}

// ImagesWith returns for each of the packages which images of the chunks of others have it,
// and adds them to all.
func (t Tx) ImagesWith(ctx context.Context, packages []int64, in Images, all map[int64]Images) error {
	chunks := make([]int64, 0, len(in))
	for c := range in {
		chunks = append(chunks, c)
	}
	slices.Sort(chunks)
	for some := range slices.Chunk(packages, packageBatch) {
		q := store.Query{Engine: t.DB.Engine}
		text := fmt.Sprintf(`SELECT b.package, b.chunk, b.bits FROM %s AS c CROSS JOIN %s AS s CROSS JOIN package_images AS b
			WHERE b.chunk = c.v AND b.package = s.v`, t.DB.Engine.Unnest(&q, chunks), t.DB.Engine.Unnest(&q, some))
		err := t.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
			var id, chunk int64
			var bits []byte
			if err := row.Scan(&id, &chunk, &bits); err != nil {
				return false, err
			}
			set, err := bitmap.Decode(bits)
			if all[id] == nil {
				all[id] = Images{}
			}
			all[id][chunk] = &set
			return false, err
		})
		if err != nil {
			return err
		}
		for _, id := range some {
			if all[id] == nil {
				all[id] = Images{} // so that nobody asks again
			}
		}
	}
	return nil
}

// SetHits returns the matches of the advisories in alias sets, by the set. Of one that has more
// than n it returns n+1.
func (t Tx) SetHits(ctx context.Context, aliasSets []int64, n int) (map[int64][]Hit, error) {
	q := store.Query{Engine: t.DB.Engine}
	all := map[int64][]Hit{}
	return all, t.Rows(ctx, fmt.Sprintf(`SELECT a.alias_set, m.package, m.advisory, m.score, m.fixed FROM %s AS s
		CROSS JOIN matched_advisories AS a CROSS JOIN matches AS m WHERE a.alias_set = s.v AND m.advisory = a.advisory`,
		t.DB.Engine.Unnest(&q, aliasSets)), q.Args, func(row store.Scanner) (bool, error) {
		var set int64
		var h Hit
		var fixed []byte
		if err := row.Scan(&set, &h.Package, &h.Advisory, &h.Score, &fixed); err != nil {
			return false, err
		}
		if len(all[set]) > n {
			return false, nil
		}
		err := json.Unmarshal(fixed, &h.Fixed)
		all[set] = append(all[set], h)
		return false, err
	})
}

// SetNames returns the names of alias sets, of each at most n.
func (t Tx) SetNames(ctx context.Context, aliasSets []int64, n int) (all []string, _ error) {
	for _, set := range aliasSets {
		names, err := store.ReadColumn[string](ctx, t.Rows,
			`SELECT name FROM alias_names WHERE alias_set = $1 ORDER BY name LIMIT $2`, set, n)
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	return all, nil
}

// A SetHit is a match with its advisory, and the alias set of that.
type SetHit struct {
	Hit
	Set int64
	By  NamedAdvisory
}

// OwnHits returns the matches of packages with advisories of one organization.
func (t Tx) OwnHits(ctx context.Context, root int64, packages []int64) (all []SetHit, _ error) {
	for some := range slices.Chunk(packages, packageBatch) {
		q := store.Query{Engine: t.DB.Engine}
		text := fmt.Sprintf(`SELECT %s, a.alias_set, a.uid, a.names FROM %s AS s CROSS JOIN matches AS m
			CROSS JOIN matched_advisories AS a WHERE m.package = s.v AND m.root = %s AND a.advisory = m.advisory`, hitColumns,
			t.DB.Engine.Unnest(&q, some), q.Arg(root))
		err := t.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
			var h SetHit
			var fixed, names []byte
			if err := row.Scan(&h.Package, &h.Advisory, &h.Since, &h.Score, &fixed, &h.OpenedBy, &h.Set, &h.By.UID,
				&names); err != nil {
				return false, err
			}
			err := json.Unmarshal(names, &h.By.Names)
			if err == nil {
				err = json.Unmarshal(fixed, &h.Fixed)
			}
			all = append(all, h)
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// PackagesByID returns packages by their numbers.
func (t Tx) PackagesByID(ctx context.Context, ids []int64) (map[int64]registry.Package, error) {
	q := store.Query{Engine: t.DB.Engine}
	found, err := store.ReadAll(ctx, t.Rows, scanPackage, fmt.Sprintf(`SELECT %s FROM %s AS s
		CROSS JOIN packages AS p WHERE p.seq = s.v`, packageColumns, t.DB.Engine.Unnest(&q, ids)), q.Args...)
	all := map[int64]registry.Package{}
	for _, p := range found {
		all[p.ID] = p.Package
	}
	return all, err
}

// An ImageNumber is an image with its number.
type ImageNumber struct {
	Number int64
	vuln.NewsImage
}

// ImagesByNumber returns images by their numbers, the highest first. One that is gone is
// left out.
func (t Tx) ImagesByNumber(ctx context.Context, numbers []int64) ([]ImageNumber, error) {
	q := store.Query{Engine: t.DB.Engine}
	return store.ReadAll(ctx, t.Rows, func(row store.Scanner) (i ImageNumber, err error) {
		err = row.Scan(&i.Number, &i.Repo, &i.Digest)
		return i, err
	}, fmt.Sprintf(`SELECT i.number, i.uid, i.digest FROM %s AS s CROSS JOIN images AS i WHERE i.number = s.v
		ORDER BY i.number DESC`, t.DB.Engine.Unnest(&q, numbers)), q.Args...)
}

// Owners returns who has a role in a group now, at most n.
func (t Tx) Owners(ctx context.Context, group, role resource.UID, n int) ([]resource.UID, error) {
	now, err := t.Clock(ctx)
	if err != nil {
		return nil, err
	}
	return store.ReadColumn[resource.UID](ctx, t.Rows, `SELECT identity FROM role_bindings WHERE parent = $1 AND role = $2
		AND start_ms <= $4 AND end_ms = 0 AND (expire_ms = 0 OR expire_ms > $4)
		ORDER BY create_ms, seg LIMIT $3`, store.Segment(group), store.Segment(role), n, store.MS(now))
}

// A News is an image whose packages have changed since events told about it.
type News struct {
	Number, Root int64
	Told         []int64 // the packages that events have told about
	Quiet        bool    // no event tells of the difference
}

func scanNews(row store.Scanner) (n News, err error) {
	var told []byte
	if err := row.Scan(&n.Number, &n.Root, &told, &n.Quiet); err != nil {
		return n, err
	}
	n.Told, err = decodeIDs(told)
	return n, err
}

// NextNews returns images whose packages have changed since events told about them, in the
// order of their numbers: at most n, from a number on.
func (s *Store) NextNews(ctx context.Context, from int64, n int) ([]int64, error) {
	return store.ReadColumn[int64](ctx, s.Rows, `SELECT number FROM image_news WHERE number >= $1 ORDER BY number LIMIT $2`,
		from, n)
}

// NewsOf returns the images of an organization whose packages have changed since events told
// about them.
func (t Tx) NewsOf(ctx context.Context, root int64) ([]News, error) {
	return store.ReadAll(ctx, t.Rows, scanNews, `SELECT number, root, told, quiet FROM image_news WHERE root = $1`, root)
}

// News returns those of the images whose packages have changed since events told about
// them.
func (t Tx) News(ctx context.Context, numbers []int64) ([]News, error) {
	q := store.Query{Engine: t.DB.Engine}
	return store.ReadAll(ctx, t.Rows, scanNews, fmt.Sprintf(`SELECT n.number, n.root, n.told, n.quiet FROM %s AS s
		CROSS JOIN image_news AS n WHERE n.number = s.v`, t.DB.Engine.Unnest(&q, numbers)), q.Args...)
}

// DropNews notes that events have told about an image as it is.
func (t Tx) DropNews(ctx context.Context, number int64) error {
	return t.Later(ctx, `DELETE FROM image_news WHERE number = $1`, number)
}

// Changing notes that the packages of images change, and that events have told about those
// given. If that was noted before, they have told about those of then. The chunks of the
// images must be locked by the commit, with which the note is written: otherwise whoever
// tells of the packages from before could take it for what they have told.
func (t Tx) Changing(ctx context.Context, numbers, told []int64, quiet bool) error {
	for _, n := range numbers {
		if err := t.Later(ctx, `INSERT INTO image_news (number, root, told, quiet)
			SELECT i.number, i.root, $2, $3 FROM images AS i WHERE i.number = $1 ON CONFLICT (number) DO NOTHING`,
			n, encodeIDs(told), quiet); err != nil {
			return err
		}
	}
	return nil
}

// Content returns the numbers of the packages that an image of a repo has, in order, also
// those that only SBOMs tell of; and whether all of them were compared with the advisories.
func (t Tx) Content(ctx context.Context, i vuln.NewsImage) (ids []int64, matched bool, _ error) {
	ids, err := t.SBOMPackages(ctx, i.Repo, i.Digest)
	if err != nil {
		return nil, false, err
	}
	texts, err := store.ReadColumn[[]byte](ctx, t.Rows, `SELECT n.packages FROM images AS i JOIN inspections AS n
		ON n.digest = i.digest WHERE i.repo = $1 AND i.digest = $2 AND i.state = $3`, store.Segment(i.Repo), i.Digest,
		int(registry.ImageIndexed))
	if err != nil {
		return nil, false, err
	}
	for _, text := range texts {
		c, err := decode(text, nil)
		if err != nil {
			return nil, false, err
		}
		ids = append(ids, c.ids...)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var waiting int
	q := store.Query{Engine: t.DB.Engine}
	err = t.Row(ctx, fmt.Sprintf(`SELECT count(*) FROM %s AS s CROSS JOIN packages AS p WHERE p.seq = s.v AND NOT p.matched`,
		t.DB.Engine.Unnest(&q, ids)), q.Args, &waiting)
	return ids, waiting == 0, err
}
