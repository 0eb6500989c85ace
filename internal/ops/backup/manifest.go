// Package backup copies the database and the blobs of an installation to a folder, a file or a bucket, and restores
// them into a new installation on either database engine.
//
// A back-up is a set of files:
//
//	blobs/sha256/ab/abcd…              the blobs, under their digests
//	snapshots/20260102T030405Z/groups  the rows of a table, one file for each
//	snapshots/20260102T030405Z/manifest.json
//	latest.json                        a copy of the newest manifest
//
// A manifest is written after all files that it names. A later back-up to the same place adds a snapshot and
// the blobs that the place does not have.
package backup

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store/dump"
)

const (
	format      = 1
	maxManifest = 16 << 20 // maximum size of a manifest in bytes
	latest      = "/latest.json"
	timeFormat  = "20060102T150405Z"
)

// A Manifest describes the content of a snapshot.
type Manifest struct {
	Format    int              `json:"format"`
	Version   string           `json:"version"` // version of the program that made the back-up
	Time      time.Time        `json:"time"`
	Key       string           `json:"key"` // fingerprint of the encryption key, which is not in the back-up
	Schema    int64            `json:"schema"`
	Tables    []TableFile      `json:"tables"`
	Sequences map[string]int64 `json:"sequences"`
	Blobs     int64            `json:"blobs"`
	BlobBytes int64            `json:"blob_bytes"`

	// Lost are the digests of blobs that could not be read, or whose content did not match the digest.
	Lost []string `json:"lost,omitempty"`

	// MAC authenticates the other fields. It is computed with the encryption key.
	MAC string `json:"mac"`
}

// A TableFile is a file with the rows of a table.
type TableFile struct {
	dump.Table
	Rows   int64  `json:"rows"`
	Size   int64  `json:"size"` // size of the file in bytes
	SHA256 string `json:"sha256"`
}

// Rows returns the number of rows of all tables.
func (m *Manifest) Rows() (n int64) {
	for _, t := range m.Tables {
		n += t.Rows
	}
	return n
}

func (m *Manifest) folder() string { return "/snapshots/" + m.Time.Format(timeFormat) + "/" }

func (m *Manifest) path() string { return m.folder() + "manifest.json" }

// eachBlob calls f with each blob of the snapshot.
func (m *Manifest) eachBlob(ctx context.Context, p Place, f func(registry.Blob) error) error {
	i := slices.IndexFunc(m.Tables, func(t TableFile) bool { return t.Name == blobTable })
	if i < 0 {
		return nil
	}
	return readRows(ctx, p, m.folder(), m.Tables[i], func(next func() ([]any, error)) error {
		for {
			row, err := next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			b := blobOf(m.Tables[i].Table, row)
			if !digestForm.MatchString(b.Digest) { // checked, because the digest becomes part of a path
				return refuse("table %s is damaged: %.100q is not a digest", blobTable, b.Digest)
			}
			if err := f(b); err != nil {
				return err
			}
		}
	})
}

// Fingerprint identifies an encryption key without revealing it.
func Fingerprint(k secret.Key) string { return hex.EncodeToString(k.Derive("fingerprint")[:8]) }

// mac returns the authentication code of a manifest.
func (m Manifest) mac(k secret.Key) (string, error) {
	m.MAC = ""
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	h := hmac.New(sha256.New, k.Derive("backup"))
	h.Write(text)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// write writes the manifest. It must be the last file of its snapshot.
func (m *Manifest) write(ctx context.Context, p Place, k secret.Key) (err error) {
	if m.MAC, err = m.mac(k); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	for _, path := range []string{m.path(), latest} {
		if err := p.Put(ctx, path, bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return nil
}

// readManifest reads the manifest of the snapshot that was made at a time, or of the newest if the time is zero. It
// returns fault.FailedPrecondition if this program or this key cannot restore the snapshot.
func readManifest(ctx context.Context, p Place, made time.Time, k secret.Key) (*Manifest, error) {
	path := latest
	if !made.IsZero() {
		path = (&Manifest{Time: made.UTC()}).path()
	}
	m, err := decodeManifest(ctx, p, path)
	if err != nil {
		return nil, err
	}
	if fingerprint := Fingerprint(k); m.Key != fingerprint {
		return nil, refuse("the back-up needs the encryption key with fingerprint %s, and this installation has %s",
			m.Key, fingerprint)
	}
	if mac, err := m.mac(k); err != nil || !hmac.Equal([]byte(mac), []byte(m.MAC)) {
		return nil, refuse("%s was changed after the back-up was made", path)
	}
	return m, nil
}

// decodeManifest reads the manifest at path without authenticating it.
func decodeManifest(ctx context.Context, p Place, path string) (*Manifest, error) {
	if size, err := p.Size(ctx, path); err != nil {
		return nil, err
	} else if size < 0 {
		return nil, fault.New(fault.NotFound, "there is no back-up: %s is missing", path)
	}
	f, err := p.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil || len(text) > maxManifest {
		return nil, refuse("%s is not a manifest: %v", path, errors.Join(err))
	}
	if m.Format != format {
		return nil, refuse("the back-up has format %d, and this program reads format %d", m.Format, format)
	}
	return &m, nil
}

func refuse(text string, args ...any) error {
	return fault.New(fault.FailedPrecondition, "%s", fmt.Sprintf(text, args...))
}
