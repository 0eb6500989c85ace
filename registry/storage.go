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

	"github.com/holdfast-dev/holdfast/trace"
)

// A Storage stores the bytes of uploads and blobs. Every upload has its own path,
// so that deleting a blob never deletes the bytes of a new push of it. An upload
// becomes a blob without being moved, because object stores can only copy.
type Storage struct {
	driver driver.StorageDriver
	kind   string   // file or s3
	root   string   // of the filesystem driver, whose directories we must sync
	synced sync.Map // directories whose own names are known to be on disk
}

// Filesystem returns a Storage in the directory root.
func Filesystem(root string) *Storage {
	const threads = 100 // concurrent system calls
	d := filesystem.New(filesystem.DriverParameters{RootDirectory: root, MaxThreads: threads})
	return &Storage{driver: d, kind: "file", root: root}
}

// A Bucket is a bucket of an object store.
type Bucket struct {
	Name      string
	Region    string
	Endpoint  string // such as http://127.0.0.1:7070; "" means that of the region
	Prefix    string // of the keys
	AccessKey string // "" means that of the environment or the machine
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
	return &Storage{driver: d, kind: "s3"}, nil
}

// span starts the span of an operation.
func (s *Storage) span(ctx context.Context, operation string) *trace.Span {
	span := trace.Leaf(ctx, operation)
	span.Set("holdfast.storage", s.kind)
	return span
}

// pathOf returns the path of an upload, which is also that of its blob.
func pathOf(id string) string { return "/blobs/" + id[:2] + "/" + id }

// syncName makes the directory entry of a committed upload durable.
func (s *Storage) syncName(id string) error { return s.syncNames(path.Dir(pathOf(id))) }

// syncNames makes the entries of a directory durable.
func (s *Storage) syncNames(dir string) error {
	if s.root == "" {
		return nil
	}
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

// discard deletes the bytes of an upload. In an object store, uncommitted bytes can
// only be deleted through a writer.
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
	span := s.span(ctx, "delete blob")
	err := s.driver.Delete(ctx, path)
	span.End(err)
	if err != nil && !isMissing(err) {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

func isMissing(err error) bool {
	_, ok := errors.AsType[driver.PathNotFoundError](err)
	return ok
}

// A blobReader reads a blob from any position. It opens the blob on the first Read after a Seek, so that
// http.ServeContent can serve ranges from a driver without seek.
type blobReader struct {
	ctx    context.Context
	driver driver.StorageDriver
	path   string
	size   int64
	offset int64
	body   io.ReadCloser
}

// open returns a reader of the bytes at path. If the driver returns an *os.File, so
// does open, so that the kernel can send it.
func (s *Storage) open(ctx context.Context, path string, size int64) (io.ReadSeekCloser, error) {
	span := s.span(ctx, "open blob")
	body, err := s.driver.Reader(ctx, path, 0)
	span.End(err)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	if f, ok := body.(*os.File); ok {
		return f, nil
	}
	return &blobReader{ctx: ctx, driver: s.driver, path: path, size: size, body: body}, nil
}

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

func (b *blobReader) Close() error {
	if b.body == nil {
		return nil
	}
	err := b.body.Close()
	b.body = nil
	return err
}
