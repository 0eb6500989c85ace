package format

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"math"
	"path"
	"strings"
	"unicode/utf8"
)

// This file reads archives without archive/zip, because archive/zip keeps the central directory in memory, with about
// 400 bytes for each of a million entries. A pipeline needs every entry only once, in order.

var errZip = errors.New("is a damaged zip archive")

// The signatures and the minimum sizes of the parts of an archive.
const (
	zipDirectorySign = 0x02014b50
	zipDirectorySize = 46
	zipLocalSign     = 0x04034b50
	zipLocalSize     = 30
	zipEndSign       = 0x06054b50
	zipEndSize       = 22
	zip64LocatorSign = 0x07064b50
	zip64LocatorSize = 20
	zip64EndSign     = 0x06064b50
	zip64EndSize     = 56
	zip64Extra       = 1
)

// Limits on the unpacked size of an archive. Advisories are compressed to about a tenth. An archive with a much
// higher ratio is a zip bomb, in which entries usually share the same packed bytes.
const (
	maxRatio    = 100
	anyUnpacked = 64 << 20 // unpacked bytes that every archive may have, whatever its ratio is
)

var errRatio = errors.New("unpacks to more than a hundred times its size; the rest was not read")

// archive reads the entries of a zip archive.
func (p *pipeline) archive(name string, r io.ReaderAt, size int64) {
	read, unpacked := int64(0), int64(0)
	for e, err := range zipEntries(r, size) {
		if err = cmp.Or(err, p.ctx.Err()); err != nil {
			p.report(name, err)
			return
		}
		read = max(read, e.offset+e.packed)
		if strings.HasSuffix(e.name, "/") {
			continue
		}
		if e.size <= p.limits.Record { // a larger entry is an error, so it is never unpacked
			unpacked += e.size
		}
		if unpacked > anyUnpacked+maxRatio*size {
			p.report(name, errRatio)
			return
		}
		if p.files++; p.files > p.limits.Files {
			p.report(name, errFiles)
			return
		}
		if !p.entry(r, e, min(read, size)) {
			return
		}
	}
}

// entry reads an entry if it may contain advisories. It returns false if the pipeline has stopped yielding records. It
// refuses names that are not plain relative paths. Names are never used as paths, but such an entry is unlikely to be
// an advisory.
func (p *pipeline) entry(r io.ReaderAt, e zipEntry, offset int64) bool {
	odd := func(c rune) bool { return c < ' ' || c == '\\' }
	switch {
	case e.name == "" || !utf8.ValidString(e.name) || !fs.ValidPath(e.name) || strings.ContainsFunc(e.name, odd):
		p.report(fmt.Sprintf("%q", e.name), errors.New("is not a plain relative path"))
	case e.special:
		p.report(e.name, errors.New("is not a regular file"))
	case !readable(e.name):
	case e.packed > p.limits.Record:
		p.report(e.name, errTooLarge)
	default:
		return p.add(job{name: e.name, offset: offset, decode: p.decode, load: func(s *scratch) ([]byte, error) {
			return s.unpack(r, e)
		}}, e.size)
	}
	return !p.stopped
}

// readable reports whether a file in a directory or an archive may contain
// advisories. Other files, such as licenses, are skipped.
func readable(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".json", ".jsonl", ".ndjson", ".yaml", ".yml":
		return true
	}
	return false
}

// A zipEntry is an entry of the central directory of an archive.
type zipEntry struct {
	name         string
	offset       int64 // offset of the entry's local header
	packed, size int64
	crc          uint32
	method       uint16
	encrypted    bool
	special      bool // whether the entry is a symbolic link or a device
}

// zipEntries yields the entries of the central directory.
func zipEntries(r io.ReaderAt, size int64) iter.Seq2[zipEntry, error] {
	return func(yield func(zipEntry, error) bool) {
		offset, length, err := findDirectory(r, size)
		if err != nil {
			yield(zipEntry{}, err)
			return
		}
		for in := bufio.NewReaderSize(io.NewSectionReader(r, offset, length), 64<<10); ; {
			e, err := readEntry(in)
			if errors.Is(err, io.EOF) || !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// findDirectory returns the position and the length of the central directory.
func findDirectory(r io.ReaderAt, size int64) (offset, length int64, err error) {
	tail := make([]byte, min(size, zipEndSize+math.MaxUint16))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	endOffset := bytes.LastIndex(tail, binary.LittleEndian.AppendUint32(nil, zipEndSign))
	if endOffset < 0 || len(tail)-endOffset < zipEndSize {
		return 0, 0, errZip
	}
	end := tail[endOffset:]
	length, offset = int64(binary.LittleEndian.Uint32(end[12:])), int64(binary.LittleEndian.Uint32(end[16:]))
	if length == math.MaxUint32 || offset == math.MaxUint32 || binary.LittleEndian.Uint16(end[10:]) == math.MaxUint16 {
		if o, l, ok := findDirectory64(r, size-int64(len(tail))+int64(endOffset)-zip64LocatorSize); ok {
			offset, length = o, l
		}
	}
	if offset < 0 || length < 0 || offset > size || length > size-offset {
		return 0, 0, errZip
	}
	return offset, length, nil
}

// findDirectory64 is findDirectory for an archive in the Zip64 format. ok is false if there is no Zip64 locator at
// locatorOffset.
func findDirectory64(r io.ReaderAt, locatorOffset int64) (offset, length int64, ok bool) {
	var locator [zip64LocatorSize]byte
	_, err := r.ReadAt(locator[:], locatorOffset)
	if err != nil || binary.LittleEndian.Uint32(locator[:]) != zip64LocatorSign {
		return 0, 0, false
	}
	var end [zip64EndSize]byte
	_, err = r.ReadAt(end[:], int64(binary.LittleEndian.Uint64(locator[8:])))
	if err != nil || binary.LittleEndian.Uint32(end[:]) != zip64EndSign {
		return 0, 0, false
	}
	return int64(binary.LittleEndian.Uint64(end[48:])), int64(binary.LittleEndian.Uint64(end[40:])), true
}

// readEntry reads an entry of the central directory. It returns io.EOF after the last entry.
func readEntry(in *bufio.Reader) (zipEntry, error) {
	h, err := in.Peek(zipDirectorySize)
	if len(h) == 0 && errors.Is(err, io.EOF) {
		return zipEntry{}, io.EOF
	}
	if err != nil || binary.LittleEndian.Uint32(h) != zipDirectorySign {
		return zipEntry{}, errZip
	}
	e := zipEntry{
		encrypted: h[8]&1 != 0,
		method:    binary.LittleEndian.Uint16(h[10:]),
		crc:       binary.LittleEndian.Uint32(h[16:]),
		packed:    int64(binary.LittleEndian.Uint32(h[20:])),
		size:      int64(binary.LittleEndian.Uint32(h[24:])),
		offset:    int64(binary.LittleEndian.Uint32(h[42:])),
	}
	const unix, kind, regular = 3, 0xf000, 0x8000
	if mode := binary.LittleEndian.Uint16(h[40:]) & kind; h[5] == unix && mode != 0 && mode != regular {
		e.special = true
	}
	length := func(offset int) int { return int(binary.LittleEndian.Uint16(h[offset:])) }
	n, extra, comment := length(28), length(30), length(32)
	text := make([]byte, n+extra)
	_, skipped := in.Discard(zipDirectorySize)
	_, read := io.ReadFull(in, text)
	_, commented := in.Discard(comment)
	if skipped != nil || read != nil || commented != nil {
		return zipEntry{}, errZip
	}
	e.name = string(text[:n])
	e.widen(text[n:])
	if e.packed < 0 || e.size < 0 || e.offset < 0 {
		return zipEntry{}, errZip
	}
	return e, nil
}

// widen sets the values that do not fit in 32 bits from the extra fields.
func (e *zipEntry) widen(extra []byte) {
	for len(extra) >= 4 {
		id, n := binary.LittleEndian.Uint16(extra), int(binary.LittleEndian.Uint16(extra[2:]))
		extra = extra[4:]
		if n > len(extra) {
			return
		}
		field := extra[:n]
		extra = extra[n:]
		if id != zip64Extra {
			continue
		}
		for _, v := range []*int64{&e.size, &e.packed, &e.offset} {
			if *v == math.MaxUint32 && len(field) >= 8 {
				*v, field = int64(binary.LittleEndian.Uint64(field)), field[8:]
			}
		}
	}
}

// A scratch contains buffers that are reused for one file after the other. A returned slice is valid until the next
// call.
type scratch struct {
	packed, text []byte
	in           bytes.Reader
	inflate      io.ReadCloser
}

// grow returns the first n bytes of buf. It replaces buf by a larger buffer if necessary.
func grow(buf *[]byte, n int64) []byte {
	if int64(cap(*buf)) < n {
		*buf = make([]byte, n+n/4)
	}
	return (*buf)[:n]
}

// unpack reads the content of an entry. It returns an error if the size or the checksum differs from the central
// directory.
func (s *scratch) unpack(r io.ReaderAt, e zipEntry) ([]byte, error) {
	packed, err := s.load(r, e)
	if err != nil {
		return nil, err
	}
	text := packed
	switch {
	case e.encrypted:
		return nil, errors.New("is encrypted")
	case e.method == 8:
		if text, err = s.deflated(packed, e.size); err != nil {
			return nil, err
		}
	case e.method != 0:
		return nil, fmt.Errorf("is packed with an unknown method (%d)", e.method)
	case e.packed != e.size:
		return nil, errZip
	}
	if crc32.ChecksumIEEE(text) != e.crc {
		return nil, errors.New("has a checksum that differs from its archive")
	}
	return text, nil
}

// load reads the packed bytes of an entry. It guesses the length of the local header,
// so that one read usually suffices.
func (s *scratch) load(r io.ReaderAt, e zipEntry) ([]byte, error) {
	guess := zipLocalSize + int64(len(e.name)) + 64
	buf := grow(&s.packed, guess+e.packed)
	n, err := r.ReadAt(buf, e.offset)
	if buf = buf[:n]; err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n < zipLocalSize || binary.LittleEndian.Uint32(buf) != zipLocalSign {
		return nil, errZip
	}
	header := zipLocalSize + int64(binary.LittleEndian.Uint16(buf[26:])) + int64(binary.LittleEndian.Uint16(buf[28:]))
	if header+e.packed <= int64(n) {
		return buf[header : header+e.packed], nil
	}
	buf = grow(&s.packed, e.packed)
	if n, _ := r.ReadAt(buf, e.offset+header); int64(n) < e.packed {
		return nil, errZip
	}
	return buf, nil
}

func (s *scratch) deflated(packed []byte, size int64) ([]byte, error) {
	s.in.Reset(packed)
	if s.inflate == nil {
		s.inflate = flate.NewReader(&s.in)
	} else if err := s.inflate.(flate.Resetter).Reset(&s.in, nil); err != nil {
		return nil, err
	}
	text := grow(&s.text, size+1) // one byte longer, to detect content that is larger than size
	n, err := io.ReadFull(s.inflate, text)
	if int64(n) != size || !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, errors.New("has a size that differs from its archive")
	}
	return text[:n], nil
}
