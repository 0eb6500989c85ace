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

// A Storage has files. All methods may be called at the same time, but a path has one writer only.
type Storage interface {
	// Kind returns what the storage is: file or s3.
	Kind() string

	// Size returns the size of a file, or -1 if there is none at path.
	Size(ctx context.Context, path string) (int64, error)

	// Open returns a reader of a file. If there is none, Missing reports that of the error. The reader of a folder is
	// an *os.File, so that the kernel can send it.
	Open(ctx context.Context, path string) (io.ReadCloser, error)

	// OpenAt is Open for the bytes from an offset on. There must be some.
	OpenAt(ctx context.Context, path string, offset int64) (io.ReadCloser, error)

	// Put writes a file, in place of one that is there, and returns when it is durable.
	Put(ctx context.Context, path string, content io.Reader) error

	// Create returns a writer of a file, in place of one that is there.
	Create(ctx context.Context, path string) (Writer, error)

	// Resume returns a writer that goes on after a Pause. If what is there is not the first size bytes of a file,
	// Missing reports that of the error.
	Resume(ctx context.Context, path string, size int64) (Writer, error)

	// Remove removes a file, if it is there.
	Remove(ctx context.Context, path string) error

	// RemoveAll removes a folder with all files in it, if it is there.
	RemoveAll(ctx context.Context, path string) error

	// Discard removes a file, and what was written to one that was not committed.
	Discard(ctx context.Context, path string) error

	// Names returns the names of the files and folders in a folder, which need not be there, in any order.
	Names(ctx context.Context, dir string) ([]string, error)

	// Walk calls each for all files in a folder and below it, in any order. Files that are written or removed
	// meanwhile may be left out.
	Walk(ctx context.Context, dir string, each func(File) error) error

	// Unfinished calls each for what was written and not committed, if Walk does not find it. ModTime is when that was
	// begun, and Size is not known. A server that was killed leaves it, also at the path of a file.
	Unfinished(ctx context.Context, dir string, each func(File) error) error

	// Abort removes what Unfinished finds at a path, and no file.
	Abort(ctx context.Context, path string) error

	// Address returns an address from which anybody can read a file for some minutes, or "" if there is none.
	Address(ctx context.Context, path string) (string, error)

	// MinChunk returns how many bytes should be written between two pauses, if a writer is paused often.
	MinChunk() int64
}

// A Writer writes a file. It ends with a Pause, a Commit or a Cancel. After an error of any other method, call Cancel.
type Writer interface {
	io.Writer

	// Pause returns when what was written is durable, so that Resume can go on.
	Pause(ctx context.Context) error

	// Commit returns when the file is complete, has its name, and is durable.
	Commit(ctx context.Context) error

	// Cancel removes what was written. It may be called after any error, and after a Commit that failed.
	Cancel(ctx context.Context) error
}

// A File is a file that Walk has found.
type File struct {
	Path    string
	Size    int64
	ModTime time.Time
}

// Missing reports whether err says that there is no such file.
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

// OpenSeeker returns a reader of a file that can begin anywhere. For a folder it is an *os.File.
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

// reopens is how often in a row a seeker goes on where a connection has broken.
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
	broken  int // connections since the last byte
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
			return n, nil // if there was an error, the next one will tell
		}
		if err == nil {
			continue
		}
		s.broken++
		if s.broken > reopens || s.ctx.Err() != nil || Missing(err) {
			return 0, fmt.Errorf("read %s: %w", s.path, err)
		}
		_ = s.Close() // it is broken
	}
}

// read reads from where the seeker is. An early end is an error.
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
