package e2e_test

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAttackFiles checks that other users of the machine cannot read the server's files. The server must create files
// for its own user only, and must restrict the permissions of files that already exist, whoever created them.
func TestAttackFiles(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"a new folder": func(t *testing.T, dir string) {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
		},
		"a folder that was there": func(t *testing.T, dir string) { chmod(t, dir, 0o755) },
		"one that a server has used": func(t *testing.T, dir string) {
			p := procStart(t, "HOLDFAST_DATA_DIR="+dir)
			pushBlob(t, p)
			p.stop()
			chmod(t, dir, 0o755)
			for _, name := range []string{"holdfast.key", "holdfast.db", "holdfast.db.lock", "dev.json"} {
				chmod(t, filepath.Join(dir, name), 0o644)
			}
			chmod(t, filepath.Join(dir, "blobs"), 0o755)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prepare(t, dir)
			p := procStart(t, "HOLDFAST_DATA_DIR="+dir)
			pushBlob(t, p)
			procUntil(t, "the control socket exists", func() bool {
				_, err := os.Stat(filepath.Join(dir, "control.sock"))
				return err == nil
			})
			seen := 0
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				seen++
				info, err := d.Info()
				if err != nil {
					return err
				}
				if info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s has mode %s", strings.TrimPrefix(path, dir), info.Mode())
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if seen < 10 {
				t.Errorf("only %d files and folders were checked", seen)
			}
			p.stop()
		})
	}
}

func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// pushBlob pushes a blob to a repo. It creates the repo if it is missing.
func pushBlob(t *testing.T, p *proc) {
	t.Helper()
	owner := p.owner()
	defer owner.close()
	repo := map[string]any{"name": "app"}
	code := owner.code(t.Context(), http.MethodPost, "/registry/v2beta1/repos/"+string(p.dev.Organization), repo)
	if code != http.StatusOK && code != http.StatusConflict {
		t.Fatalf("create a repo: %d", code)
	}
	content := "content"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+p.address+"/v2/dev/app/blobs/uploads/?digest="+digestOf(content), strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("_token", p.dev.RegistryToken)
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("push a blob: %s", resp.Status)
	}
}
