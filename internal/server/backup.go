package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/ops/backup"
	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// ownCommands are the commands that always run in this process, beside a server or
// without one: as another user, perhaps, who may write where the server may not.
var ownCommands = map[string]func(ctx context.Context, cfg Config, args []string, out io.Writer) error{
	"backup":  runBackup,
	"restore": runRestore,
	"doctor":  runDoctor,
	"scrub":   runScrub,
}

// runBackup makes a back-up of the installation.
func runBackup(ctx context.Context, cfg Config, args []string, out io.Writer) (err error) {
	place, keep, err := backupArguments(args)
	if err != nil {
		return err
	}
	key, err := existingKey(cfg)
	if err != nil {
		return err
	}
	db, err := store.OpenToRead(ctx, cfg.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	blobs, err := cfg.storage()
	if err != nil {
		return err
	}
	to, done, err := cfg.openPlace(ctx, place, backup.Create)
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
		size(m.BlobBytes), show.last.Blobs, place, time.Since(begin).Round(time.Millisecond))
	fmt.Fprintf(out, "To restore it, you need the encryption key with fingerprint %s.\n", m.Key)
	if err := lostBlobs(m); err != nil || keep == 0 {
		return err // an earlier one may have what is lost
	}
	removed, err := backup.Prune(ctx, to.(blob.Storage), keep)
	if removed > 0 {
		fmt.Fprintf(out, "Removed %d earlier ones.\n", removed)
	}
	return err
}

// backupArguments returns where to write a back-up, and how many to keep there, or 0 for all.
func backupArguments(args []string) (place string, keep int, err error) {
	for _, a := range args {
		value, ok := strings.CutPrefix(a, "keep=")
		switch {
		case ok:
			if keep, err = strconv.Atoi(value); err != nil || keep < 1 {
				return "", 0, fault.Field("keep", "%q is not a number of back-ups to keep, of which this is one", value)
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
		return "", 0, fault.Field("keep", "an archive has one back-up; --keep is for folders and buckets")
	}
	return place, keep, nil
}

var errBackupPlace = fault.Field("arguments", "name the folder, the .tar file or the s3:// address to write the back-up to")

// lostBlobs returns an error that names the blobs that could not be backed up.
func lostBlobs(m *backup.Manifest) error {
	if len(m.Lost) == 0 {
		return nil
	}
	const named = 10
	return fmt.Errorf("the back-up is complete but for %d blobs that are missing or damaged in the storage: %s",
		len(m.Lost), strings.Join(m.Lost[:min(named, len(m.Lost))], ", "))
}

// runRestore fills an empty installation from a back-up.
func runRestore(ctx context.Context, cfg Config, args []string, out io.Writer) error {
	into := backup.Target{Database: cfg.Database}
	var from []string
	for _, a := range args {
		at, timed := strings.CutPrefix(a, "at=")
		switch {
		case a == "verify":
			into.Verify = true
		case timed:
			t, err := time.Parse(time.RFC3339, at)
			if err != nil {
				return fault.Field("at", "%q is not a time like 2026-01-02T03:04:05Z", at)
			}
			into.At = t
		default:
			from = append(from, a)
		}
	}
	if len(from) != 1 {
		return fault.Field("arguments", "name the folder, the .tar file or the s3:// address of the back-up")
	}
	var err error
	if into.Key, err = existingKey(cfg); err != nil {
		return err
	}
	if into.Blobs, err = cfg.storage(); err != nil {
		return err
	}
	source, done, err := cfg.openPlace(ctx, from[0], backup.OpenArchive)
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
		size(show.last.BlobBytes), m.Time.Format(time.RFC3339), time.Since(begin).Round(time.Millisecond))
	return lostBlobs(m)
}

// checkRestored checks the secrets of a database that was restored.
func checkRestored(ctx context.Context, database string, key secret.Key) error {
	db, err := store.OpenToRead(ctx, database)
	if err != nil {
		return err
	}
	if err := errors.Join(checkSecrets(ctx, db, key), db.Close()); err != nil {
		return fmt.Errorf("restored, but not every secret can be read: %w", err)
	}
	return nil
}

func isArchive(place string) bool {
	return backup.IsArchive(place) && !strings.HasPrefix(place, bucketScheme)
}

// openPlace opens where a back-up is: a folder, an archive or a bucket.
func (c Config) openPlace(
	ctx context.Context, name string, archive func(name string) (*backup.Archive, error),
) (backup.Place, func() error, error) {
	if isArchive(name) {
		a, err := archive(name)
		if err != nil {
			return nil, nil, err
		}
		return a, a.Close, nil
	}
	c.Blobs = name
	var mistakes []error
	c.blobMistakes(func(_, format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) })
	if err := errors.Join(mistakes...); err != nil {
		return nil, nil, err
	}
	if !strings.HasPrefix(name, bucketScheme) {
		var err error
		if c.Blobs, err = filepath.Abs(name); err != nil {
			return nil, nil, err
		}
	}
	s, err := c.storage()
	return s, func() error { return nil }, err
}

// existingKey returns the encryption key of an installation, and never makes one: a
// back-up that is made with a new key, or restored beside one, could not be used.
func existingKey(cfg Config) (secret.Key, error) {
	path := filepath.Join(cfg.DataDir, keyFile)
	if _, err := os.Stat(path); cfg.EncryptionKey == "" && errors.Is(err, os.ErrNotExist) {
		return secret.Key{}, fault.New(fault.FailedPrecondition,
			"there is no encryption key: set HOLDFAST_ENCRYPTION_KEY, or put the key of the installation into %s. "+
				"If it is lost, see holdfastd keys reset --%s", path, lostKeyFlag)
	}
	return encryptionKey(cfg, slog.New(slog.DiscardHandler)) // that a file has it concerns the server
}

// A progress shows how far a back-up has come, at most once a second.
type progress struct {
	out   io.Writer
	last  backup.Progress
	shown time.Time
	any   bool // has been shown
}

func newProgress(out io.Writer) *progress { return &progress{out: out, shown: time.Now()} }

func (p *progress) report(now backup.Progress) {
	p.last = now
	if time.Since(p.shown) < time.Second {
		return
	}
	p.shown, p.any = time.Now(), true
	p.show()
}

// end shows the last state, if any was shown.
func (p *progress) end() {
	if p.any {
		p.show()
	}
}

func (p *progress) show() {
	fmt.Fprintf(p.out, "%d blobs (%s) copied, %d were there; table %s, %d rows\n", p.last.Blobs, size(p.last.BlobBytes),
		p.last.Present, p.last.Table, p.last.Rows)
}

// size returns a number of bytes for people.
func size(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d %s", n, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// commandFlags are the flags that belong to one command, and whether they have a value.
var commandFlags = []struct {
	command, name string
	value         bool
}{{"gc", "dry-run", false}, {"restore", "verify", false}, {"restore", "at", true},
	{"backup", "keep", true}, {"doctor", "json", false}, {"scrub", "rate", true},
	{"owners", "organization", true}, {"owners", "email", true}, {"keys", "lost-encryption-key", false}}

// SplitCommand splits the arguments of a command from the flags that are settings. A
// flag of the command becomes an argument: verify, or at=VALUE. words has one at least.
func SplitCommand(words, flags []string) (command, settings []string) {
	command = slices.Clone(words)
next:
	for i := 0; i < len(flags); i++ {
		for _, f := range commandFlags {
			rest, ok := strings.CutPrefix(flags[i], "--"+f.name)
			value, inline := strings.CutPrefix(rest, "=")
			switch {
			case !ok || words[0] != f.command:
				continue
			case rest == "" && !f.value:
				command = append(command, f.name)
			case f.value && inline:
				command = append(command, f.name+"="+value)
			case f.value && rest == "" && i+1 < len(flags):
				i++
				command = append(command, f.name+"="+flags[i])
			default:
				continue
			}
			continue next
		}
		settings = append(settings, flags[i])
	}
	return command, settings
}

// checkSecrets returns an error unless the key opens every secret that is sealed in the
// database.
func checkSecrets(ctx context.Context, db *store.DB, key secret.Key) error {
	iam := iamdb.New(db)
	for purpose, read := range map[string]func(context.Context) ([][]byte, error){
		secret.ForClientSecrets: iam.ClientSecrets, secret.ForOneTimePasswords: signindb.New(db).TOTPSecrets,
		secret.ForUpstreams: sourcedb.New(registrydb.New(db)).UpstreamSecrets,
		secret.ForSigningKeys: func(ctx context.Context) (sealed [][]byte, _ error) {
			keys, err := iam.SigningKeys(ctx)
			for _, k := range keys {
				sealed = append(sealed, k.Sealed)
			}
			return sealed, err
		},
	} {
		all, err := read(ctx)
		if err != nil {
			return err
		}
		for _, sealed := range all {
			if _, err := key.Open(purpose, sealed); err != nil {
				return err
			}
		}
	}
	return nil
}
