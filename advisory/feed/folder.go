package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"strings"
)

// ReadFS yields the records of every file of a folder and of those below it, in
// the order of their names. Hidden ones, and files that cannot hold advisories by
// their names, are passed over; links are not followed.
func ReadFS(ctx context.Context, fsys fs.FS, lim Limits) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		f := newFeed(ctx, lim, yield)
		defer f.finish()
		err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
			switch {
			case f.stopped:
				return fs.SkipAll
			case f.ctx.Err() != nil:
				return f.ctx.Err()
			case err != nil:
				f.report(name, fmt.Errorf("cannot be read: %w", err))
			case strings.HasPrefix(d.Name(), ".") && name != ".":
				if d.IsDir() {
					return fs.SkipDir
				}
			case d.IsDir():
			case readable(name), isZip(name):
				return f.member(fsys, name, d)
			}
			return nil
		})
		if err != nil {
			f.report(".", err)
		}
	}
}

func isZip(name string) bool { return strings.EqualFold(path.Ext(name), ".zip") }

// member reads one file of a folder. Its archives are opened here, all others
// when their turn comes.
func (f *feed) member(fsys fs.FS, name string, d fs.DirEntry) error {
	if f.files++; f.files > f.limits.Files {
		f.report(name, errFiles)
		return fs.SkipAll
	}
	info, err := d.Info()
	switch {
	case err != nil:
		f.report(name, fmt.Errorf("cannot be read: %w", err))
	case !info.Mode().IsRegular():
		f.report(name, errors.New("is not a regular file"))
	case isZip(name) || info.Size() > batchBytes:
		f.large(fsys, name, info.Size())
	default:
		f.add(job{name: name, decode: f.decode, load: func(s *scratch) ([]byte, error) {
			return s.open(fsys, name, info.Size())
		}}, info.Size())
	}
	return nil
}

// large reads a file that need not fit in memory.
func (f *feed) large(fsys fs.FS, name string, size int64) {
	file, err := fsys.Open(name)
	if err != nil {
		f.report(name, fmt.Errorf("cannot be read: %w", err))
		return
	}
	defer func() { _ = file.Close() }()
	r, ok := file.(io.ReaderAt)
	if !ok {
		f.report(name, errors.New("cannot be read from the middle"))
		return
	}
	f.file(name, r, size)
	f.finish() // before it is closed
}

// open reads a whole file. It may have changed since its size was asked for; what
// is there now is read up to that size.
func (s *scratch) open(fsys fs.FS, name string, size int64) ([]byte, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer func() { _ = file.Close() }()
	text := room(&s.text, size)
	n, err := io.ReadFull(file, text)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return text[:n], nil
}
