package findingdb

import (
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A content contains the packages of an image, ordered by ID.
type content struct {
	ids    []int64
	layers []int
	places []string
}

// newContent returns the packages ordered by ID. If a package is at several places, it keeps only the first.
func newContent(ids []int64, packages []registry.ImagePackage) (c content) {
	order := make([]int, len(ids))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ids[a], ids[b]) })
	for _, i := range order {
		if n := len(c.ids); n > 0 && c.ids[n-1] == ids[i] {
			continue
		}
		c.ids = append(c.ids, ids[i])
		c.layers = append(c.layers, packages[i].Layer)
		c.places = append(c.places, packages[i].Place)
	}
	return c
}

// encode returns the IDs and layers as varints, each ID as the difference to the
// previous one. It returns the places separately and compressed, because most readers
// do not need them.
func (c content) encode() (packages, places []byte, err error) {
	last := int64(0)
	packages = []byte{}
	for i, id := range c.ids {
		packages = binary.AppendUvarint(packages, uint64(id-last))
		packages = binary.AppendUvarint(packages, uint64(c.layers[i]))
		last = id
	}
	text, err := json.Marshal(c.places)
	if err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	return packages, out.Bytes(), err
}

var errContent = errors.New("the stored packages of an image are invalid")

// decode reads the result of encode; places may be nil.
func decode(packages, places []byte) (c content, _ error) {
	last := int64(0)
	for len(packages) > 0 {
		distance, n := binary.Uvarint(packages)
		if n <= 0 {
			return c, errContent
		}
		layer, m := binary.Uvarint(packages[n:])
		if m <= 0 {
			return c, errContent
		}
		packages = packages[n+m:]
		last += int64(distance)
		c.ids, c.layers = append(c.ids, last), append(c.layers, int(layer))
	}
	if places == nil {
		return c, nil
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(places)), maxPlaces))
	if err == nil {
		err = json.Unmarshal(text, &c.places)
	}
	if err == nil && len(c.places) != len(c.ids) {
		err = errContent
	}
	return c, err
}

// maxPlaces is the largest size of the places of one image, in bytes.
const maxPlaces = 64 << 20

// LockInspection returns the packages that were found in the image with a digest, and the version of the extractors
// that found them. It locks the row until the commit. The version is 0 if the image was not inspected.
func (t Tx) LockInspection(ctx context.Context, digest string) (packages []int64, extractors int, _ error) {
	var text []byte
	err := t.Row(ctx, `SELECT t.packages, t.extractors FROM inspections AS t WHERE t.digest = $1`+t.DB.Engine.ForDelete,
		[]any{digest}, &text, &extractors)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	c, err := decode(text, nil)
	return c.ids, extractors, err
}

// Inspected returns the version of the extractors that inspected an image, or 0 if the image was not inspected.
func (s *Store) Inspected(ctx context.Context, digest string) (extractors int, _ error) {
	err := s.Row(ctx, `SELECT extractors FROM inspections WHERE digest = $1`, []any{digest}, &extractors)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return extractors, err
}

// Encode returns the columns in which SaveInspection stores the packages of an image.
func Encode(ids []int64, described []registry.ImagePackage) (packages, places []byte, err error) {
	return newContent(ids, described).encode()
}

// SaveInspection stores the packages of an image, whose IDs are ids. It returns the IDs in order, each once.
func (t Tx) SaveInspection(ctx context.Context, i registry.Inspection, ids []int64) ([]int64, error) {
	c := newContent(ids, i.Packages)
	packages, places, err := c.encode()
	if err != nil {
		return nil, fmt.Errorf("encode the packages of an image: %w", err)
	}
	distribution, err := json.Marshal(i.Distribution)
	if err != nil {
		return nil, err
	}
	warnings, err := json.Marshal(i.Warnings)
	if err != nil {
		return nil, err
	}
	return c.ids, t.Later(ctx,
		`INSERT INTO inspections (digest, extractors, update_ms, distribution, warnings, packages, places)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (digest) DO UPDATE SET extractors = excluded.extractors,
		update_ms = excluded.update_ms, distribution = excluded.distribution, warnings = excluded.warnings,
		packages = excluded.packages, places = excluded.places`,
		i.Digest, i.Extractors, store.MS(t.DB.Time()), string(distribution), string(warnings), packages, places)
}

// Inspection returns the packages of an image, ordered by ecosystem, name and version. ok is false if the image was not
// inspected. The caller must check who may see the image.
func (s *Store) Inspection(ctx context.Context, digest string) (i registry.Inspection, ok bool, _ error) {
	var updated int64
	var distribution, warnings string
	var packages, places []byte
	err := s.Row(ctx, `SELECT extractors, update_ms, distribution, warnings, packages, places FROM inspections
		WHERE digest = $1`, []any{digest}, &i.Extractors, &updated, &distribution, &warnings, &packages, &places)
	if errors.Is(err, sql.ErrNoRows) {
		return i, false, nil
	}
	if err != nil {
		return i, false, err
	}
	i.Digest, i.UpdateTime = digest, store.FromMS(updated)
	if err := errors.Join(json.Unmarshal([]byte(distribution), &i.Distribution),
		json.Unmarshal([]byte(warnings), &i.Warnings)); err != nil {
		return i, false, err
	}
	c, err := decode(packages, places)
	if err != nil {
		return i, false, err
	}
	known, err := s.ByID(ctx, c.ids)
	if err != nil {
		return i, false, err
	}
	for n, id := range c.ids {
		i.Packages = append(i.Packages, registry.ImagePackage{Package: known[id], ID: id, Layer: c.layers[n],
			Place: c.places[n]})
	}
	slices.SortFunc(i.Packages, func(a, b registry.ImagePackage) int {
		return cmp.Or(cmp.Compare(a.Ecosystem, b.Ecosystem), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Version, b.Version), cmp.Compare(a.PURL, b.PURL))
	})
	return i, true, nil
}
