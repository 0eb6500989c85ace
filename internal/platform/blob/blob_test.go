package blob_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
	"github.com/holdfast-dev/holdfast/internal/platform/blob/blobtest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// random returns n pseudo-random bytes, which are the same in every run.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(b) // Read never returns an error
	return b
}

func read(t testing.TB, s blob.Storage, path string) []byte {
	t.Helper()
	f, err := s.Open(t.Context(), path)
	must(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	must(t, err)
	return b
}

func wantFile(t testing.TB, s blob.Storage, path string, want []byte) {
	t.Helper()
	if size, err := s.Size(t.Context(), path); err != nil || size != int64(len(want)) {
		t.Errorf("the size of %s is %d, %v; want %d", path, size, err, len(want))
	}
	if got := read(t, s, path); !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes that are not the %d that were written", path, len(got), len(want))
	}
}

// wantNothing checks that the storage is empty.
func wantNothing(t testing.TB, s blob.Storage) {
	t.Helper()
	for _, walk := range []func(context.Context, string, func(blob.File) error) error{s.Walk, s.Unfinished} {
		must(t, walk(t.Context(), "/blobs", func(f blob.File) error {
			t.Errorf("%s is left", f.Path)
			return nil
		}))
	}
}

const mib = 1 << 20

// promises contains a test for each promise of a Storage. Each test begins with an empty Storage.
var promises = map[string]func(t *testing.T, s blob.Storage){
	"what is put is read": func(t *testing.T, s blob.Storage) {
		for _, n := range []int{0, 1, 8 * mib, 17 * mib} {
			path := fmt.Sprintf("/blobs/%d/file", n)
			must(t, s.Put(t.Context(), path, bytes.NewReader(random(n))))
			wantFile(t, s, path, random(n))
		}
	},
	"what is put replaces what was there": func(t *testing.T, s blob.Storage) {
		must(t, s.Put(t.Context(), "/blobs/a", strings.NewReader("longer than the next one")))
		must(t, s.Put(t.Context(), "/blobs/a", strings.NewReader("short")))
		wantFile(t, s, "/blobs/a", []byte("short"))
	},
	"what cannot be read to its end is not put": func(t *testing.T, s blob.Storage) {
		for _, n := range []int64{10, 9 * mib} {
			broken := io.MultiReader(io.LimitReader(rand.NewChaCha8([32]byte{}), n), failing{})
			if err := s.Put(t.Context(), "/blobs/a", broken); err == nil {
				t.Error("it was put")
			}
			wantNothing(t, s)
		}
	},
	"a file that is not there is missing": func(t *testing.T, s blob.Storage) {
		if size, err := s.Size(t.Context(), "/blobs/a"); size != -1 || err != nil {
			t.Errorf("size = %d, %v", size, err)
		}
		_, err := s.Open(t.Context(), "/blobs/a")
		_, seek := blob.OpenSeeker(t.Context(), s, "/blobs/a", 1)
		_, resume := s.Resume(t.Context(), "/blobs/a", 1)
		if !blob.Missing(err) || !blob.Missing(seek) || !blob.Missing(resume) {
			t.Errorf("errors = %v, %v, %v", err, seek, resume)
		}
		must(t, s.Remove(t.Context(), "/blobs/a"))
		must(t, s.RemoveAll(t.Context(), "/blobs/a"))
		must(t, s.Discard(t.Context(), "/blobs/a"))
		if names, err := s.Names(t.Context(), "/blobs/a"); len(names) > 0 || err != nil {
			t.Errorf("names = %v, %v", names, err)
		}
		wantNothing(t, s)
	},
	"a writer goes on after a pause": func(t *testing.T, s blob.Storage) {
		for name, steps := range map[string][]int{
			"small":                  {3, 1, 0, 7},
			"from nothing":           {0, 5},
			"small ones become big":  {4 * mib, 3 * mib, 1},
			"big, small, big":        {6 * mib, 1, 9 * mib, 2},
			"exactly a part":         {8 * mib, 8 * mib},
			"nothing after the last": {12*mib + 1, 0},
		} {
			content, done, path := random(sum(steps)), 0, "/blobs/"+strings.ReplaceAll(name, " ", "-")
			for i, n := range steps {
				w, err := s.Resume(t.Context(), path, int64(done))
				must(t, err)
				if n > 0 { // the content is written in two calls
					_, err = w.Write(content[done : done+n/2])
					must(t, err)
					_, err = w.Write(content[done+n/2 : done+n])
					must(t, err)
				}
				done += n
				if i == len(steps)-1 {
					must(t, w.Commit(t.Context()))
					continue
				}
				must(t, w.Pause(t.Context()))
			}
			wantFile(t, s, path, content)
			must(t, s.Unfinished(t.Context(), "/blobs", func(f blob.File) error {
				t.Errorf("%s: a part of %s is left", name, f.Path)
				return nil
			}))
		}
	},
	"what has another size is not resumed": func(t *testing.T, s blob.Storage) {
		for _, n := range []int{10, 9 * mib} {
			w, err := s.Create(t.Context(), "/blobs/a")
			must(t, err)
			_, err = w.Write(random(n))
			must(t, err)
			must(t, w.Pause(t.Context()))
			for _, other := range []int{n - 1, n + 1} {
				if _, err := s.Resume(t.Context(), "/blobs/a", int64(other)); !blob.Missing(err) {
					t.Errorf("resumed at %d instead of %d: %v", other, n, err)
				}
			}
			must(t, s.Discard(t.Context(), "/blobs/a"))
			wantNothing(t, s)
		}
	},
	"what is canceled is gone": func(t *testing.T, s blob.Storage) {
		for _, steps := range [][]int{{10}, {9 * mib}, {17 * mib}, {10, 10}, {6 * mib, 10, 6 * mib}} {
			done := 0
			for i, n := range steps {
				w, err := s.Resume(t.Context(), "/blobs/ab/a", int64(done))
				must(t, err)
				_, err = w.Write(random(n))
				must(t, err)
				if done += n; i < len(steps)-1 {
					must(t, w.Pause(t.Context()))
					continue
				}
				must(t, w.Cancel(t.Context()))
			}
			wantNothing(t, s)
		}
	},
	"a file is read from anywhere": func(t *testing.T, s blob.Storage) {
		content := random(3 * mib)
		must(t, s.Put(t.Context(), "/blobs/a", bytes.NewReader(content)))
		f, err := blob.OpenSeeker(t.Context(), s, "/blobs/a", int64(len(content)))
		must(t, err)
		defer f.Close()
		for _, at := range []int64{0, 100, 2 * mib, 5, int64(len(content)) - 3, int64(len(content))} {
			_, err := f.Seek(at, io.SeekStart)
			must(t, err)
			got, err := io.ReadAll(io.LimitReader(f, 10))
			if want := content[at:min(at+10, int64(len(content)))]; err != nil || !bytes.Equal(got, want) {
				t.Errorf("at %d: %x, %v; want %x", at, got, err, want)
			}
		}
		if end, err := f.Seek(-4, io.SeekEnd); err != nil || end != int64(len(content))-4 {
			t.Errorf("end = %d, %v", end, err)
		}
		if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, content[len(content)-4:]) {
			t.Errorf("the last bytes are %x, %v", got, err)
		}
		at, err := s.OpenAt(t.Context(), "/blobs/a", mib)
		must(t, err)
		defer at.Close()
		if got, err := io.ReadAll(at); err != nil || !bytes.Equal(got, content[mib:]) {
			t.Errorf("%d bytes from an offset, %v", len(got), err)
		}
	},
	"files are found and removed": func(t *testing.T, s blob.Storage) {
		for _, path := range []string{"/blobs/aa/1", "/blobs/aa/2", "/blobs/ab/1", "/blobs/abc", "/other/1"} {
			must(t, s.Put(t.Context(), path, strings.NewReader(path)))
		}
		names, err := s.Names(t.Context(), "/blobs")
		slices.Sort(names)
		if err != nil || !slices.Equal(names, []string{"aa", "ab", "abc"}) {
			t.Errorf("names = %v, %v", names, err)
		}
		walk := func() (found []string) {
			must(t, s.Walk(t.Context(), "/blobs", func(f blob.File) error {
				if f.Size != int64(len(f.Path)) || time.Since(f.ModTime) > time.Hour {
					t.Errorf("found %+v", f)
				}
				found = append(found, f.Path)
				return nil
			}))
			slices.Sort(found)
			return found
		}
		if got := walk(); !slices.Equal(got, []string{"/blobs/aa/1", "/blobs/aa/2", "/blobs/ab/1", "/blobs/abc"}) {
			t.Errorf("found %v", got)
		}
		must(t, s.Remove(t.Context(), "/blobs/aa/1"))
		must(t, s.RemoveAll(t.Context(), "/blobs/ab"))
		if got := walk(); !slices.Equal(got, []string{"/blobs/aa/2", "/blobs/abc"}) {
			t.Errorf("left are %v", got)
		}
		stop := fmt.Errorf("stop")
		if err := s.Walk(t.Context(), "/blobs", func(blob.File) error { return stop }); err != stop {
			t.Errorf("a walk ends with %v", err)
		}
	},
}

// failing is a reader whose Read returns an error.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, fmt.Errorf("it broke") }

func sum(all []int) (n int) {
	for _, m := range all {
		n += m
	}
	return n
}

// TestFolder checks the promises of a Storage for a folder.
func TestFolder(t *testing.T) {
	for name, promise := range promises {
		t.Run(name, func(t *testing.T) { promise(t, blob.NewFolder(filepath.Join(t.TempDir(), "new"))) })
	}
}

// TestS3 checks the promises of a Storage for a bucket, with and without a prefix.
func TestS3(t *testing.T) {
	server := blobtest.Start(t)
	n := 0
	for name, promise := range promises {
		n++
		server.Prefix = fmt.Sprintf("registry%d", n)
		s := server.Storage(t)
		t.Run(name, func(t *testing.T) { promise(t, s) })
	}
	empty := blobtest.Start(t)
	empty.Prefix = ""
	t.Run("without a prefix", func(t *testing.T) { promises["files are found and removed"](t, empty.Storage(t)) })
}
