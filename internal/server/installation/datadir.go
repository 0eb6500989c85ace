// Package installation manages the files of an installation: its data folder, its
// encryption key, and the checks that a database and a key belong together.
package installation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/health"
)

// Require returns fault.FailedPrecondition unless the database of a server that has
// run, and its encryption key, exist. Commands call it because only a server may
// create an installation: a command in the wrong folder, or with the wrong
// settings, must not leave an unwanted one there.
func Require(ctx context.Context, cfg config.Config) error {
	const hint = "run the command in the server's folder, or with its --config, --data-dir or --database"
	if !cfg.OnPostgres() {
		if _, err := os.Stat(cfg.Database); errors.Is(err, fs.ErrNotExist) {
			return fault.New(fault.FailedPrecondition, "there is no database %s: %s", cfg.Database, hint)
		}
	}
	db, err := store.OpenToRead(ctx, cfg.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	if v, err := health.Inspect(ctx, db); err != nil || v.Schema == 0 {
		f := fault.New(fault.FailedPrecondition, "no server has used this database yet: %s", hint)
		f.Cause = err
		return f
	}
	_, err = ExistingKey(cfg)
	return err
}

// Permissions of the server's files, which contain its keys and the content of its users.
const (
	privateFolder fs.FileMode = 0o700
	privateFile   fs.FileMode = 0o600
)

// MakeDataDir creates the data folder, unless the settings store nothing in it. It
// removes the permissions of other users on the folder and its files, including files
// that it did not create. It does not change the permissions of single blobs, because
// other users cannot enter their folder.
func MakeDataDir(cfg config.Config, log *slog.Logger) error {
	if !cfg.OnPostgres() || cfg.EncryptionKey == "" || cfg.Dev {
		if err := os.MkdirAll(cfg.DataDir, privateFolder); err != nil {
			return err
		}
	}
	private := map[string]fs.FileMode{cfg.DataDir: privateFolder}
	for _, path := range []string{cfg.KeyFile(), cfg.DevFile(), cfg.ControlSocket()} {
		private[path] = privateFile
	}
	if !config.IsBucket(cfg.Blobs) {
		private[cfg.Blobs] = privateFolder
	}
	if !cfg.OnPostgres() {
		for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
			private[cfg.Database+suffix] = privateFile
		}
	}
	for path, most := range private {
		if err := makePrivate(path, most, log); err != nil {
			return err
		}
	}
	return nil
}

// makePrivate removes the permissions of other users on a file or folder, if it
// exists, and logs the change. It only logs a warning if the permissions cannot be
// changed because the file belongs to another user, such as a volume of the
// system, or is mounted read-only, such as a secret of a container.
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
		log.Warn("other users of this machine can reach a file of the server, and its permissions cannot be changed",
			"path", path, "mode", mode.String())
	case err != nil:
		return fmt.Errorf("make %s private: %w", path, err)
	default:
		log.Warn("other users of this machine could reach a file of the server; its permissions were removed",
			"path", path, "mode", mode.String(), "now", (mode & most).String())
	}
	return nil
}
