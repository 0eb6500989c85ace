package inspect_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// readIn reads an image of a tenant in a pool. It calls reading while the child waits for a layer.
func readIn(
	t *testing.T, p *inspect.Pool, tenant string, limits inspect.Limits, reading func(), blobs ...[]byte,
) (inspect.Result, error) {
	t.Helper()
	image := layers(blobs...)
	if open := image[0].Open; reading != nil {
		image[0].Open = func(ctx context.Context) (io.ReadCloser, error) {
			reading()
			return open(ctx)
		}
	}
	return p.Image(t.Context(), tenant, image, limits)
}

func newPool(t *testing.T, keep int) *inspect.Pool {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	p := &inspect.Pool{Keep: keep}
	t.Cleanup(func() {
		p.Close()
		if left, err := os.ReadDir(os.TempDir()); len(left) > 0 || err != nil {
			t.Errorf("left in the temporary folder: %v, %v", left, err)
		}
	})
	return p
}

// TestPool checks that a child reads further images of its tenant only, and that a new child gives the same results.
func TestPool(t *testing.T) {
	p := newPool(t, 2)
	image := zipped(archive(file{name: lodash, content: node("lodash", "1.0.0")}))
	want, err := inspect.Image(t.Context(), layers(image), inspect.Limits{})
	must(err)
	read := func(tenant string, limits inspect.Limits) int {
		t.Helper()
		got, err := readIn(t, p, tenant, limits, nil, image)
		if err != nil || !slices.Equal(got.Packages, want.Packages) || len(got.Packages) == 0 {
			t.Fatalf("packages = %v, %v", got.Packages, err)
		}
		idle := p.Idle()
		return idle[len(idle)-1]
	}
	first := read("a", inspect.Limits{})
	for range 3 {
		if read("a", inspect.Limits{}) != first {
			t.Error("a second image of the tenant has another child")
		}
	}
	for what, other := range map[string]int{
		"another tenant": read("b", inspect.Limits{}), "other limits": read("a", inspect.Limits{Packages: 7}),
	} {
		if other == first {
			t.Errorf("%s: the same child", what)
		}
	}
	if idle := p.Idle(); len(idle) != 2 || slices.Contains(idle, first) {
		t.Errorf("children without work: %v; the first was %d", idle, first)
	}
}

// TestPoolDrops checks after which images a child is not reused.
func TestPoolDrops(t *testing.T) {
	good := archive(file{name: lodash, content: node("lodash", "1.0.0")})
	for name, tt := range map[string]struct {
		blob   []byte
		limits inspect.Limits
	}{
		"an invalid archive": {good[:520], inspect.Limits{}},
		"over a limit":       {good, inspect.Limits{Bytes: 100}},
		"much processor time": {zipped(archive(file{name: "content", content: random(40 << 20)})),
			inspect.Limits{Seconds: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, 2)
			_, err := readIn(t, p, "a", tt.limits, nil, tt.blob)
			if reason := (*inspect.NotUnderstood)(nil); err != nil && !errors.As(err, &reason) {
				t.Fatal(err)
			}
			if idle := p.Idle(); len(idle) > 0 {
				t.Errorf("the child is kept: %v, %v", idle, err)
			}
		})
	}
	t.Run("many images", func(t *testing.T) {
		p := newPool(t, 1)
		pids := map[int]int{}
		for range inspect.MaxServed + 1 {
			_, err := readIn(t, p, "a", inspect.Limits{}, nil, good)
			must(err)
			for _, pid := range p.Idle() {
				pids[pid]++
			}
		}
		if len(pids) != 2 {
			t.Errorf("children = %v", pids)
		}
	})
}

// TestPoolFolder checks that an image does not find files that an earlier image has left.
func TestPoolFolder(t *testing.T) {
	p := newPool(t, 1)
	image := archive(file{name: lodash, content: node("lodash", "1.0.0")})
	_, err := readIn(t, p, "a", inspect.Limits{}, nil, image)
	must(err)
	folder := p.Folders()[0]
	_, err = readIn(t, p, "a", inspect.Limits{}, func() {
		must(os.MkdirAll(filepath.Join(folder, "a", "b"), 0o700))
		must(os.WriteFile(filepath.Join(folder, "a", "b", "c"), nil, 0o600))
	}, image)
	must(err)
	if left, err := os.ReadDir(folder); len(left) > 0 || err != nil || !slices.Equal(p.Folders(), []string{folder}) {
		t.Errorf("in the folder of the child: %v, %v", left, err)
	}
}

// TestPoolCrash checks that an image does not suffer from an earlier image in its child: if a reused child ends, a new
// one reads the image. If a new child ends, the image is the cause.
func TestPoolCrash(t *testing.T) {
	p := newPool(t, 1)
	image := archive(file{name: lodash, content: node("lodash", "1.0.0")})
	_, err := readIn(t, p, "a", inspect.Limits{}, nil, image)
	must(err)
	pid := p.Idle()[0]
	crashes := 0
	r, err := readIn(t, p, "a", inspect.Limits{}, func() {
		if crashes++; crashes == 1 {
			must(syscall.Kill(pid, syscall.SIGKILL))
		}
	}, image)
	if err != nil || len(r.Packages) != 1 || crashes != 2 {
		t.Errorf("after %d attempts: %v, %v", crashes, r.Packages, err)
	}
	crash := archive(file{name: "var/lib/rpm/rpmdb.sqlite", content: endlessSqlite(t.Context(), t.TempDir())})
	err = unlessBusy(func() error {
		_, err := readIn(t, p, "b", inspect.Limits{Seconds: 1}, nil, crash)
		return err
	})
	if reason := (*inspect.NotUnderstood)(nil); !errors.As(err, &reason) {
		t.Errorf("error = %v", err)
	}
}

// random returns bytes that take long to decompress.
func random(size int) string {
	const words = "abcdefgh"
	r := rand.New(rand.NewChaCha8([32]byte{}))
	b := make([]byte, size)
	for i := range b {
		b[i] = words[r.IntN(len(words))]
	}
	return string(b)
}
