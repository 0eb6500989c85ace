package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/server/maintenance"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// TestDoctor runs the doctor command on a healthy installation with a running server, and then on broken
// installations. Each defect must be reported with advice, and by only one check.
func TestDoctor(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, database string) {
		w := serve(t, database, server.Config{GCInterval: -1}, nil)
		w.pushImage(t, "dev/app", "v1", "amd64", "layer")
		base, err := url.Parse(w.BaseURL)
		if err != nil {
			t.Fatal(err)
		}
		well := w.config
		well.Listen = base.Host
		if sick, err := examine(t, well); err != nil {
			t.Fatalf("a healthy installation: %v, %v", sick, err)
		}
		for name, tt := range map[string]struct {
			change func(t *testing.T, c *server.Config)
			check  string
			state  string
		}{
			"another key": {func(_ *testing.T, c *server.Config) { c.EncryptionKey = secret.NewKey().Text() }, "key", "failure"},
			"no key":      {func(_ *testing.T, c *server.Config) { c.EncryptionKey = "" }, "key", "failure"},
			"no server": {func(_ *testing.T, c *server.Config) {
				c.Listen, c.BaseURL = "127.0.0.1:1", w.BaseURL
			}, "server", "warning"},
			"a bad setting": {func(_ *testing.T, c *server.Config) { c.RegistryHost = "not a host" }, "settings", "failure"},
			"an open folder": {func(t *testing.T, c *server.Config) {
				c.DataDir = opened(t, c.DataDir)
			}, "data folder", "warning"},
			"another server": {func(_ *testing.T, c *server.Config) {
				c.AuthURL = "http://127.0.0.1:1"
			}, "server", "failure"},
			"an unreachable base_url": {func(_ *testing.T, c *server.Config) {
				c.AuthURL, c.BaseURL = w.AuthURL, "http://127.0.0.1:1"
			}, "base_url", "failure"},
			"a readable key": {readableKey, "key", "failure"},
			"no storage": {func(_ *testing.T, c *server.Config) {
				c.Blobs, c.S3Endpoint, c.S3Region = "s3://bucket/prefix", "http://127.0.0.1:1", "any"
			}, "blobs", "failure"},
			"lost blobs": {func(t *testing.T, c *server.Config) { c.Blobs = t.TempDir() }, "blobs", "failure"},
		} {
			t.Run(name, func(t *testing.T) {
				cfg := well
				cfg.Blobs = filepath.Join(cfg.DataDir, "blobs")
				tt.change(t, &cfg)
				sick, err := examine(t, cfg)
				if len(sick) != 1 || sick[tt.check] != tt.state {
					t.Errorf("%v, want only a %s of the check %s", sick, tt.state, tt.check)
				}
				if errors.Is(err, maintenance.ErrWarnings) != (tt.state == "warning") || err == nil {
					t.Errorf("the command returned %v", err)
				}
			})
		}
		cfg := well
		cfg.Database = t.TempDir() + "/none.db"
		if strings.Contains(database, "://") {
			cfg.Database = "postgres://ann@/none?host=" + t.TempDir() // PostgreSQL has no socket there
		}
		// The data folder has blobs, so this is no new installation.
		if sick, err := examine(t, cfg); err == nil || sick["database"] != "failure" {
			t.Errorf("a missing database: %v, %v", sick, err)
		}
	})
}

// readableKey moves the key into a file that everybody may read.
func readableKey(t *testing.T, c *server.Config) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "holdfast.key")
	if err := errors.Join(os.Chmod(dir, 0o700), os.WriteFile(path, []byte(c.EncryptionKey), 0o600),
		os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	c.DataDir, c.EncryptionKey = dir, ""
}

// opened makes a folder readable for other users until the test ends. It returns a symbolic link to the folder.
func opened(t *testing.T, like string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Symlink(like, to), os.Chmod(like, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(like, 0o700) })
	return to
}

// examine runs the doctor command and returns the state of each check that is not ok.
func examine(t *testing.T, cfg server.Config) (sick map[string]string, _ error) {
	t.Helper()
	var out bytes.Buffer
	cfg.Now = time.Now
	err := server.RunCommand(t.Context(), cfg, []string{"doctor", "json"}, &out)
	var checks []struct{ Check, State, Says, Advice string }
	if err := json.Unmarshal(out.Bytes(), &checks); err != nil {
		t.Fatalf("%v in %s", err, out.Bytes())
	}
	sick = map[string]string{}
	for _, f := range checks {
		if f.State != "ok" {
			sick[f.Check] = f.State
		}
		if f.Says == "" || (f.Advice == "") != (f.State == "ok") {
			t.Errorf("a check without a message, or with the wrong advice: %+v", f)
		}
	}
	return sick, err
}
