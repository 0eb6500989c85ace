package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	folders, files := []string{c.DataDir}, []string{"holdfast.key", "dev.json", controlSocket}
	for i, name := range files {
		files[i] = filepath.Join(c.DataDir, name)
	}
	if !strings.HasPrefix(c.Blobs, bucketScheme) {
		folders = append(folders, c.Blobs)
	}
	if !c.onPostgres() {
		files = append(files, c.Database, c.Database+"-wal", c.Database+"-shm", c.Database+".lock")
	}
	for _, path := range folders {
		if err := makePrivate(path, privateFolder, log); err != nil {
			return err
		}
	}
	for _, path := range files {
		if err := makePrivate(path, privateFile, log); err != nil {
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
