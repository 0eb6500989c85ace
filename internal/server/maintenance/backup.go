// Package maintenance contains the commands of holdfastd that need no running server: back-up, restore, doctor and the
// reset of keys.
package maintenance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/server/installation"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/ops/backup"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Backup makes a back-up of the installation.
func Backup(ctx context.Context, cfg config.Config, args []string, out io.Writer) (err error) {
	place, keep, err := backupArguments(args)
	if err != nil {
		return err
	}
	key, err := installation.ExistingKey(cfg)
	if err != nil {
		return err
	}
	db, err := store.OpenToRead(ctx, cfg.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	blobs, err := cfg.Storage()
	if err != nil {
		return err
	}
	to, done, err := openPlace(cfg, place, backup.Create)
	if err != nil {
		return err
	}
	from := backup.Installation{DB: db, Blobs: blobs, Key: key, Version: buildinfo.Version(), Now: cfg.Now}
	begin := time.Now()
	show := newProgress(cfg.Stderr)
	m, err := backup.Save(ctx, from, to, show.report)
	show.end()
	if err := errors.Join(err, done()); err != nil {
		return err
	}
	fmt.Fprintf(out, "Backed up %d rows and %d blobs (%s, %d of them new) to %s in %s.\n", m.Rows(), m.Blobs,
		config.Size(m.BlobBytes), show.last.Blobs, place, time.Since(begin).Round(time.Millisecond))
	fmt.Fprintf(out, "To restore it, you need the encryption key with fingerprint %s.\n", m.Key)
	if err := lostBlobs(m); err != nil || keep == 0 {
		return err // keep earlier back-ups, because they may contain the lost blobs
	}
	removed, err := backup.Prune(ctx, to.(blob.Storage), keep)
	if removed > 0 {
		fmt.Fprintf(out, "Removed %d earlier back-ups.\n", removed)
	}
	return err
}

// backupArguments returns the place to write a back-up to, and the number of
// back-ups to keep there; 0 keeps all.
func backupArguments(args []string) (place string, keep int, err error) {
	for _, a := range args {
		value, ok := strings.CutPrefix(a, "keep=")
		switch {
		case ok:
			if keep, err = strconv.Atoi(value); err != nil || keep < 1 {
				return "", 0, fault.Field("keep", "%q is not a number of back-ups to keep, counting this one", value)
			}
		case place != "":
			return "", 0, errBackupPlace
		default:
			place = a
		}
	}
	if place == "" {
		return "", 0, errBackupPlace
	}
	if keep > 0 && isArchive(place) {
		return "", 0, fault.Field("keep", "an archive contains only one back-up; --keep is for folders and buckets")
	}
	return place, keep, nil
}

var errBackupPlace = fault.Field("arguments",
	"name the folder, .tar file or s3:// address to write the back-up to")

// lostBlobs returns an error that names the blobs that could not be backed up.
func lostBlobs(m *backup.Manifest) error {
	if len(m.Lost) == 0 {
		return nil
	}
	const named = 10
	return fmt.Errorf("the back-up lacks %d blobs that are missing or damaged in the storage: %s",
		len(m.Lost), strings.Join(m.Lost[:min(named, len(m.Lost))], ", "))
}

// Restore fills an empty installation from a back-up.
func Restore(ctx context.Context, cfg config.Config, args []string, out io.Writer) error {
	into := backup.Target{Database: cfg.Database}
	var from []string
	for _, a := range args {
		moment, timed := strings.CutPrefix(a, "at=")
		switch {
		case a == "verify":
			into.Verify = true
		case timed:
			t, err := time.Parse(time.RFC3339, moment)
			if err != nil {
				return fault.Field("at", "%q is not a time like 2026-01-02T03:04:05Z", moment)
			}
			into.At = t
		default:
			from = append(from, a)
		}
	}
	if len(from) != 1 {
		return fault.Field("arguments", "name the folder, .tar file or s3:// address of the back-up")
	}
	var err error
	if into.Key, err = installation.ExistingKey(cfg); err != nil {
		return err
	}
	if into.Blobs, err = cfg.Storage(); err != nil {
		return err
	}
	source, done, err := openPlace(cfg, from[0], backup.OpenArchive)
	if err != nil {
		return err
	}
	begin := time.Now()
	show := newProgress(cfg.Stderr)
	m, err := backup.Restore(ctx, source, into, show.report)
	show.end()
	if err == nil {
		err = checkRestored(ctx, cfg.Database, into.Key)
	}
	if err := errors.Join(err, done()); err != nil {
		return err
	}
	fmt.Fprintf(out, "Restored %d rows and %d blobs (%s) of %s in %s.\n", m.Rows(), show.last.Blobs,
		config.Size(show.last.BlobBytes), m.Time.Format(time.RFC3339), time.Since(begin).Round(time.Millisecond))
	return lostBlobs(m)
}

// checkRestored checks the secrets of a database that was restored.
func checkRestored(ctx context.Context, database string, key secret.Key) error {
	db, err := store.OpenToRead(ctx, database)
	if err != nil {
		return err
	}
	if err := errors.Join(installation.CheckSecrets(ctx, db, key), db.Close()); err != nil {
		return fmt.Errorf("the back-up was restored, but some secrets cannot be read: %w", err)
	}
	return nil
}

func isArchive(place string) bool {
	return backup.IsArchive(place) && !config.IsBucket(place)
}

// openPlace opens the folder, archive or bucket of a back-up. The returned function
// closes it.
func openPlace(
	cfg config.Config, name string, archive func(name string) (*backup.Archive, error),
) (backup.Place, func() error, error) {
	if isArchive(name) {
		a, err := archive(name)
		if err != nil {
			return nil, nil, err
		}
		return a, a.Close, nil
	}
	s, err := cfg.StorageAt(name)
	return s, func() error { return nil }, err
}

// A progress shows the progress of a back-up, at most once a second.
type progress struct {
	out   io.Writer
	last  backup.Progress
	shown time.Time
	began bool // whether it was shown at least once
}

func newProgress(out io.Writer) *progress { return &progress{out: out, shown: time.Now()} }

func (p *progress) report(current backup.Progress) {
	p.last = current
	if time.Since(p.shown) < time.Second {
		return
	}
	p.shown, p.began = time.Now(), true
	p.show()
}

// end shows the last state, if an earlier state was shown.
func (p *progress) end() {
	if p.began {
		p.show()
	}
}

func (p *progress) show() {
	fmt.Fprintf(p.out, "%d blobs (%s) copied, %d already present; table %s, %d rows\n", p.last.Blobs,
		config.Size(p.last.BlobBytes), p.last.Present, p.last.Table, p.last.Rows)
}
