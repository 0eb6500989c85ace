package signin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zalando/go-keyring"
)

// mockKeyring replaces the system's keyring, which tests must not change.
func mockKeyring(t *testing.T, err error) {
	t.Helper()
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")
	keyring.MockInit()
	if err != nil {
		keyring.MockInitWithError(err)
	}
}

func TestVaults(t *testing.T) {
	mockKeyring(t, nil)
	vaults := map[string]vault{
		"folders": folderVault{filepath.Join(t.TempDir(), "tokens")}, "keyring": keyringVault{timeout: time.Minute},
	}
	for name, v := range vaults {
		t.Run(name, func(t *testing.T) {
			const api, other = "https://h.example.com", "registry.example.com"
			steps := []struct {
				claim string
				do    func() error
				want  tokens
			}{
				{"nothing is kept", func() error { return nil }, tokens{}},
				{"nothing can be removed", func() error { return v.remove(api) }, tokens{}},
				{
					"both are kept", func() error { return v.write(api, tokens{Access: "a", Refresh: "r"}) },
					tokens{Access: "a", Refresh: "r"},
				},
				{
					"another audience is another", func() error { return v.write(other, tokens{Access: "x", Refresh: "y"}) },
					tokens{Access: "a", Refresh: "r"},
				},
				{"a refresh token can go", func() error { return v.write(api, tokens{Access: "b"}) }, tokens{Access: "b"}},
				{"removed is gone", func() error { return v.remove(api) }, tokens{}},
			}
			for _, s := range steps {
				if err := s.do(); err != nil {
					t.Fatalf("%s: %v", s.claim, err)
				}
				if got, err := v.read(api); err != nil || got != s.want {
					t.Fatalf("%s: %+v, %v; want %+v", s.claim, got, err, s.want)
				}
			}
			if got, err := v.read(other); err != nil || got.Access != "x" {
				t.Errorf("the other audience has %+v, %v", got, err)
			}
		})
	}
}

// TestFolderVaultLayout checks the names of the folders and files, because other clients of
// the API use the same layout.
func TestFolderVaultLayout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tokens")
	v := folderVault{dir}
	if err := v.write("https://h.example.com", tokens{Access: "access", Refresh: "refresh"}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"https:--h.example.com/oidc-token": "access", "https:--h.example.com/refresh-token": "refresh",
	} {
		path = filepath.Join(dir, path)
		text, err := os.ReadFile(path)
		if err != nil || string(text) != want {
			t.Errorf("%s = %q, %v", path, text, err)
		}
		for p, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700, dir: 0o700} {
			if info, err := os.Stat(p); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v; want mode %o", p, info.Mode(), err, mode)
			}
		}
	}
}

func TestKeyringDamage(t *testing.T) {
	mockKeyring(t, nil)
	if err := keyring.Set(keyringService, "aud", "hush"); err != nil {
		t.Fatal(err)
	}
	if _, err := (keyringVault{timeout: time.Minute}).read("aud"); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("a damaged entry: %v", err)
	}
}

func TestHasKeyring(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bus"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		system string
		env    map[string]string
		want   bool
	}{
		"on a Mac":                    {"darwin", nil, true},
		"with a bus":                  {"linux", map[string]string{"DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus"}, true},
		"with a bus at its place":     {"linux", map[string]string{"XDG_RUNTIME_DIR": dir}, true},
		"with no bus at its place":    {"linux", map[string]string{"XDG_RUNTIME_DIR": dir + "/x"}, false},
		"with a bus to be started":    {"linux", map[string]string{"DBUS_SESSION_BUS_ADDRESS": "autolaunch:"}, false},
		"in a container, with none":   {"linux", nil, false},
		"on a system of another kind": {"plan9", nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := hasKeyring(tt.system, func(k string) string { return tt.env[k] }); got != tt.want {
				t.Errorf("a keyring: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestBeginKeepsTokens(t *testing.T) {
	tests := map[string]struct {
		store   string
		broken  error
		keyring bool
		fails   bool
	}{
		"in the keyring if there is one": {"", nil, true, false},
		"in files if there is none":      {"auto", errors.New("no keyring"), false, false},
		"in files if told so":            {"file", nil, false, false},
		"nowhere else if told so":        {"keyring", errors.New("no keyring"), false, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			mockKeyring(t, tt.broken)
			t.Setenv("HOLDFAST_TOKEN_STORE", tt.store)
			t.Setenv("HOLDFAST_CLIENT_CONFIG", filepath.Join(t.TempDir(), "config.yaml"))
			s := openSession(t, "https://h.example.com")
			err := s.begin(t.Context(), session{Issuer: "https://h.example.com"}, tokens{Access: "a", Refresh: "r"})
			if (err != nil) != tt.fails {
				t.Fatalf("begin: %v", err)
			}
			if tt.fails {
				return
			}
			again := openSession(t, "https://h.example.com")
			if got, err := again.vault().read(again.audience); again.Keyring != tt.keyring || err != nil ||
				got != (tokens{Access: "a", Refresh: "r"}) {
				t.Errorf("kept %+v, %v, keyring %v", got, err, again.Keyring)
			}
			if _, err := os.Stat(again.files.location(again.audience)); (err == nil) == tt.keyring {
				t.Errorf("the file of the token: %v", err)
			}
			if err := again.end(); err != nil {
				t.Fatal(err)
			}
			if got, _ := s.vault().read(s.audience); got != (tokens{}) {
				t.Errorf("after the end there is %+v", got)
			}
		})
	}
}

// openSession returns the session at a server as another command would find it.
func openSession(t *testing.T, api string) *signIn {
	t.Helper()
	s, err := newTestAgent(os.Stderr).signIn(api)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
