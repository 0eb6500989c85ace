// Package layer walks the layers of an image and keeps the values that a Visitor finds in their files. Each layer is a
// stream that is read once. The result is the state of the whole image, in which an upper layer replaces or removes
// files of the layers below it.
//
// Nothing is unpacked. Paths in an archive are keys of a tree in memory, and never names of files on this machine, so
// "..", absolute names, links and devices are harmless. Only the value that a Visitor returns for a file stays in
// memory.
package layer

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Limits limit all layers of one image together.
type Limits struct {
	Bytes    int64 // total bytes after decompression
	Entries  int   // total number of entries in the archives
	Kept     int   // maximum number of files with a value, symbolic links, and folders above these
	InMemory int64 // maximum size in bytes of a file that is held in memory; a longer file is spooled to disk
	Spool    int64 // maximum size in bytes of a file that is read
}

const (
	maxPath     = 4096 // maximum length of a path in bytes, as in Linux
	maxDepth    = 128  // maximum number of folders above a file
	linkDepth   = 4    // maximum number of folders above a symbolic link; other links are ignored
	maxHops     = 40   // maximum number of symbolic links that are followed for one path, as in Linux
	maxWindow   = 128 << 20
	whiteout    = ".wh."
	opaque      = ".wh..wh..opq"
	readBuffer  = 64 << 10
	spoolBuffer = 256 << 10
	headOfFile  = 64
)

// ErrLimit is wrapped by the error for an image that exceeds one of its Limits.
var ErrLimit = errors.New("over the limit")

// ErrFormat is wrapped by the error for a layer that cannot be read.
var ErrFormat = errors.New("not a readable archive")

// A Visitor reads files. T is the type of the values that it finds.
type Visitor[T any] interface {
	// Wants reports whether Visit should be called for a regular file.
	Wants(path string, mode, size int64) bool

	// WantsLink reports whether Links should return a symbolic link, however many folders are above it.
	WantsLink(path string) bool

	// Visit returns the value of a file, and whether there is a value.
	// before is the value of the file that this file replaces, or the zero value.
	// An error ends the walk.
	Visit(ctx context.Context, f *File, before T) (T, bool, error)
}

// A Stack is the state of an image after the layers added so far.
type Stack[T any] struct {
	limits  Limits
	visitor Visitor[T]
	below   *node[T] // merged state of the layers below the current one
	current *node[T] // content of the current layer
	layers  int
	records map[int]*record[T] // layers that may be repeated, by their position
	entries int
	bytes   int64
	kept    int
	space   space

	reads  map[int]map[string][]string // hard links by the layer and the path of a file that is read for them
	linked map[string]T                // values of files in the current layer that are read for hard links
	unread []HardLink
	links  []string // paths of symbolic links for which WantsLink is true
}

// A HardLink is a hard link that the visitor wants, to a file in the same layer whose own path it did not want. The
// file may precede the link in the archive, so it can only be read if the layers are read again.
type HardLink struct {
	Layer        int
	Path, Target string
}

// New returns a Stack without layers.
func New[T any](limits Limits, visitor Visitor[T]) *Stack[T] {
	return &Stack[T]{limits: limits, visitor: visitor, below: &node[T]{}, records: map[int]*record[T]{}}
}

// A record has the entries of a layer's archive and the values that the visitor found, so that the layer can be added
// again without reading it.
type record[T any] struct{ entries []entry[T] }

// An entry is an entry of an archive.
type entry[T any] struct {
	path  string // path in the archive, cleaned
	kind  byte
	mode  int64
	link  string   // target of a link
	paths []string // paths that get the value
	value T
	has   bool // whether the visitor found a value
}

// Record is Add for a layer that Repeat adds again.
func (s *Stack[T]) Record(ctx context.Context, blob io.Reader) error {
	s.records[s.layers] = &record[T]{}
	return s.Add(ctx, blob)
}

// Repeat adds the layer at a position again, which was added with Record. It returns an error that wraps ErrLimit if
// the entries of all layers are too many.
func (s *Stack[T]) Repeat(position int) error {
	s.current, s.linked = &node[T]{}, map[string]T{}
	for _, e := range s.records[position].entries {
		if err := s.count(); err != nil {
			return err
		}
		if err := s.put(&e, s.resolve(e.path), nil); err != nil {
			return err
		}
	}
	s.finish()
	return nil
}

// Read makes Add read the targets of hard links, which Unread returned when the same layers were read before.
func (s *Stack[T]) Read(links []HardLink) {
	s.reads = map[int]map[string][]string{}
	for _, l := range links {
		if s.reads[l.Layer] == nil {
			s.reads[l.Layer] = map[string][]string{}
		}
		s.reads[l.Layer][l.Target] = append(s.reads[l.Layer][l.Target], l.Path)
	}
}

// Unread returns the hard links whose targets were not read.
func (s *Stack[T]) Unread() []HardLink { return s.unread }

// Add adds a layer on top: a tar archive, uncompressed or compressed with gzip or zstd. Add detects the compression
// from the first bytes, because media types are not always right. It returns an error that wraps ErrLimit or
// ErrFormat, or the error of ctx or of the visitor.
func (s *Stack[T]) Add(ctx context.Context, blob io.Reader) error {
	plain, err := decompress(blob)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	defer plain.Close()
	s.current, s.linked = &node[T]{}, map[string]T{}
	archive := &meter{ctx: ctx, from: plain, count: &s.bytes, limit: s.limits.Bytes}
	if err := s.walk(ctx, tar.NewReader(archive)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, archive); err != nil { // reads to the end, because the checksum is verified there
		return broken(ctx, err)
	}
	s.finish()
	return nil
}

// finish merges the current layer into the layers below. A whiteout hides only files of lower layers, and may be
// anywhere in the archive. So the files of a layer are merged after all its whiteouts were applied.
func (s *Stack[T]) finish() {
	s.below.merge(s.current)
	s.current = nil
	s.layers++
}

// count counts an entry of an archive.
func (s *Stack[T]) count() error {
	if s.entries++; s.entries > s.limits.Entries {
		return fmt.Errorf("%w of %d entries", ErrLimit, s.limits.Entries)
	}
	return nil
}

// decompress returns the uncompressed archive in a blob.
func decompress(blob io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(blob, readBuffer)
	switch head, _ := buffered.Peek(4); {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(buffered)
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}),
		// The last case is a skippable frame of zstd.
		len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], []byte{0x2a, 0x4d, 0x18}):
		d, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(buffered), nil
}

// A meter is a reader that counts bytes, and fails if they exceed the limit or the context ends.
type meter struct {
	ctx   context.Context
	from  io.Reader
	count *int64
	limit int64
}

func (m *meter) Read(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := m.from.Read(p)
	if *m.count += int64(n); *m.count > m.limit {
		return n, fmt.Errorf("%w of %d bytes after decompression", ErrLimit, m.limit)
	}
	return n, err
}

func (s *Stack[T]) walk(ctx context.Context, archive *tar.Reader) error {
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return broken(ctx, err)
		}
		if err := s.count(); err != nil {
			return err
		}
		p, ok := clean(h.Name)
		if !ok {
			continue
		}
		e := entry[T]{path: p, kind: h.Typeflag, mode: h.Mode, link: h.Linkname}
		visit := func(p string, before T) error { return s.visit(ctx, archive, h, p, before, &e) }
		if err := s.put(&e, s.resolve(p), visit); err != nil {
			return broken(ctx, err)
		}
		if r := s.records[s.layers]; r != nil {
			r.entries = append(r.entries, e)
		}
	}
}

// broken returns the error for an archive that could not be read to its end.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, ErrLimit) || errors.Is(err, ErrFormat) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}

// clean returns the path of an entry from the root, without a leading slash. It returns false for the root itself, and
// for paths that no file system accepts.
func clean(name string) (string, bool) {
	if len(name) > maxPath || strings.IndexByte(name, 0) >= 0 {
		return "", false
	}
	p := path.Clean("/" + name)[1:]
	return p, p != "" && strings.Count(p, "/") <= maxDepth
}

// put adds an entry at p, which is its path without symbolic links. visit sets the value of a regular file, and is nil
// if the entry already has it. before is the value of the file that the entry replaces.
func (s *Stack[T]) put(e *entry[T], p string, visit func(p string, before T) error) error {
	dir, base := path.Split(p)
	if hidden, ok := strings.CutPrefix(base, whiteout); ok {
		switch {
		case base == opaque:
			s.below.empty(strings.TrimSuffix(dir, "/"))
		// Metadata of aufs and whiteouts without a valid name are ignored.
		case strings.HasPrefix(hidden, whiteout), hidden == "", hidden == ".", hidden == "..":
		default:
			s.below.remove(dir + hidden)
		}
		return nil
	}
	if e.kind == tar.TypeDir {
		s.below.clear(p)
		s.current.clear(p)
		return nil
	}
	before, _ := s.below.get(p)
	s.below.remove(p)   // if p was a folder, its content is removed, too
	s.current.remove(p) // if the archive has several entries with this path, the last one counts
	switch e.kind {
	case tar.TypeSymlink:
		wanted := s.visitor.WantsLink(p)
		if !wanted && strings.Count(p, "/") > linkDepth || len(e.link) > maxPath || e.link == "" {
			return nil
		}
		if wanted {
			s.links = append(s.links, p)
		}
		return s.keep(p, func(n *node[T]) { n.link = e.link })
	case tar.TypeLink:
		return s.hardLink(p, e)
	case tar.TypeReg, tar.TypeGNUSparse:
		if visit != nil {
			if err := visit(p, before); err != nil {
				return err
			}
		}
		return s.keepFile(p, e)
	}
	return nil // ignores devices and other special files
}

// hardLink gives the file at p the value of the file to which it links.
func (s *Stack[T]) hardLink(p string, e *entry[T]) error {
	target, ok := clean(e.link)
	if !ok {
		return nil
	}
	target = s.resolve(target)
	value, ok := s.current.get(target)
	if !ok && s.visitor.Wants(p, e.mode, 1) {
		value, ok = s.linked[target]
	}
	if !ok {
		value, ok = s.below.get(target)
	}
	if ok {
		return s.keep(p, func(n *node[T]) { n.value, n.has = value, true })
	}
	// The size of the target is unknown. A file that the visitor wanted under the name of the target has no value.
	if s.reads == nil && s.visitor.Wants(p, e.mode, 1) && !s.visitor.Wants(target, e.mode, 1) {
		if s.kept++; s.kept > s.limits.Kept {
			return fmt.Errorf("%w of %d files with packages", ErrLimit, s.limits.Kept)
		}
		s.unread = append(s.unread, HardLink{s.layers, p, target})
	}
	return nil
}

// keepFile gives the value of an entry, which is a regular file at p, to its paths.
func (s *Stack[T]) keepFile(p string, e *entry[T]) error {
	if e.has && p != e.paths[0] {
		s.linked[p] = e.value
	}
	for _, to := range e.paths {
		if err := s.keep(to, func(n *node[T]) { n.value, n.has = e.value, true }); err != nil {
			return err
		}
	}
	return nil
}

// visit sets the value of an entry that is a regular file, and the paths that get it: its own path, or the paths of
// hard links to it.
func (s *Stack[T]) visit(
	ctx context.Context, archive *tar.Reader, h *tar.Header, p string, before T, e *entry[T],
) error {
	paths := []string{p}
	if h.Size > 0 && !s.visitor.Wants(p, h.Mode, h.Size) {
		paths = s.reads[s.layers][p]
	}
	if h.Size <= 0 || len(paths) == 0 {
		return nil
	}
	from := &fileReader{from: archive}
	f := &File{Path: paths[0], Mode: h.Mode, Size: h.Size, Layer: s.layers, limits: &s.limits, from: from, space: &s.space}
	defer f.close()
	value, ok, err := s.visitor.Visit(ctx, f, before)
	if from.err != nil { // an error of the archive takes precedence over the visitor's result
		return from.err
	}
	if err != nil || !ok {
		return err
	}
	e.value, e.has, e.paths = value, true, paths
	return nil
}

// keep adds a node to the current layer.
func (s *Stack[T]) keep(p string, set func(*node[T])) error {
	n, added := s.current.make(p)
	if s.kept += added; s.kept > s.limits.Kept {
		return fmt.Errorf("%w of %d files with packages", ErrLimit, s.limits.Kept)
	}
	set(n)
	return nil
}

// resolve returns the path of p without symbolic links in the folders above it. If the links form a circle, it returns
// p unchanged.
func (s *Stack[T]) resolve(p string) string {
	resolved := p
	for range maxHops {
		next, moved := s.follow(resolved)
		if !moved {
			return resolved
		}
		if len(next) > maxPath || next == "" {
			return p
		}
		resolved = next
	}
	return p
}

// follow replaces the first symbolic link above p by its target.
func (s *Stack[T]) follow(p string) (string, bool) {
	current, below := s.current, s.below
	for start := 0; ; {
		end := strings.IndexByte(p[start:], '/')
		if end < 0 {
			return p, false
		}
		end += start
		current, below = current.child(p[start:end]), below.child(p[start:end])
		if current == nil && below == nil {
			return p, false
		}
		if target := linkTarget(current, below); target != "" {
			return strings.TrimPrefix(join(p[:start], target)+p[end:], "/"), true
		}
		start = end + 1
	}
}

// linkTarget returns the target of the symbolic link at a path. current and below are the nodes at this path in the
// current layer and in the layers below. The current layer takes precedence. It returns "" if neither node is a link.
func linkTarget[T any](current, below *node[T]) string {
	if current != nil && current.link != "" {
		return current.link
	}
	if below != nil {
		return below.link
	}
	return ""
}

// join returns the path to which a link in a folder points. The path never leaves the root.
func join(dir, target string) string {
	if !path.IsAbs(target) {
		target = dir + "/" + target
	}
	return path.Clean("/" + target)[1:]
}

// Get returns the value of the file at p. It follows symbolic links.
func (s *Stack[T]) Get(p string) (value T, ok bool) {
	if n := s.below.at(s.Follow(p)); n != nil && n.link == "" {
		return n.value, n.has
	}
	return value, false
}

// Follow returns the path to which p leads through symbolic links, or "" if they lead to the root or form a circle.
func (s *Stack[T]) Follow(p string) string {
	for range maxHops {
		p = s.resolve(p)
		n := s.below.at(p)
		if n == nil || n.link == "" {
			return p
		}
		if p = join(path.Dir("/" + p)[1:], n.link); p == "" {
			return ""
		}
	}
	return ""
}

// Links returns the paths of the symbolic links of the image for which WantsLink is true.
func (s *Stack[T]) Links() (paths []string) {
	for _, p := range s.links {
		if n := s.below.at(p); n != nil && n.link != "" {
			paths = append(paths, p)
		}
	}
	return paths
}

// Close releases the temporary file of the stack.
func (s *Stack[T]) Close() { s.space.close() }

// Each calls f for each file of the image that has a value, ordered by path.
func (s *Stack[T]) Each(f func(path string, value T)) { s.below.each("", f) }

// Bytes returns the number of bytes of the layers after decompression.
func (s *Stack[T]) Bytes() int64 { return s.bytes }

// Entries returns the number of entries of the archives.
func (s *Stack[T]) Entries() int { return s.entries }
