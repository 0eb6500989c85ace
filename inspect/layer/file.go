package layer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// A File is a regular file of an archive, for as long as a Visitor looks at it.
type File struct {
	Path  string // from the root, without a slash at its start
	Mode  int64
	Size  int64
	Layer int // the number of its layer; the lowest is 0

	limits *Limits
	from   *fileReader
	head   []byte // bytes that were read already
	data   []byte // the whole file, if it was read into memory
	spool  *os.File
}

// A TooLongError is what a file is left out with that is too long to be read.
type TooLongError struct{ Size, Limit int64 }

func (e *TooLongError) Error() string {
	return fmt.Sprintf("the file has %d bytes, more than %d", e.Size, e.Limit)
}

// Head returns the first bytes of the file, 64 of them unless it is shorter.
func (f *File) Head() []byte {
	if f.head == nil {
		f.head = make([]byte, min(f.Size, headOfFile))
		n, _ := io.ReadFull(f.from, f.head) // fileReader keeps the error
		f.head = f.head[:n]
	}
	return f.head
}

// rest returns the whole file as a stream. It can be read once.
func (f *File) rest() io.Reader {
	return io.MultiReader(bytes.NewReader(f.head), io.LimitReader(f.from, f.Size-int64(len(f.head))))
}

// Bytes returns the content of a file of at most that many bytes, or a TooLongError.
func (f *File) Bytes(limit int64) ([]byte, error) {
	if f.data != nil {
		return f.data, nil
	}
	if f.Size > limit {
		return nil, &TooLongError{f.Size, limit}
	}
	data := make([]byte, f.Size)
	if _, err := io.ReadFull(f.rest(), data); err != nil {
		return nil, err
	}
	f.data = data
	return data, nil
}

// Content returns the file for reading at any place: from memory if it is short, and
// else from a spool file. It returns a TooLongError for a file that is too long.
func (f *File) Content() (*io.SectionReader, error) {
	if f.data == nil && f.Size > f.limits.InMemory {
		if err := f.spoolAll(); err != nil {
			return nil, err
		}
		return io.NewSectionReader(f.spool, 0, f.Size), nil
	}
	data, err := f.Bytes(f.limits.InMemory)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(bytes.NewReader(data), 0, f.Size), nil
}

// Name returns the name of a spool file with the content, for libraries that open files
// themselves. It is removed when the visit ends.
func (f *File) Name() (string, error) {
	if err := f.spoolAll(); err != nil {
		return "", err
	}
	return f.spool.Name(), nil
}

func (f *File) spoolAll() error {
	if f.spool != nil {
		return nil
	}
	if f.Size > f.limits.Spool {
		return &TooLongError{f.Size, f.limits.Spool}
	}
	spool, err := os.CreateTemp("", "spool-")
	if err != nil {
		return err
	}
	f.spool = spool
	from := f.rest()
	if f.data != nil {
		from = bytes.NewReader(f.data)
	}
	n, err := io.Copy(spool, from)
	if err == nil && n < f.Size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (f *File) close() {
	if f.spool != nil {
		_ = f.spool.Close()
		_ = os.Remove(f.spool.Name())
	}
}

// A fileReader remembers an error of the archive, which is none of the visitor's.
type fileReader struct {
	from io.Reader
	err  error
}

func (r *fileReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
