package signin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/zalando/go-keyring"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
)

type tokens = holdfast.Tokens

// A vault stores tokens by audience. If there is no entry, read returns empty tokens and
// remove returns no error.
type vault interface {
	read(audience string) (tokens, error)
	write(audience string, t tokens) error
	remove(audience string) error
	location(audience string) string // describes where the tokens are, for people
}

// A folderVault stores the tokens of each audience in a separate folder, in files that
// only their owner can read. Other clients of the API use the same layout.
type folderVault struct{ dir string }

const (
	accessFile  = "oidc-token"
	refreshFile = "refresh-token"
)

// folder returns the folder of an audience. Two audiences that differ only in a slash and
// a hyphen share a folder. That is harmless, because tokens name their audience.
func (v folderVault) folder(audience string) string {
	name := strings.ReplaceAll(audience, "/", "-")
	if runtime.GOOS == "windows" {
		name = strings.ReplaceAll(name, ":", "-") // Windows allows no colon in the name of a folder
	}
	return filepath.Join(v.dir, name)
}

func (v folderVault) location(audience string) string {
	return filepath.Join(v.folder(audience), accessFile)
}

func (v folderVault) read(audience string) (t tokens, err error) {
	if t.Access, err = readTokenFile(v.location(audience)); err != nil {
		return tokens{}, err
	}
	t.Refresh, err = readTokenFile(filepath.Join(v.folder(audience), refreshFile))
	return t, err
}

func readTokenFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", problem.Usage("kept token: %v", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// write writes the refresh token first, because it works once and the access token can be
// renewed with it.
func (v folderVault) write(audience string, t tokens) error {
	for _, f := range []struct{ name, text string }{{refreshFile, t.Refresh}, {accessFile, t.Access}} {
		path := filepath.Join(v.folder(audience), f.name)
		if f.text == "" {
			if err := removeFile(path); err != nil {
				return err
			}
			continue
		}
		if err := settings.WritePrivate(path, []byte(f.text)); err != nil {
			return err
		}
	}
	return nil
}

func (v folderVault) remove(audience string) error {
	return v.write(audience, tokens{})
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// A keyringVault stores tokens in the system's keyring. Its calls time out, because the
// keyring may wait for a person who is not there.
type keyringVault struct {
	timeout time.Duration
	profile string // name of the profile; "" for the default profile
}

const keyringService = "holdfast"

// service returns the name of the keyring's entries. It contains the profile, because
// profiles may have sessions at the same server.
func (v keyringVault) service() string {
	if v.profile == "" {
		return keyringService
	}
	return keyringService + " " + v.profile
}

func (keyringVault) location(string) string { return "the system keyring" }

func (v keyringVault) read(audience string) (t tokens, err error) {
	var text string
	err = v.within(func() (err error) {
		text, err = keyring.Get(v.service(), audience)
		return err
	})
	if errors.Is(err, keyring.ErrNotFound) {
		return tokens{}, nil
	}
	if err != nil {
		return tokens{}, fmt.Errorf("read the system keyring: %w", err)
	}
	if json.Unmarshal([]byte(text), &t) != nil { // the error is not returned, because it may quote a token
		return tokens{}, errors.New("the entry in the system keyring is damaged: sign in again")
	}
	return t, nil
}

func (v keyringVault) write(audience string, t tokens) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return v.within(func() error { return keyring.Set(v.service(), audience, string(text)) })
}

func (v keyringVault) remove(audience string) error {
	err := v.within(func() error { return keyring.Delete(v.service(), audience) })
	if errors.Is(err, keyring.ErrNotFound) {
		return nil
	}
	return err
}

func (v keyringVault) within(f func() error) error {
	if !hasKeyring(runtime.GOOS, os.Getenv) {
		return errors.New("this machine has no keyring")
	}
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(v.timeout):
		return errors.New("the system keyring does not answer")
	}
}

// hasKeyring reports whether there can be a keyring. It is checked first, because without
// a D-Bus session the library would try to start one.
func hasKeyring(system string, getenv func(string) string) bool {
	if system == "darwin" || system == "windows" {
		return true
	}
	if bus := getenv("DBUS_SESSION_BUS_ADDRESS"); bus != "" {
		return bus != "autolaunch:"
	}
	dir := getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(dir, "bus"))
	return err == nil
}
