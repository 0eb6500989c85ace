package assembly_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/blob/blobtest"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/upkeep"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// upload pushes a blob in chunks of the given sizes, and returns the last response. The last chunk completes the
// upload.
func (r *rig) upload(t testing.TB, repo string, content []byte, chunks ...int) answer {
	t.Helper()
	a := r.want(t, call{method: "POST", path: "/v2/" + repo + "/blobs/uploads/", who: "owner"}, http.StatusAccepted)
	at := 0
	for _, n := range chunks[:len(chunks)-1] {
		a = r.want(t, call{
			method: "PATCH", path: a.header.Get("Location"), who: "owner", body: bytes.NewReader(content[at : at+n]),
			headers: []string{"Content-Range", fmt.Sprintf("%d-%d", at, at+n-1)}}, http.StatusAccepted)
		at += n
	}
	return r.do(t, call{method: "PUT", path: a.header.Get("Location") + "?digest=" + sha(content), who: "owner",
		body: bytes.NewReader(content[at:])})
}

// TestBucket checks that blobs which are pushed to a bucket, in chunks of any size, can be pulled, and that the
// collector removes the rest of an interrupted upload.
func TestBucket(t *testing.T) {
	server := blobtest.Start(t)
	c := newClock()
	s := storetest.Open(t, storetest.SQLite(t))
	s.Now = c.now
	storage := server.Storage(t)
	r := newRigOn(t, s, storage, assembly.Config{Now: c.now})
	const mib = 1 << 20
	content := bytes.Repeat([]byte("0123456789abcdef"), mib)
	for i, chunks := range [][]int{{0}, {16 * mib, 0}, {6 * mib, 6 * mib, 4 * mib}, {1, 2, 6 * mib, 3, 10*mib - 6}} {
		copy(content, fmt.Sprint(i))
		if a := r.upload(t, "acme/app", content, chunks...); a.status != http.StatusCreated {
			t.Fatalf("chunks of %v: %d %s", chunks, a.status, a.body)
		}
		a := r.want(t, call{method: "GET", path: "/v2/acme/app/blobs/" + sha(content), who: "owner"}, http.StatusOK)
		if !bytes.Equal(a.body, content) {
			t.Errorf("chunks of %v: %d other bytes come back", chunks, len(a.body))
		}
	}
	a := r.want(t, call{method: "GET", path: "/v2/acme/app/blobs/" + sha(content), who: "owner",
		headers: []string{"Range", "bytes=9000000-9000015"}}, http.StatusPartialContent)
	if !bytes.Equal(a.body, content[9000000:9000016]) {
		t.Errorf("a range is %q", a.body)
	}
	a = r.want(t, call{method: "POST", path: "/v2/acme/app/blobs/uploads/", who: "owner"}, http.StatusAccepted)
	if got := a.header.Get("OCI-Chunk-Min-Length"); got != "5242880" {
		t.Errorf("chunks should have %q bytes", got)
	}

	// A server that was killed during an upload leaves parts in the bucket without a row in the database.
	w, err := storage.Create(t.Context(), "/blobs/ab/ab-killed")
	must(t, err)
	_, err = w.Write(content)
	must(t, err)
	must(t, w.Pause(t.Context()))
	for _, step := range []struct {
		after time.Duration
		files int
	}{{time.Hour, 0}, {upkeep.UploadAge, 1}, {0, 0}} {
		c.pass(step.after)
		took, err := r.Collect(t.Context(), upkeep.Collection{Grace: 100 * upkeep.UploadAge})
		if err != nil || took.Files != step.files {
			t.Errorf("after %v: took %+v, %v", step.after, took, err)
		}
	}
	r.want(t, call{method: "HEAD", path: "/v2/acme/app/blobs/" + sha(content), who: "owner"}, http.StatusOK)
}

// TestBucketRedirect checks that pulls are redirected to the bucket, with an address that does not contain the
// secret.
func TestBucketRedirect(t *testing.T) {
	r := newRigOn(t, storetest.Open(t, storetest.SQLite(t)), blobtest.Start(t).Storage(t), assembly.Config{Redirect: true})
	r.pushBlob(t, "acme/app", []byte("content"))
	path := "/v2/acme/app/blobs/" + sha([]byte("content"))
	r.want(t, call{method: "HEAD", path: path, who: "owner"}, http.StatusOK)
	a := r.want(t, call{method: "GET", path: path, who: "owner"}, http.StatusTemporaryRedirect)
	if strings.Contains(a.header.Get("Location"), "testsecret") {
		t.Error("the address has the secret")
	}
	a = r.want(t, call{method: "GET", path: a.header.Get("Location")}, http.StatusOK)
	if string(a.body) != "content" {
		t.Errorf("the bucket has %q", a.body)
	}
	r.want(t, call{method: "GET", path: path, who: "stranger"}, http.StatusForbidden)
}

// A full is a storage whose disk is full after a number of operations.
type full struct {
	blob.Storage

	mu   sync.Mutex
	left int // number of operations until the disk is full; negative means never
}

func (f *full) use() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return &os.PathError{Op: "write", Path: "/secret/folder", Err: syscall.ENOSPC}
	}
	f.left--
	return nil
}

func (f *full) set(left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = left
}

func (f *full) Create(ctx context.Context, path string) (blob.Writer, error) {
	return f.Resume(ctx, path, 0)
}

func (f *full) Resume(ctx context.Context, path string, size int64) (blob.Writer, error) {
	if err := f.use(); err != nil {
		return nil, err
	}
	w, err := f.Storage.Resume(ctx, path, size)
	if err != nil {
		return nil, err
	}
	return &fullWriter{w, f}, nil
}

type fullWriter struct {
	blob.Writer
	full *full
}

func (w *fullWriter) Write(b []byte) (int, error) {
	if err := w.full.use(); err != nil {
		n, _ := w.Writer.Write(b[:len(b)/2])
		return n, err
	}
	return w.Writer.Write(b)
}

func (w *fullWriter) Pause(ctx context.Context) error {
	return errors.Join(w.full.use(), w.Writer.Pause(ctx))
}

func (w *fullWriter) Commit(ctx context.Context) error {
	return errors.Join(w.full.use(), w.Writer.Commit(ctx))
}

// TestFullStorage lets the disk become full at each operation of a push in turn. It checks that the client gets an
// error, that no file is left, and that the push succeeds once there is space.
func TestFullStorage(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "blobs")
	storage := &full{Storage: blob.NewFolder(folder), left: -1}
	r := newRigOn(t, storetest.Open(t, storetest.SQLite(t)), storage, assembly.Config{})
	r.blobs = folder
	content := bytes.Repeat([]byte("x"), 300_000)
	pushes := map[string]func() answer{
		"in one": func() answer {
			return r.do(t, call{method: "POST", path: "/v2/acme/app/blobs/uploads/?digest=" + sha(content), who: "owner",
				body: bytes.NewReader(content)})
		},
		"in chunks": func() answer {
			a := r.want(t, call{method: "POST", path: "/v2/acme/app/blobs/uploads/", who: "owner"}, http.StatusAccepted)
			at := a.header.Get("Location")
			a = r.do(t, call{method: "PATCH", path: at, who: "owner", body: bytes.NewReader(content[:200_000])})
			if a.status == http.StatusAccepted {
				a = r.do(t, call{method: "PUT", path: at + "?digest=" + sha(content), who: "owner",
					body: bytes.NewReader(content[200_000:])})
			}
			if a.status != http.StatusCreated { // remove the unfinished upload
				r.do(t, call{method: "DELETE", path: at, who: "owner"})
			}
			return a
		},
	}
	for name, push := range pushes {
		t.Run(name, func(t *testing.T) {
			failures := 0
			for n := 0; ; n++ {
				storage.set(n)
				a := push()
				storage.set(-1)
				if a.status == http.StatusCreated {
					break
				}
				failures++
				if a.status != http.StatusServiceUnavailable || a.code() != "UNAVAILABLE" ||
					bytes.Contains(a.body, []byte("secret")) {
					t.Errorf("full at %d: %d %s", n, a.status, a.body)
				}
				r.want(t, call{method: "HEAD", path: "/v2/acme/app/blobs/" + sha(content), who: "owner"}, http.StatusNotFound)
				if left := r.files(t); left != 0 {
					t.Errorf("full at %d: %d files are left", n, left)
				}
			}
			if failures < 4 {
				t.Errorf("the storage was full %d times only", failures)
			}
			r.want(t, call{method: "GET", path: "/v2/acme/app/blobs/" + sha(content), who: "owner"}, http.StatusOK)
			r.want(t, call{method: "DELETE", path: "/v2/acme/app/blobs/" + sha(content), who: "owner"}, http.StatusAccepted)
			_, err := r.Collect(t.Context(), upkeep.Collection{})
			must(t, err)
		})
	}
}

// TestFullDisk checks that a push to a full file system fails without leaving files. It is skipped if this process
// cannot mount a file system.
func TestFullDisk(t *testing.T) {
	folder := t.TempDir()
	if err := mountSmall(t, folder, 4<<20); err != nil {
		t.Skipf("no file system can be mounted: %v", err)
	}
	r := newRigOn(t, storetest.Open(t, storetest.SQLite(t)), blob.NewFolder(folder), assembly.Config{})
	r.blobs = folder
	content := bytes.Repeat([]byte("x"), 5<<20)
	a := r.do(t, call{method: "POST", path: "/v2/acme/app/blobs/uploads/?digest=" + sha(content), who: "owner",
		body: io.MultiReader(bytes.NewReader(content))})
	if a.status != http.StatusServiceUnavailable || r.files(t) != 0 {
		t.Errorf("%d %s, %d files are left", a.status, a.body, r.files(t))
	}
	r.pushBlob(t, "acme/app", content[:1<<20])
}
