// Package blob stores files: the bytes of blobs and of uploads, and back-ups. They are in a folder, or in a bucket of
// a service that speaks S3.
//
// A path begins with a slash. It is the path of a file below the folder, and the key of an object below the prefix of
// the bucket.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// A Storage stores files. Its methods are safe for concurrent use, but a path must have only one
// writer at a time.
type Storage interface {
	// Kind returns the kind of storage: file or s3.
	Kind() string

	// Size returns the size of a file, or -1 if there is none at path.
	Size(ctx context.Context, path string) (int64, error)

	// Open returns a reader of a file. If the file does not exist, the error satisfies Missing. The reader of a
	// folder is an *os.File, so that the kernel can send it.
	Open(ctx context.Context, path string) (io.ReadCloser, error)

	// OpenAt is Open for the bytes that start at an offset. The offset must be less than the size.
	OpenAt(ctx context.Context, path string, offset int64) (io.ReadCloser, error)

	// Put writes a file, replacing an existing one, and returns when it is durable.
	Put(ctx context.Context, path string, content io.Reader) error

	// Create returns a writer of a file, which replaces an existing one.
	Create(ctx context.Context, path string) (Writer, error)

	// Resume returns a writer that continues after a Pause. If the stored part is not exactly size bytes long, the
	// error satisfies Missing.
	Resume(ctx context.Context, path string, size int64) (Writer, error)

	// Remove removes a file, if it exists.
	Remove(ctx context.Context, path string) error

	// RemoveAll removes a folder with all files in it, if it exists.
	RemoveAll(ctx context.Context, path string) error

	// Discard removes a file, and the unfinished writes at its path.
	Discard(ctx context.Context, path string) error

	// Names returns the names of the files and folders in a folder, in any order. The folder need not exist.
	Names(ctx context.Context, dir string) ([]string, error)

	// Walk calls each for all files in a folder and below it, in any order. It may skip files that are written or
	// removed while it runs.
	Walk(ctx context.Context, dir string, each func(File) error) error

	// Unfinished calls each for writes that were not committed and that Walk does not find. ModTime is the time
	// at which the write began, and Size is not set. A server that was killed leaves unfinished writes, even at
	// the path of a complete file.
	Unfinished(ctx context.Context, dir string, each func(File) error) error

	// Abort removes the unfinished writes at a path, but not a complete file.
	Abort(ctx context.Context, path string) error

	// Address returns an address from which anybody can read a file for some minutes, or "" if there is none.
	Address(ctx context.Context, path string) (string, error)

	// MinChunk returns the number of bytes that should be written between two pauses, if a writer is paused often.
	MinChunk() int64
}

// A Writer writes a file. The last call is Pause, Commit or Cancel. If any other method returns an
// error, call Cancel.
type Writer interface {
	io.Writer

	// Pause returns when the written bytes are durable, so that Resume can continue.
	Pause(ctx context.Context) error

	// Commit returns when the file is complete, has its name, and is durable.
	Commit(ctx context.Context) error

	// Cancel removes the written bytes. It may be called after any error, and after a Commit that failed.
	Cancel(ctx context.Context) error
}

// A File is a file that Walk has found.
type File struct {
	Path    string
	Size    int64
	ModTime time.Time
}

// Missing reports whether err means that a file does not exist.
func Missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func missing(path string) error { return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist} }

// put implements Put.
func put(ctx context.Context, s Storage, path string, content io.Reader) error {
	w, err := s.Create(ctx, path)
	if err != nil {
		return err
	}
	if _, err = io.Copy(w, content); err == nil {
		err = w.Commit(ctx)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, w.Cancel(context.WithoutCancel(ctx))))
	}
	return nil
}

// OpenSeeker returns a reader of a file that can read from any position. For a folder it is an *os.File.
func OpenSeeker(ctx context.Context, s Storage, path string, size int64) (io.ReadSeekCloser, error) {
	body, err := s.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	if f, ok := body.(*os.File); ok {
		return f, nil
	}
	return &seeker{ctx: ctx, storage: s, path: path, size: size, body: body}, nil
}

// reopens is how many broken connections in a row a seeker replaces before it returns the error.
const reopens = 3

// A seeker reads a file from any position. It opens the file on the first Read after a Seek, because http.ServeContent
// seeks more often than it reads. If the connection breaks, it opens another.
type seeker struct {
	ctx     context.Context
	storage Storage
	path    string
	size    int64
	offset  int64
	body    io.ReadCloser
	broken  int // connections that broke since the last byte was read
}

// Read implements io.Reader.
func (s *seeker) Read(p []byte) (int, error) {
	for {
		if s.offset >= s.size {
			return 0, io.EOF
		}
		if len(p) == 0 {
			return 0, nil
		}
		n, err := s.read(p)
		s.offset += int64(n)
		if n > 0 {
			s.broken = 0
			return n, nil // the next call returns the error
		}
		if err == nil {
			continue
		}
		s.broken++
		if s.broken > reopens || s.ctx.Err() != nil || Missing(err) {
			return 0, fmt.Errorf("read %s: %w", s.path, err)
		}
		_ = s.Close() // this connection is broken
	}
}

// read reads from the current position. It returns an error if the file ends early.
func (s *seeker) read(p []byte) (int, error) {
	if s.body == nil {
		body, err := s.storage.OpenAt(s.ctx, s.path, s.offset)
		if err != nil {
			return 0, err
		}
		s.body = body
	}
	n, err := s.body.Read(p[:min(int64(len(p)), s.size-s.offset)])
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Seek implements io.Seeker.
func (s *seeker) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.offset
	case io.SeekEnd:
		offset += s.size
	}
	if offset < 0 {
		return s.offset, fs.ErrInvalid
	}
	if offset == s.offset {
		return offset, nil
	}
	err := s.Close()
	s.offset = offset
	return offset, err
}

// Close implements io.Closer.
func (s *seeker) Close() error {
	if s.body == nil {
		return nil
	}
	err := s.body.Close()
	s.body = nil
	return err
}
