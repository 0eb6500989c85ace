package format

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

// ReadFS yields the records of every file in a directory tree, ordered by name. It skips hidden files and files with
// unknown extensions, and does not follow links.
func ReadFS(ctx context.Context, fsys fs.FS, lim Limits) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		p := newPipeline(ctx, lim, yield)
		defer p.finish()
		err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
			switch {
			case p.stopped:
				return fs.SkipAll
			case p.ctx.Err() != nil:
				return p.ctx.Err()
			case err != nil:
				p.report(name, fmt.Errorf("cannot be read: %w", err))
			case strings.HasPrefix(d.Name(), ".") && name != ".":
				if d.IsDir() {
					return fs.SkipDir
				}
			case d.IsDir():
			case readable(name), isZip(name):
				return p.member(fsys, name, d)
			}
			return nil
		})
		if err != nil {
			p.report(".", err)
		}
	}
}

func isZip(name string) bool { return strings.EqualFold(path.Ext(name), ".zip") }

// member reads a file in a directory. It reads archives and large files immediately, and other files when they are
// decoded.
func (p *pipeline) member(fsys fs.FS, name string, d fs.DirEntry) error {
	if p.files++; p.files > p.limits.Files {
		p.report(name, errFiles)
		return fs.SkipAll
	}
	info, err := d.Info()
	switch {
	case err != nil:
		p.report(name, fmt.Errorf("cannot be read: %w", err))
	case !info.Mode().IsRegular():
		p.report(name, errors.New("is not a regular file"))
	case isZip(name) || info.Size() > batchBytes:
		p.large(fsys, name, info.Size())
	default:
		p.add(job{name: name, decode: p.decode, load: func(s *scratch) ([]byte, error) {
			return s.open(fsys, name, info.Size())
		}}, info.Size())
	}
	return nil
}

// large reads a file without loading it into memory.
func (p *pipeline) large(fsys fs.FS, name string, size int64) {
	file, err := fsys.Open(name)
	if err != nil {
		p.report(name, fmt.Errorf("cannot be read: %w", err))
		return
	}
	defer func() { _ = file.Close() }()
	r, ok := file.(io.ReaderAt)
	if !ok {
		p.report(name, errors.New("cannot be read at an offset"))
		return
	}
	p.file(name, r, size)
	p.finish() // waits for the decoders, because the file is closed when this function returns
}

// open reads up to size bytes of a file. It returns fewer bytes if the file has shrunk since its size was read.
func (s *scratch) open(fsys fs.FS, name string, size int64) ([]byte, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer func() { _ = file.Close() }()
	text := grow(&s.text, size)
	n, err := io.ReadFull(file, text)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return text[:n], nil
}
