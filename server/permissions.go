package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

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
// else, such as a volume of the system.
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
	case errors.Is(err, fs.ErrPermission):
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
