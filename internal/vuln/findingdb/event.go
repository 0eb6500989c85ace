package findingdb

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/bitmap"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// Images is a set of image numbers. It has a bitmap for each chunk, which is a range of consecutive numbers.
type Images map[int64]*bitmap.Set

// Add adds an image.
func (i Images) Add(number int64) {
	chunk, place := bitmap.At(number)
	if i[chunk] == nil {
		i[chunk] = &bitmap.Set{}
	}
	i[chunk].Add(place)
}

// Has reports whether the set contains an image.
func (i Images) Has(number int64) bool {
	chunk, place := bitmap.At(number)
	return i[chunk] != nil && i[chunk].Has(place)
}

// Or adds the images of another set.
func (i Images) Or(o Images) {
	for chunk, set := range o {
		if i[chunk] == nil {
			i[chunk] = &bitmap.Set{}
		}
		i[chunk].Or(set)
	}
}

// Minus removes the images of another set.
func (i Images) Minus(o Images) {
	for chunk, set := range i {
		if o := o[chunk]; o != nil {
			set.Minus(o)
		}
	}
}

// And returns the images that are in both sets.
func (i Images) And(o Images) Images {
	both := Images{}
	for chunk, set := range i {
		if o := o[chunk]; o != nil {
			copied := *set
			copied.And(o)
			both[chunk] = &copied
		}
	}
	return both
}

// Len returns the number of images.
func (i Images) Len() (n int) {
	for _, set := range i {
		n += set.Len()
	}
	return n
}

// Numbers returns at most n numbers, the highest first.
func (i Images) Numbers(n int) (numbers []int64) {
	for chunk, set := range i {
		for place := range set.All() {
			numbers = append(numbers, chunk*bitmap.Size+int64(place))
		}
	}
	slices.Sort(numbers)
	slices.Reverse(numbers)
	return numbers[:min(n, len(numbers))]
}

// ImagesIn returns the images in a group and below it.
func (t Tx) ImagesIn(ctx context.Context, group resource.UID) (Images, error) {
	found, err := sets(ctx, t.Rows, t.DB.Engine, `SELECT b.chunk, b.bits FROM %s AS s
		CROSS JOIN `+imagedb.GroupImageRows+` AS b
		WHERE b.grp = s.v`, []int64{store.Segment(group)})
	return found, err
}

// ImagesWith sets byPackage to the images that have each package. It reads only the chunks in which the set in has
// images.
func (t Tx) ImagesWith(ctx context.Context, packages []int64, in Images, byPackage map[int64]Images) error {
	chunks := make([]int64, 0, len(in))
	for c := range in {
		chunks = append(chunks, c)
	}
	slices.Sort(chunks)
	for batch := range slices.Chunk(packages, packageBatch) {
		q := store.Query{Engine: t.DB.Engine}
		text := fmt.Sprintf(`SELECT b.package, b.chunk, b.bits FROM %s AS c CROSS JOIN %s AS s CROSS JOIN package_images AS b
			WHERE b.chunk = c.v AND b.package = s.v`, t.DB.Engine.Unnest(&q, chunks), t.DB.Engine.Unnest(&q, batch))
		err := t.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
			var id, chunk int64
			var bits []byte
			if err := row.Scan(&id, &chunk, &bits); err != nil {
				return false, err
			}
			set, err := bitmap.Decode(bits)
			if byPackage[id] == nil {
				byPackage[id] = Images{}
			}
			byPackage[id][chunk] = &set
			return false, err
		})
		if err != nil {
			return err
		}
		for _, id := range batch {
			if byPackage[id] == nil {
				byPackage[id] = Images{} // an empty set, so that the package is not read again
			}
		}
	}
	return nil
}

// SetHits returns the matches of the advisories that describe vulnerabilities, by vulnerability. If a vulnerability has
// more than n matches, SetHits returns n+1 of them.
func (t Tx) SetHits(ctx context.Context, sets []int64, n int) (map[int64][]Hit, error) {
	q := store.Query{Engine: t.DB.Engine}
	hits := map[int64][]Hit{}
	return hits, t.Rows(ctx, fmt.Sprintf(`SELECT a.vulnerability, m.package, m.advisory, m.score, m.vendor, m.fixed
		FROM %s AS s CROSS JOIN advisory_vulnerabilities AS a CROSS JOIN matches AS m
		WHERE a.vulnerability = s.v AND m.advisory = a.advisory`, t.DB.Engine.Unnest(&q, sets)), q.Args,
		func(row store.Scanner) (bool, error) {
			var set int64
			var h Hit
			var fixed []byte
			if err := row.Scan(&set, &h.Package, &h.Advisory, &h.Score, &h.Vendor, &fixed); err != nil {
				return false, err
			}
			if len(hits[set]) > n {
				return false, nil
			}
			err := json.Unmarshal(fixed, &h.Fixed)
			hits[set] = append(hits[set], h)
			return false, err
		})
}

// SetNames returns the names of vulnerabilities, at most n names for each.
func (t Tx) SetNames(ctx context.Context, sets []int64, n int) (called []string, _ error) {
	for _, set := range sets {
		names, err := store.ReadColumn[string](ctx, t.Rows,
			`SELECT name FROM vulnerability_names WHERE vulnerability = $1 ORDER BY name LIMIT $2`, set, n)
		if err != nil {
			return nil, err
		}
		called = append(called, names...)
	}
	return called, nil
}

// A SetHit is a match with its advisory and one of the vulnerabilities that the advisory describes.
type SetHit struct {
	Hit
	Set int64
	By  NamedAdvisory
}

// HitsOfOrganization returns the matches of packages with advisories of one organization, once for each vulnerability
// that the advisory describes.
func (t Tx) HitsOfOrganization(ctx context.Context, root int64, packages []int64) (hits []SetHit, _ error) {
	for batch := range slices.Chunk(packages, packageBatch) {
		q := store.Query{Engine: t.DB.Engine}
		text := fmt.Sprintf(`SELECT %s, v.vulnerability, a.uid, a.names, a.fixes FROM %s AS s CROSS JOIN matches AS m
			CROSS JOIN matched_advisories AS a CROSS JOIN advisory_vulnerabilities AS v WHERE m.package = s.v
			AND m.root = %s AND a.advisory = m.advisory AND v.advisory = m.advisory`, hitColumns,
			t.DB.Engine.Unnest(&q, batch), q.Arg(root))
		err := t.Rows(ctx, text, q.Args, func(row store.Scanner) (bool, error) {
			var h SetHit
			var uid resource.UID
			var fixed, names, fixes []byte
			if err := row.Scan(&h.Package, &h.Advisory, &h.Since, &h.Score, &h.Vendor, &fixed, &h.OpenedBy, &h.Set, &uid,
				&names, &fixes); err != nil {
				return false, err
			}
			var err error
			if h.By, err = decodeNamed(uid, names, fixes); err == nil {
				err = json.Unmarshal(fixed, &h.Fixed)
			}
			hits = append(hits, h)
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	return hits, nil
}

// PackagesByID returns the packages with these IDs, by ID.
func (t Tx) PackagesByID(ctx context.Context, ids []int64) (map[int64]registry.Package, error) {
	q := store.Query{Engine: t.DB.Engine}
	found, err := store.ReadAll(ctx, t.Rows, scanPackage, fmt.Sprintf(`SELECT %s FROM %s AS s
		CROSS JOIN packages AS p WHERE p.seq = s.v`, packageColumns, t.DB.Engine.Unnest(&q, ids)), q.Args...)
	byID := map[int64]registry.Package{}
	for _, p := range found {
		byID[p.ID] = p.Package
	}
	return byID, err
}

// An ImageNumber is an image with its number.
type ImageNumber struct {
	Number int64
	vuln.NewsImage
}

// ImagesByNumber returns the images with these numbers, the highest number first. Deleted images are left out.
func (t Tx) ImagesByNumber(ctx context.Context, numbers []int64) ([]ImageNumber, error) {
	q := store.Query{Engine: t.DB.Engine}
	return store.ReadAll(ctx, t.Rows, func(row store.Scanner) (i ImageNumber, err error) {
		err = row.Scan(&i.Number, &i.Repo, &i.Digest)
		return i, err
	}, fmt.Sprintf(`SELECT i.number, i.uid, i.digest FROM %s AS s CROSS JOIN `+imagedb.ImageRows+` AS i
		WHERE i.number = s.v
		ORDER BY i.number DESC`, t.DB.Engine.Unnest(&q, numbers)), q.Args...)
}

// A ChangedImage is an image whose packages have changed since its last event.
type ChangedImage struct {
	Number, Root int64
	Announced    []int64 // packages that events have already announced, in order
	Quiet        bool    // whether the change of packages must not cause events
}

func scanChangedImage(row store.Scanner) (n ChangedImage, err error) {
	var announced []byte
	if err := row.Scan(&n.Number, &n.Root, &announced, &n.Quiet); err != nil {
		return n, err
	}
	n.Announced, err = decodeIDs(announced)
	return n, err
}

// NextChangedImages returns the numbers of at most n changed images, in order. The first number is at least from.
func (s *Store) NextChangedImages(ctx context.Context, from int64, n int) ([]int64, error) {
	return store.ReadColumn[int64](ctx, s.Rows,
		`SELECT number FROM image_news WHERE number >= $1 ORDER BY number LIMIT $2`,
		from, n)
}

// ChangedImagesOf returns the changed images of an organization.
func (t Tx) ChangedImagesOf(ctx context.Context, root int64) ([]ChangedImage, error) {
	return store.ReadAll(ctx, t.Rows, scanChangedImage,
		`SELECT number, root, told, quiet FROM image_news WHERE root = $1`, root)
}

// ChangedImages returns the images in numbers that have changed.
func (t Tx) ChangedImages(ctx context.Context, numbers []int64) ([]ChangedImage, error) {
	q := store.Query{Engine: t.DB.Engine}
	return store.ReadAll(ctx, t.Rows, scanChangedImage, fmt.Sprintf(`SELECT n.number, n.root, n.told, n.quiet FROM %s AS s
		CROSS JOIN image_news AS n WHERE n.number = s.v`, t.DB.Engine.Unnest(&q, numbers)), q.Args...)
}

// DropChangedImage records that events have announced the current packages of an image.
func (t Tx) DropChangedImage(ctx context.Context, number int64) error {
	return t.Later(ctx, `DELETE FROM image_news WHERE number = $1`, number)
}

// MarkChanging records that the packages of these images are changing, and which packages events have already
// announced. If there is already such a record, it stays unchanged. The chunks of the images must be locked until the
// commit. Otherwise the matcher could announce the old packages and then delete this record.
func (t Tx) MarkChanging(ctx context.Context, numbers, announced []int64, quiet bool) error {
	t.Wakes(store.MatchQueue)
	for _, n := range numbers {
		if err := t.Later(ctx, `INSERT INTO image_news (number, root, told, quiet)
			SELECT i.number, i.root, $2, $3 FROM `+imagedb.ImageRows+` AS i WHERE i.number = $1 ON CONFLICT (number) DO NOTHING`,
			n, encodeIDs(announced), quiet); err != nil {
			return err
		}
	}
	return nil
}

// Content returns the IDs of the packages of an image in a repo, in order, including packages that only SBOMs list.
// matched reports whether all these packages were compared with the advisories.
func (t Tx) Content(ctx context.Context, i vuln.NewsImage) (ids []int64, matched bool, _ error) {
	ids, err := t.SBOMPackages(ctx, i.Repo, i.Digest)
	if err != nil {
		return nil, false, err
	}
	texts, err := store.ReadColumn[[]byte](ctx, t.Rows, `SELECT n.packages FROM `+imagedb.ImageRows+` AS i
		JOIN inspections AS n
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
	err = t.Row(ctx,
		fmt.Sprintf(`SELECT count(*) FROM %s AS s CROSS JOIN packages AS p WHERE p.seq = s.v AND NOT p.matched`,
			t.DB.Engine.Unnest(&q, ids)), q.Args, &waiting)
	return ids, waiting == 0, err
}
