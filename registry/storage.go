package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sync"

	"github.com/distribution/distribution/v3/registry/storage/driver"
	"github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	s3 "github.com/distribution/distribution/v3/registry/storage/driver/s3-aws"
)

// A Storage keeps bytes: of uploads, and of the blobs they become in their
// place. Every upload has a path of its own, so that what is deleted is never
// what was pushed again a moment ago; and a blob is never moved, which an
// object store could only do by copying it.
type Storage struct {
	driver driver.StorageDriver
	root   string   // of the filesystem driver, whose folders are ours to sync
	synced sync.Map // folders whose own names are known to be on disk
}

// Filesystem returns a Storage in the folder root.
func Filesystem(root string) *Storage {
	const threads = 100 // at once in the system's calls
	return &Storage{driver: filesystem.New(filesystem.DriverParameters{RootDirectory: root, MaxThreads: threads}), root: root}
}

// A Bucket is where an object store keeps blobs.
type Bucket struct {
	Name      string
	Region    string
	Endpoint  string // "" for the region's own; else an address such as http://127.0.0.1:7070
	Prefix    string // of the keys
	AccessKey string // "" for those of the environment or the machine
	SecretKey string
}

// S3 returns a Storage in a bucket of a service that speaks S3.
func S3(ctx context.Context, b Bucket) (*Storage, error) {
	d, err := s3.FromParameters(ctx, map[string]any{
		"bucket": b.Name, "region": b.Region, "regionendpoint": b.Endpoint, "rootdirectory": b.Prefix,
		"accesskey": b.AccessKey, "secretkey": b.SecretKey, "forcepathstyle": b.Endpoint != "",
		"secure": true, "encrypt": false, "skipverify": false,
	})
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", b.Name, err)
	}
	return &Storage{driver: d}, nil
}

// pathOf is where the bytes of an upload are, also as a blob.
func pathOf(id string) string { return "/blobs/" + id[:2] + "/" + id }

// writer opens an upload for writing after its first size bytes.
func (s *Storage) writer(ctx context.Context, id string, size int64) (driver.FileWriter, error) {
	w, err := s.driver.Writer(ctx, pathOf(id), size > 0)
	if err != nil {
		return nil, fmt.Errorf("open upload: %w", err)
	}
	return w, nil
}

// settle makes the name of a committed upload as durable as its bytes.
func (s *Storage) settle(id string) error {
	if s.root == "" {
		return nil
	}
	dir := path.Dir(pathOf(id))
	if err := s.syncDir(dir); err != nil {
		return err
	}
	if _, ok := s.synced.Load(dir); ok {
		return nil
	}
	for up := dir; up != "/"; up = path.Dir(up) {
		if err := s.syncDir(path.Dir(up)); err != nil {
			return err
		}
	}
	s.synced.Store(dir, true)
	return nil
}

func (s *Storage) syncDir(dir string) error {
	f, err := os.Open(filepath.Join(s.root, dir))
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// discard removes the bytes of an upload. Those of one that is not committed
// can only be reached through a writer in an object store.
func (s *Storage) discard(ctx context.Context, id string) error {
	if err := s.remove(ctx, pathOf(id)); err != nil || s.root != "" {
		return err
	}
	w, err := s.driver.Writer(ctx, pathOf(id), true)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("discard upload: %w", err)
	}
	return w.Cancel(ctx)
}

func (s *Storage) remove(ctx context.Context, path string) error {
	if err := s.driver.Delete(ctx, path); err != nil && !isMissing(err) {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

func isMissing(err error) bool {
	_, ok := errors.AsType[driver.PathNotFoundError](err)
	return ok
}

// walk calls f with the files there are.
func (s *Storage) walk(ctx context.Context, f func(driver.FileInfo) error) error {
	err := s.driver.Walk(ctx, "/blobs", func(info driver.FileInfo) error {
		if info.IsDir() {
			return nil
		}
		return f(info)
	})
	if isMissing(err) {
		return nil
	}
	return err
}

// A blobReader reads stored bytes from any position. It opens them on the first
// Read after a Seek, which is all that http.ServeContent needs to serve ranges
// from a store that has no seek.
type blobReader struct {
	ctx    context.Context
	driver driver.StorageDriver
	path   string
	size   int64
	offset int64
	body   io.ReadCloser
}

// open returns the bytes at path. Where the driver gives a file it is returned
// as such, so that the kernel can send it.
func (s *Storage) open(ctx context.Context, path string, size int64) (io.ReadSeekCloser, error) {
	body, err := s.driver.Reader(ctx, path, 0)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	if f, ok := body.(*os.File); ok {
		return f, nil
	}
	return &blobReader{ctx: ctx, driver: s.driver, path: path, size: size, body: body}, nil
}

// Read implements io.Reader.
func (b *blobReader) Read(p []byte) (int, error) {
	if b.offset >= b.size {
		return 0, io.EOF
	}
	if b.body == nil {
		body, err := b.driver.Reader(b.ctx, b.path, b.offset)
		if err != nil {
			return 0, fmt.Errorf("open blob: %w", err)
		}
		b.body = body
	}
	n, err := b.body.Read(p)
	b.offset += int64(n)
	return n, err
}

// Seek implements io.Seeker.
func (b *blobReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.offset
	case io.SeekEnd:
		offset += b.size
	}
	if offset == b.offset {
		return offset, nil
	}
	err := b.Close()
	b.offset = offset
	return offset, err
}

// Close implements io.Closer.
func (b *blobReader) Close() error {
	if b.body == nil {
		return nil
	}
	err := b.body.Close()
	b.body = nil
	return err
}
