package installation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// LostKeyFlag is the flag that keys reset requires, because it voids all tokens.
const LostKeyFlag = "lost-encryption-key"

// Secrets of dev mode in the database. They are the same after a restart.
const (
	DevIssuerKey = "dev issuer"
	DevPassword  = "dev password"
)

// Key returns the encryption key from the settings or from the key file. It
// creates the key file if there is none.
func Key(cfg config.Config, log *slog.Logger) (secret.Key, error) {
	if cfg.EncryptionKey != "" {
		return secret.ParseKey(cfg.EncryptionKey)
	}
	path := cfg.KeyFile()
	if cfg.OnPostgres() {
		log.Warn("the encryption key is a file of this machine: replicas must share it, "+
			"or set HOLDFAST_ENCRYPTION_KEY", "file", path)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		// Link, unlike a rename, does not replace a key that another process has
		// created at the same time.
		err := WriteSecret(path, []byte(secret.NewKey().Text()+"\n"), os.Link)
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
		log.Warn("other users of this machine can read the encryption key",
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

// ExistingKey returns the encryption key of an installation and never creates one,
// because a back-up that is made or restored with a new key could not be used. It
// returns fault.FailedPrecondition if there is no key.
func ExistingKey(cfg config.Config) (secret.Key, error) {
	path := cfg.KeyFile()
	if _, err := os.Stat(path); cfg.EncryptionKey == "" && errors.Is(err, os.ErrNotExist) {
		return secret.Key{}, fault.New(fault.FailedPrecondition,
			"there is no encryption key: set HOLDFAST_ENCRYPTION_KEY, or put the key of the installation into %s. "+
				"If it is lost, see holdfastd keys reset --%s", path, LostKeyFlag)
	}
	return Key(cfg, slog.New(slog.DiscardHandler)) // only a server warns about the key file
}

// CheckKeyFile returns fault.FailedPrecondition if the key file is missing and the
// database has secrets that were sealed with it. A new key would not open these
// secrets, and people would later mistake it for the missing key.
func CheckKeyFile(ctx context.Context, cfg config.Config, db *store.DB) error {
	path := cfg.KeyFile()
	if _, err := os.Stat(path); cfg.EncryptionKey != "" || !errors.Is(err, fs.ErrNotExist) {
		return nil // Key reports any other error
	}
	keys, err := tokendb.New(db).SigningKeys(ctx)
	if err != nil || len(keys) == 0 {
		return err
	}
	return fault.New(fault.FailedPrecondition, "the encryption key is missing: %s does not exist, and the database has "+
		"secrets that were sealed with it. Put your copy of the key there, or set HOLDFAST_ENCRYPTION_KEY. "+
		"If the key is lost, holdfastd keys reset --%s replaces it and lists the secrets that are lost with it",
		path, LostKeyFlag)
}

// CheckSecrets returns an error unless the key opens every secret that is sealed
// in the database.
func CheckSecrets(ctx context.Context, db *store.DB, key secret.Key) error {
	iam := iamdb.New(db)
	for purpose, read := range map[string]func(context.Context) ([][]byte, error){
		secret.ForClientSecrets: iam.ClientSecrets, secret.ForOneTimePasswords: signindb.New(db).TOTPSecrets,
		secret.ForUpstreams: func(ctx context.Context) ([][]byte, error) {
			sources := sourcedb.New(registrydb.New(db))
			sealed, err := sources.UpstreamSecrets(ctx)
			if err != nil {
				return nil, err
			}
			replicated, err := sources.ReplicationSecrets(ctx)
			return append(sealed, replicated...), err
		},
		secret.ForSigningKeys: func(ctx context.Context) (sealed [][]byte, _ error) {
			keys, err := tokendb.New(db).SigningKeys(ctx)
			for _, k := range keys {
				sealed = append(sealed, k.Sealed)
			}
			return sealed, err
		},
	} {
		secrets, err := read(ctx)
		if err != nil {
			return err
		}
		for _, sealed := range secrets {
			if _, err := key.Open(purpose, sealed); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteSecret writes a file that only its owner can read, atomically. move
// moves the temporary file to its path.
func WriteSecret(path string, content []byte, move func(from, to string) error) error {
	// CreateTemp creates files with the mode 0600.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
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
