package layer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
)

// A File is a regular file in an archive. It is valid during a visit.
type File struct {
	Path  string // path from the root, without a leading slash
	Mode  int64
	Size  int64
	Layer int // number of the layer that contains the file; the lowest is 0

	limits *Limits
	from   *fileReader
	space  *space
	head   []byte   // first bytes of the file, if Head was called
	data   []byte   // the whole file, if it was read into memory
	spool  bool     // whether the whole file is in the spool file of space
	named  *os.File // temporary copy that Name created
}

// A space contains one file at a time, in memory or in a spool file. It is reused for the next file, because allocating
// memory and creating files costs more than writing to them.
type space struct {
	memory []byte
	file   *os.File
}

func (s *space) bytes(n int64) []byte {
	if int64(cap(s.memory)) < n {
		s.memory = make([]byte, 1<<bits.Len64(uint64(n)))
	}
	return s.memory[:n]
}

// spool copies n bytes to the start of the spool file. It does not truncate the spool file.
func (s *space) spool(from io.Reader, n int64) error {
	if s.file == nil {
		file, err := os.CreateTemp("", "spool-")
		if err != nil {
			return err
		}
		s.file = file
		if err := os.Remove(file.Name()); err != nil {
			return err
		}
	}
	return copyAt(s.file, from, n, s.bytes(spoolBuffer))
}

func copyAt(to io.WriterAt, from io.Reader, n int64, buffer []byte) error {
	for offset := int64(0); offset < n; {
		piece := buffer[:min(n-offset, int64(len(buffer)))]
		if _, err := io.ReadFull(from, piece); err != nil {
			return err
		}
		if _, err := to.WriteAt(piece, offset); err != nil {
			return err
		}
		offset += int64(len(piece))
	}
	return nil
}

func (s *space) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}

// A TooLongError is the error for a file that is too long to be read.
type TooLongError struct{ Size, Limit int64 }

func (e *TooLongError) Error() string {
	return fmt.Sprintf("the file has %d bytes, more than %d", e.Size, e.Limit)
}

// Head returns the first 64 bytes of the file, or the whole file if it is shorter.
func (f *File) Head() []byte {
	if f.head == nil {
		f.head = make([]byte, min(f.Size, headOfFile))
		n, _ := io.ReadFull(f.from, f.head) // fileReader records an error
		f.head = f.head[:n]
	}
	return f.head
}

// rest returns the whole file as a stream, which can be read only once.
func (f *File) rest() io.Reader {
	return io.MultiReader(bytes.NewReader(f.head), io.LimitReader(f.from, f.Size-int64(len(f.head))))
}

// Bytes returns the content of the file, which is valid until the visit ends. It returns a TooLongError if the file has
// more than limit bytes.
func (f *File) Bytes(limit int64) ([]byte, error) {
	if f.data != nil {
		return f.data, nil
	}
	if f.Size > limit {
		return nil, &TooLongError{f.Size, limit}
	}
	data := f.space.bytes(f.Size)
	if _, err := io.ReadFull(f.rest(), data); err != nil {
		return nil, err
	}
	f.data = data
	return data, nil
}

// Content returns a reader for random access to the file: from memory if the file has at most Limits.InMemory bytes,
// and otherwise from a spool file. It returns a TooLongError if the file has more than Limits.Spool bytes.
func (f *File) Content() (*io.SectionReader, error) {
	if f.data == nil && !f.spool && f.Size > f.limits.InMemory {
		if f.Size > f.limits.Spool {
			return nil, &TooLongError{f.Size, f.limits.Spool}
		}
		if err := f.space.spool(f.rest(), f.Size); err != nil {
			return nil, err
		}
		f.spool = true
	}
	if f.spool {
		return io.NewSectionReader(f.space.file, 0, f.Size), nil
	}
	data, err := f.Bytes(f.limits.InMemory)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(bytes.NewReader(data), 0, f.Size), nil
}

// Name returns the name of a temporary copy of the file, for libraries that open files themselves. The copy is removed
// when the visit ends.
func (f *File) Name() (string, error) {
	if f.named != nil {
		return f.named.Name(), nil
	}
	content, err := f.Content()
	if err != nil {
		return "", err
	}
	if f.named, err = os.CreateTemp("", "named-"); err != nil {
		return "", err
	}
	_, err = io.Copy(f.named, content)
	return f.named.Name(), err
}

func (f *File) close() {
	if f.named != nil {
		_ = f.named.Close()
		_ = os.Remove(f.named.Name())
	}
}

// A fileReader records an error of the archive, to distinguish it from errors of the visitor.
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
