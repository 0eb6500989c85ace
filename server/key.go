package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/seal"
)

const keyFile = "holdfast.key" // in the data folder

// encryptionKey returns the key from the settings or from the key file in the
// data folder, which it creates on first start.
func encryptionKey(cfg Config, log *slog.Logger) (seal.Key, error) {
	if cfg.EncryptionKey != "" {
		return seal.ParseKey(cfg.EncryptionKey)
	}
	path := filepath.Join(cfg.DataDir, keyFile)
	if cfg.onPostgres() {
		log.Warn("the encryption key is a file of this machine: replicas must share it, "+
			"or set HOLDFAST_ENCRYPTION_KEY", "file", path)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		// Link, unlike a rename, does not replace a key that another process has
		// created in the meantime.
		err := writeSecret(path, []byte(seal.NewKey().Text()+"\n"), os.Link)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return seal.Key{}, err
		}
	}
	return readKey(path, log)
}

func readKey(path string, log *slog.Logger) (seal.Key, error) {
	info, err := os.Stat(path)
	if err != nil {
		return seal.Key{}, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		log.Warn("others on this machine can read the encryption key",
			"file", path, "mode", info.Mode().Perm().String())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return seal.Key{}, err
	}
	key, err := seal.ParseKey(string(text))
	if err != nil {
		return seal.Key{}, fmt.Errorf("%s: %w", path, err)
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
