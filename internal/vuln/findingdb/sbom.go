package findingdb

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagedb"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// encodeIDs returns sorted IDs as the differences between them.
func encodeIDs(ids []int64) []byte {
	text, last := []byte{}, int64(0)
	for _, id := range ids {
		text = binary.AppendUvarint(text, uint64(id-last))
		last = id
	}
	return text
}

func decodeIDs(text []byte) (ids []int64, _ error) {
	for last := int64(0); len(text) > 0; {
		distance, n := binary.Uvarint(text)
		if n <= 0 {
			return nil, errContent
		}
		text, last = text[n:], last+int64(distance)
		ids = append(ids, last)
	}
	return ids, nil
}

// SBOMs returns the SBOMs attached to an image of a repo, the latest first. SBOMs whose
// manifest was deleted are left out.
func (s *Store) SBOMs(ctx context.Context, repo resource.UID, image string) ([]registry.SBOM, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (b registry.SBOM, err error) {
		var pushed int64
		var warnings string
		var packages []byte
		if err = row.Scan(&b.Manifest, &b.By, &pushed, &b.Format, &b.Tool, &warnings, &packages); err != nil {
			return b, err
		}
		b.Time = store.FromMS(pushed)
		if b.IDs, err = decodeIDs(packages); err == nil {
			err = json.Unmarshal([]byte(warnings), &b.Warnings)
		}
		return b, err
	}, `SELECT s.manifest, s.actor, s.push_ms, s.format, s.tool, s.warnings, s.packages FROM image_sboms AS s
		WHERE s.repo = $1 AND s.image = $2 AND EXISTS (SELECT 1 FROM `+registrydb.ManifestRows+` AS m WHERE m.repo = s.repo
		AND m.digest = s.manifest) ORDER BY s.push_ms DESC, s.manifest`, store.Segment(repo), image)
}

// SaveSBOMs replaces the SBOMs of an image in a repo. The transaction must have locked the image with HoldImage. It
// returns the IDs of the packages that the old SBOMs list, and of the packages that the new SBOMs list.
func (t Tx) SaveSBOMs(
	ctx context.Context, repo resource.UID, image string, sboms []registry.SBOM,
) (before, after []int64, _ error) {
	before, err := t.SBOMPackages(ctx, repo, image)
	if err != nil {
		return nil, nil, err
	}
	if _, err := t.Exec(ctx, `DELETE FROM image_sboms WHERE repo = $1 AND image = $2`, store.Segment(repo),
		image); err != nil {
		return nil, nil, err
	}
	var rows [][]any
	for _, b := range sboms {
		warnings, err := json.Marshal(b.Warnings)
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, []any{store.Segment(repo), image, b.Manifest, string(b.By), store.MS(b.Time), b.Format, b.Tool,
			string(warnings), encodeIDs(b.IDs)})
		after = append(after, b.IDs...)
	}
	slices.Sort(after)
	return before, slices.Compact(after), t.InsertRows(ctx,
		`INSERT INTO image_sboms (repo, image, manifest, actor, push_ms, format, tool, warnings, packages)`, rows, "")
}

// SBOMPackages returns the IDs of the packages that the SBOMs of an image list, in
// order.
func (t Tx) SBOMPackages(ctx context.Context, repo resource.UID, image string) ([]int64, error) {
	texts, err := store.ReadColumn[[]byte](ctx, t.Rows, `SELECT packages FROM image_sboms WHERE repo = $1 AND image = $2`,
		store.Segment(repo), image)
	if err != nil {
		return nil, err
	}
	return union(texts)
}

// union decodes several lists of IDs, and returns all IDs in order, each once.
func union(texts [][]byte) (united []int64, _ error) {
	for _, text := range texts {
		ids, err := decodeIDs(text)
		if err != nil {
			return nil, err
		}
		united = append(united, ids...)
	}
	slices.Sort(united)
	return slices.Compact(united), nil
}

// TakePackages records that the images with these numbers, which all have the same digest, no longer have packages. A
// package stays if an SBOM in the image's repo lists it. The chunks of the images must be locked. The transaction must
// not change the same packages and chunks in another way, because on PostgreSQL it would not see this change.
func (t Tx) TakePackages(ctx context.Context, digest string, numbers, packages []int64) error {
	claims := map[int64][]int64{} // numbers of the images whose SBOMs list a package, by package
	err := t.Rows(ctx, `SELECT i.number, s.packages FROM image_sboms AS s CROSS JOIN `+imagedb.ImageRows+` AS i
		WHERE s.image = $1
		AND i.repo = s.repo AND i.digest = s.image AND i.number IS NOT NULL`, []any{digest},
		func(row store.Scanner) (bool, error) {
			var number int64
			var text []byte
			if err := row.Scan(&number, &text); err != nil {
				return false, err
			}
			ids, err := decodeIDs(text)
			for _, id := range ids {
				claims[id] = append(claims[id], number)
			}
			return false, err
		})
	if err != nil {
		return err
	}
	var plain []int64
	for _, p := range packages {
		if claims[p] == nil {
			plain = append(plain, p)
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(numbers), func(n int64) bool { return slices.Contains(claims[p], n) })
		if err := t.ChangeImages(ctx, rest, nil, []int64{p}); err != nil {
			return err
		}
	}
	return t.ChangeImages(ctx, numbers, nil, plain)
}

// Waiting returns how many of the packages were not compared with the advisories yet.
func (s *Store) Waiting(ctx context.Context, packages []int64) (n int, _ error) {
	q := store.Query{Engine: s.Engine}
	err := s.Row(ctx,
		fmt.Sprintf(`SELECT count(*) FROM %s AS s CROSS JOIN packages AS p WHERE p.seq = s.v AND NOT p.matched`,
			s.Engine.Unnest(&q, packages)), q.Args, &n)
	return n, err
}

// FromFiles returns the IDs of the packages that were found in the files of images, in order, by image number. Images
// without SBOMs are left out.
func (s *Store) FromFiles(ctx context.Context, numbers []int64) (map[int64][]int64, error) {
	q := store.Query{Engine: s.Engine}
	indexed := q.Arg(int(registry.ImageIndexed))
	found := map[int64][]int64{}
	err := s.Rows(ctx, fmt.Sprintf(`SELECT i.number, n.packages FROM %s AS s CROSS JOIN `+imagedb.ImageRows+` AS i
		LEFT JOIN inspections AS n ON n.digest = i.digest AND i.state = %s WHERE i.number = s.v
		AND EXISTS (SELECT 1 FROM image_sboms AS b WHERE b.repo = i.repo AND b.image = i.digest)`,
		s.Engine.Unnest(&q, numbers), indexed), q.Args, func(row store.Scanner) (bool, error) {
		var number int64
		var text []byte
		if err := row.Scan(&number, &text); err != nil {
			return false, err
		}
		ids, err := appendIDs(nil, text)
		found[number] = ids
		return false, err
	})
	return found, err
}

// A Claim is a package that attached SBOMs list.
type Claim struct {
	Package int64
	Since   int64 // time at which the first of these SBOMs was pushed, in milliseconds
}

// HaveSBOMs returns which of the repos have an image with an attached SBOM.
func (s *Store) HaveSBOMs(ctx context.Context, repos []resource.UID) (map[resource.UID]bool, error) {
	bySegment := map[int64]resource.UID{}
	keys := make([]int64, len(repos))
	for i, r := range repos {
		keys[i], bySegment[store.Segment(r)] = store.Segment(r), r
	}
	q := store.Query{Engine: s.Engine}
	found, err := store.ReadColumn[int64](ctx, s.Rows, fmt.Sprintf(`SELECT s.v FROM %s AS s WHERE EXISTS
		(SELECT 1 FROM image_sboms AS b WHERE b.repo = s.v)`, s.Engine.Unnest(&q, keys)), q.Args...)
	withSBOMs := map[resource.UID]bool{}
	for _, key := range found {
		withSBOMs[bySegment[key]] = true
	}
	return withSBOMs, err
}

// Claims returns the packages in the SBOMs attached to images, by image number, ordered
// by package. A deleted SBOM counts until the image is read again.
func (s *Store) Claims(ctx context.Context, numbers []int64) (map[int64][]Claim, error) {
	claims := map[int64][]Claim{}
	for batch := range slices.Chunk(numbers, keyBatch) {
		q := store.Query{Engine: s.Engine}
		err := s.Rows(ctx, fmt.Sprintf(`SELECT i.number, b.push_ms, b.packages FROM %s AS s
			CROSS JOIN `+imagedb.ImageRows+` AS i
			CROSS JOIN image_sboms AS b WHERE i.number = s.v AND b.repo = i.repo AND b.image = i.digest`,
			s.Engine.Unnest(&q, batch)), q.Args, func(row store.Scanner) (bool, error) {
			var number, pushed int64
			var text []byte
			if err := row.Scan(&number, &pushed, &text); err != nil {
				return false, err
			}
			ids, err := decodeIDs(text)
			for _, id := range ids {
				claims[number] = append(claims[number], Claim{id, pushed})
			}
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	for number, listed := range claims {
		slices.SortFunc(listed, func(a, b Claim) int {
			return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Since, b.Since))
		})
		claims[number] = slices.CompactFunc(listed, func(a, b Claim) bool { return a.Package == b.Package })
	}
	return claims, nil
}
