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

// Whoever can read what a server keeps has its keys, or its users' bytes.
const (
	privateFolder fs.FileMode = 0o700
	privateFile   fs.FileMode = 0o600
)

// makeDataDir makes the data folder, unless nothing is kept in it, and sees to it
// that it and what is in it are the server's alone, whoever made them. The blobs
// in their folder, which may be many, are out of others' reach with the folder.
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

// makePrivate takes permissions from others that they have on a file or folder,
// and has the log tell. What belongs to somebody else, such as a volume that is
// the system's, stays as it is; what is not there is nothing to do about.
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
		log.Warn("others on this machine can reach what the server keeps, and it cannot be changed", "path", path, "mode", mode.String())
	case err != nil:
		return fmt.Errorf("make %s private: %w", path, err)
	default:
		log.Warn("others on this machine could reach what the server keeps; now they cannot", "path", path, "mode", mode.String(), "now", (mode & most).String())
	}
	return nil
}
