package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/platform/blob"
)

// A Place stores the files of a back-up. A blob.Storage, which is a folder or a bucket, is a Place.
type Place interface {
	Size(ctx context.Context, path string) (int64, error) // -1 if there is no such file
	Open(ctx context.Context, path string) (io.ReadCloser, error)
	Put(ctx context.Context, path string, content io.Reader) error
}

var _ Place = blob.Storage(nil)

// IsArchive reports whether the name of a back-up is the name of a tar archive.
func IsArchive(name string) bool { return strings.HasSuffix(name, ".tar") }

// An Archive is a Place in one tar file. It is open either for writing or for reading. Concurrent calls of Put write
// their files one after the other.
type Archive struct {
	file *os.File

	mu    sync.Mutex
	out   *tar.Writer
	files map[string]span
}

// A span is the position of the content of a file in an archive, in bytes.
type span struct{ offset, size int64 }

// Create creates an archive. It fails if there is a file with that name.
func Create(name string) (*Archive, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &Archive{file: f, out: tar.NewWriter(f), files: map[string]span{}}, nil
}

// OpenArchive opens an archive for reading.
func OpenArchive(name string) (*Archive, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	a := &Archive{file: f, files: map[string]span{}}
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, errors.Join(err, f.Close()))
		}
		offset, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		a.files["/"+h.Name] = span{offset, h.Size}
	}
}

// Size implements Place.
func (a *Archive) Size(_ context.Context, path string) (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.files[path]; ok {
		return s.size, nil
	}
	return -1, nil
}

// Open implements Place.
func (a *Archive) Open(_ context.Context, path string) (io.ReadCloser, error) {
	s, ok := a.files[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(a.file, s.offset, s.size)), nil
}

// Put implements Place. It first writes the content to a temporary file, because the header, which comes before the
// content, contains its size.
func (a *Archive) Put(ctx context.Context, path string, content io.Reader) error {
	spool, err := os.CreateTemp(filepath.Dir(a.file.Name()), ".holdfast-backup-*")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(spool.Close(), os.Remove(spool.Name())) }()
	size, err := io.Copy(spool, content)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	err = a.out.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Size: size, Mode: 0o600,
		Format: tar.FormatPAX})
	if err == nil {
		_, err = io.Copy(a.out, spool)
	}
	if err == nil {
		err = a.out.Flush()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	a.files[path] = span{size: size}
	return ctx.Err()
}

// Close completes an archive and syncs it to disk.
func (a *Archive) Close() error {
	var err error
	if a.out != nil {
		err = errors.Join(a.out.Close(), a.file.Sync())
	}
	return errors.Join(err, a.file.Close())
}
