package e2e_test

import (
	crand "crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// faultSoon is the longest time after which a client must learn that the database is unavailable. SQLite waits five
// seconds for a lock, and a request may take 30 seconds.
const faultSoon = 20 * time.Second

// faultGroups returns the API path for a method. A GET on it lists groups, and a POST creates a group.
func faultGroups(p *proc, method string) string {
	if method == http.MethodPost {
		return "/iam/v2beta1/groups/" + string(p.dev.Organization)
	}
	return "/iam/v2beta1/groups"
}

func faultBody(method string) any {
	if method == http.MethodPost {
		return map[string]string{"name": strings.ToLower(crand.Text())}
	}
	return nil
}

// faultUnavailable fails the test unless a new request gets the typed error for an outage within faultSoon.
func faultUnavailable(t *testing.T, p *proc, method string) {
	t.Helper()
	start := time.Now()
	a, err := p.owner().call(t.Context(), method, faultGroups(p, method), faultBody(method))
	took := time.Since(start)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	faultTyped(t, a)
	if took > faultSoon {
		t.Errorf("%s: answer after %s, want at most %s", method, took, faultSoon)
	}
	t.Logf("%s refused in %s", method, took.Round(time.Millisecond))
}

// faultTyped fails the test unless an answer is the error for an outage: code 14, with its reason and the time to
// wait before a retry.
func faultTyped(t *testing.T, a procAnswer) {
	t.Helper()
	var e struct {
		Code    int
		Message string
		Details []map[string]any
	}
	err := json.Unmarshal(a.body, &e)
	if err != nil || a.status != http.StatusServiceUnavailable || e.Code != 14 || len(e.Details) != 2 ||
		e.Details[0]["@type"] != "type.googleapis.com/google.rpc.ErrorInfo" || e.Details[0]["reason"] != "UNAVAILABLE" ||
		e.Details[1]["@type"] != "type.googleapis.com/google.rpc.RetryInfo" || e.Details[1]["retryDelay"] == nil {
		t.Fatalf("answer = %d %s, want 503 with code 14, ErrorInfo and RetryInfo", a.status, a.body)
	}
}

// faultRecovered fails the test unless the same process soon reads and writes again.
func faultRecovered(t *testing.T, p *proc) {
	t.Helper()
	p.alive()
	start := time.Now()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		procUntil(t, method+" works again", func() bool {
			return p.owner().code(t.Context(), method, faultGroups(p, method), faultBody(method)) == http.StatusOK
		})
	}
	procUntil(t, "ready again", func() bool {
		return p.owner().code(t.Context(), http.MethodGet, "/readyz", nil) == http.StatusOK
	})
	t.Logf("recovered in %s", time.Since(start).Round(time.Millisecond))
}

// TestFaultLocked: if another process holds the write lock of SQLite, then writes get the typed error for an outage,
// reads still work, and the server recovers when the lock is released.
func TestFaultLocked(t *testing.T) {
	path := storetest.SQLite(t)
	p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_DATABASE="+path)
	// The server sometimes writes on its own, so the lock may not be free immediately.
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), `BEGIN EXCLUSIVE`); err != nil {
		t.Fatal(err)
	}
	faultUnavailable(t, p, http.MethodPost)
	if got := p.owner().code(t.Context(), http.MethodGet, faultGroups(p, http.MethodGet), nil); got != http.StatusOK {
		t.Errorf("HTTP status of a read during the lock: %d", got)
	}
	if _, err := db.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	faultRecovered(t, p)
	p.stop()
	procNoDrift(t, storetest.Open(t, path))
}

// TestFaultFullDisk: if the disk of the database is full, then writes get the typed error for an outage and no
// acknowledged write is lost. The server recovers when there is space again.
func TestFaultFullDisk(t *testing.T) {
	dir := faultDisk(t, 8<<20)
	path := filepath.Join(dir, "holdfast.db")
	p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_DATABASE="+path)
	kept := []procGroup{faultMake(t, p)}
	filler := faultFill(t, dir)
	var refused procAnswer
	// The write-ahead log of the database may still have space.
	procUntil(t, "writes are refused", func() bool {
		a, err := p.owner().call(t.Context(), http.MethodPost, faultGroups(p, http.MethodPost), faultBody(http.MethodPost))
		if err != nil {
			t.Fatal(err)
		}
		if refused = a; a.status == http.StatusOK {
			var g procGroup
			if err := json.Unmarshal(a.body, &g); err != nil {
				t.Fatal(err)
			}
			kept = append(kept, g)
		}
		return a.status != http.StatusOK
	})
	faultTyped(t, refused)
	faultKept(t, p, kept)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	faultRecovered(t, p)
	kept = append(kept, faultMake(t, p))
	faultKept(t, p, kept)
	p.kill()
	p = procStart(t, p.cmd.Env...)
	faultKept(t, p, kept)
	p.stop()
	s := storetest.Open(t, path)
	procNoDrift(t, s)
	crashReplay(t, s)
}

func faultMake(t *testing.T, p *proc) procGroup {
	t.Helper()
	return procMust[procGroup](t, p.owner(), http.MethodPost, faultGroups(p, http.MethodPost), faultBody(http.MethodPost))
}

// faultKept fails the test unless every group in kept exists.
func faultKept(t *testing.T, p *proc, kept []procGroup) {
	t.Helper()
	for _, g := range kept {
		got := procMust[procGroup](t, p.owner(), http.MethodGet, "/iam/v2beta1/groups/"+string(g.UID), nil)
		if got != g {
			t.Errorf("group %v, want %v", got, g)
		}
	}
}

// faultDisk mounts a disk of the given size until the test ends, and returns its path. It skips the test if the test
// may not mount a disk.
func faultDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skipf("only root can mount a disk: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// faultFill writes a file in dir until the disk is full, and returns the path of the file.
func faultFill(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return f.Name()
}
