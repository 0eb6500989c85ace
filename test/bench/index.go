package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"go/build"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

const (
	indexBytes  = 200e6 // of an image, compressed
	indexTries  = 3
	indexRatio  = 1.2
	indexMemory = 128e6
)

// errFull ends the making of an image that is long enough.
var errFull = errors.New("the image is long enough")

// indexing measures what it costs to find the packages of an image, against unpacking and
// walking the same layer: processor time of this process and of the child, and the memory
// of the child. The image has files of this machine. No database is involved.
func indexing(ctx context.Context, m *measurement) {
	if m.engine.name() != "sqlite" {
		return
	}
	name := filepath.Join(m.folder, "layer.tar.gz")
	m.say("making an image of %.0f MB", indexBytes/1e6)
	check(writeImage(name))
	image := []inspect.Layer{{MediaType: "application/vnd.oci.image.layer.v1.tar+gzip", Digest: "sha256:bench",
		Open: func(context.Context) (io.ReadCloser, error) { return os.Open(name) }}}
	empty := must(inspect.Image(ctx, nil, inspect.Limits{}))
	m.note("index: of an image without layers: %s, %s", brief(empty.Processor), megabytes(float64(empty.MemoryBytes)))
	var ours, base []time.Duration
	var memory []float64
	for range indexTries {
		before := processorTime()
		result := must(inspect.Image(ctx, image, inspect.Limits{}))
		ours = append(ours, result.Processor+processorTime()-before)
		memory = append(memory, float64(result.MemoryBytes))
		before = processorTime()
		check(walkImage(name))
		base = append(base, processorTime()-before)
		m.say("index: %d packages, %d warnings", len(result.Packages), len(result.Warnings))
	}
	m.slower("index: an image of 200 MB, processor time", newPair(median(ours), median(base)), indexRatio)
	m.under("index: memory of the child", median(memory), indexMemory, megabytes)
}

// walkImage does what nobody who reads a layer can do without.
func walkImage(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	plain, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for archive := tar.NewReader(plain); ; {
		if _, err := archive.Next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// writeImage writes a layer with the files of this machine that an image would have.
func writeImage(name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	packed := gzip.NewWriter(f)
	w := tar.NewWriter(packed)
	for _, folder := range []string{"/etc/os-release", "/var/lib/dpkg", "/usr/bin", build.Default.GOROOT, "/usr/share",
		"/usr/lib"} {
		if err := addFolder(w, f, folder); errors.Is(err, errFull) {
			break
		} else if err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), packed.Close())
}

// addFolder adds all that it may read, until the image is long enough.
func addFolder(w *tar.Writer, f *os.File, folder string) error {
	return filepath.WalkDir(folder, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if at, err := f.Seek(0, io.SeekCurrent); err != nil || at > indexBytes {
			return errors.Join(err, errFull)
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		h := &tar.Header{Name: p[1:], Typeflag: tar.TypeReg, Mode: int64(info.Mode().Perm()), Size: int64(len(content))}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = io.Copy(w, bytes.NewReader(content))
		return err
	})
}
