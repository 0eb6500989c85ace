package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const keyFile = "holdfast.key" // in the data folder

// encryptionKey returns the key from the settings or from the key file in the
// data folder, which it creates on first start.
func encryptionKey(cfg Config, log *slog.Logger) (secret.Key, error) {
	if cfg.EncryptionKey != "" {
		return secret.ParseKey(cfg.EncryptionKey)
	}
	path := filepath.Join(cfg.DataDir, keyFile)
	if cfg.onPostgres() {
		log.Warn("the encryption key is a file of this machine: replicas must share it, "+
			"or set HOLDFAST_ENCRYPTION_KEY", "file", path)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		// Link, unlike a rename, does not replace a key that another process has
		// created in the meantime.
		err := writeSecret(path, []byte(secret.NewKey().Text()+"\n"), os.Link)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return secret.Key{}, err
		}
	}
	return readKey(path, log)
}

func readKey(path string, log *slog.Logger) (secret.Key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return secret.Key{}, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		log.Warn("others on this machine can read the encryption key",
			"file", path, "mode", info.Mode().Perm().String())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return secret.Key{}, err
	}
	key, err := secret.ParseKey(string(text))
	if err != nil {
		return secret.Key{}, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// writeSecret writes a file that only its owner can read, atomically. move
// moves the temporary file to its path.
func writeSecret(path string, content []byte, move func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return move(f.Name(), path)
}

// requireInstallation returns an error unless there is a database of a server that has run, and its
// key. Only a server creates them: a command in the wrong folder, or with the wrong settings, must
// not leave an installation there that nobody wanted.
func (c Config) requireInstallation(ctx context.Context) error {
	const hint = "run the command in the server's folder, or with its --config, --data-dir or --database"
	if !c.onPostgres() {
		if _, err := os.Stat(c.Database); errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.FailedPrecondition, "there is no database %s: %s", c.Database, hint)
		}
	}
	db, err := store.OpenToRead(ctx, c.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	if v, err := db.Inspect(ctx); err != nil || v.Schema == 0 {
		f := fault.New(fault.FailedPrecondition, "no server has used this database yet: %s", hint)
		f.Cause = err
		return f
	}
	_, err = existingKey(c)
	return err
}

// The data of a server includes its keys and the content of its users.
const (
	privateFolder fs.FileMode = 0o700
	privateFile   fs.FileMode = 0o600
)

// makeDataDir creates the data folder, unless nothing is stored in it, and
// removes the permissions of others on it and its files, whoever created them.
// The permissions of single blobs are not changed, because nobody else can
// reach them in their folder.
func (c Config) makeDataDir(log *slog.Logger) error {
	if !c.onPostgres() || c.EncryptionKey == "" || c.Dev {
		if err := os.MkdirAll(c.DataDir, privateFolder); err != nil {
			return err
		}
	}
	private := map[string]fs.FileMode{c.DataDir: privateFolder}
	for _, name := range []string{keyFile, devFileName, controlSocket} {
		private[filepath.Join(c.DataDir, name)] = privateFile
	}
	if !strings.HasPrefix(c.Blobs, bucketScheme) {
		private[c.Blobs] = privateFolder
	}
	if !c.onPostgres() {
		for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
			private[c.Database+suffix] = privateFile
		}
	}
	for path, most := range private {
		if err := makePrivate(path, most, log); err != nil {
			return err
		}
	}
	return nil
}

// makePrivate removes the permissions of others on a file or folder, if it
// exists, and logs that. It does not fail if the file belongs to somebody
// else, such as a volume of the system, or is mounted read-only, such as a
// secret of a container.
func makePrivate(path string, most fs.FileMode, log *slog.Logger) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()
	if info.Mode()&fs.ModeSymlink != 0 || mode&^most == 0 {
		return nil
	}
	switch err := os.Chmod(path, mode&most); {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		log.Warn("others on this machine can reach what the server keeps, and it cannot be changed",
			"path", path, "mode", mode.String())
	case err != nil:
		return fmt.Errorf("make %s private: %w", path, err)
	default:
		log.Warn("others on this machine could reach what the server keeps; now they cannot",
			"path", path, "mode", mode.String(), "now", (mode & most).String())
	}
	return nil
}
