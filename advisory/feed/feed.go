// Package feed reads advisories from the formats in which the world publishes
// them, and writes them.
//
// In: OSV (JSON or YAML), OpenVEX, Alpine-style secdb, and the YAML advisories
// of the distributions that grew from it; one document, many in a stream or an
// array, a zip, or a folder of any of these. Out: OSV, OpenVEX and secdb.
//
// A feed is somebody else's bytes. A record that makes no sense is reported by
// name and reason and the rest is read; whatever it holds, reading takes no
// more memory than a few records do, and ends.
package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/holdfast-dev/holdfast/resource"
)

// A Record is one record of a feed, or why it could not be read.
type Record struct {
	Advisory resource.Advisory
	Name     string // of its file, with #n for the n-th record of a file that has several
	Err      error  // a phrase for people, about the record; Advisory is then empty
	Offset   int64  // how many bytes of the feed have been read, compressed as they are
}

// Limits bound what a feed may take. A zero is a default that the public
// databases stay well below.
type Limits struct {
	Record int64 // bytes of one OSV record, or of one document of another format; 16 MiB
	Total  int64 // bytes of all of them, uncompressed; 16 GiB
	Files  int   // in an archive or a folder; 4 million
}

// maxYAML is how many bytes a YAML document may have, whatever the Limits: parsed,
// it takes up to a hundred times as much. Those of more than largeYAML are parsed
// one at a time.
const (
	maxYAML   = 2 << 20
	largeYAML = 64 << 10
)

func (l Limits) withDefaults() Limits {
	if l.Record <= 0 {
		l.Record = 16 << 20
	}
	if l.Total <= 0 {
		l.Total = 16 << 30
	}
	if l.Files <= 0 {
		l.Files = 4_000_000
	}
	return l
}

// Why a feed, or a record, was not read to its end.
var (
	errTooLarge = errors.New("is larger than a record may be")
	errTotal    = errors.New("holds more than a feed may: the rest was not read")
	errFiles    = errors.New("holds more files than a feed may")
	errEmpty    = errors.New("is empty")
)

// Read yields the records of one document or archive. What it is follows from
// its content; name is for the Records. What makes no sense as a whole is one
// Record with an error. The feed is read on several cores, and the records come
// in its order. If ctx ends, so does the sequence, with its error.
func Read(ctx context.Context, name string, r io.ReaderAt, size int64, lim Limits) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		f := newFeed(ctx, lim, yield)
		defer f.finish()
		f.file(name, r, size)
	}
}

// file reads one file of whatever kind.
func (f *feed) file(name string, r io.ReaderAt, size int64) {
	start := make([]byte, min(size, 512))
	if _, err := r.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		f.report(name, fmt.Errorf("cannot be read: %w", err))
		return
	}
	if bytes.HasPrefix(start, []byte("PK\x03\x04")) || bytes.HasPrefix(start, []byte("PK\x05\x06")) {
		f.archive(name, r, size)
		return
	}
	text := io.NewSectionReader(r, 0, size)
	if isJSON(start) {
		f.stream(name, text)
		return
	}
	f.document(name, text, size)
}

// isJSON tells JSON from YAML, of which it is a part, by its first character.
func isJSON(start []byte) bool {
	start = bytes.TrimLeft(bytes.TrimPrefix(start, []byte("\ufeff")), " \t\r\n")
	return len(start) == 0 || start[0] == '{' || start[0] == '['
}

// decode reads one document of any format but a zip.
func (f *feed) decode(name string, text []byte) []Record {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !isJSON(text) {
		if len(text) > largeYAML {
			f.oneByOne.Lock()
			defer f.oneByOne.Unlock()
		}
		return decodeYAML(name, text)
	}
	if a, err := readOSV(string(text)); err == nil { // as a rule, it is one record
		a.Source.Name = name
		return []Record{{Name: name, Advisory: a}}
	}
	var all []Record
	n := 0
	for value, err := range values(bytes.NewReader(text), int64(len(text))) {
		if err != nil {
			return append(all, Record{Name: numbered(name, n), Err: err})
		}
		all = append(all, decodeValue(numbered(name, n), name, string(value))...)
		n++
	}
	if n == 0 {
		return []Record{{Name: name, Err: errEmpty}}
	}
	return all
}

// numbered is the name of the record that comes after n others of its file.
func numbered(file string, n int) string {
	if n == 0 {
		return file
	}
	return fmt.Sprintf("%s#%d", file, n+1)
}

// decodeValue reads one JSON object of any format.
func decodeValue(name, file, text string) []Record {
	a, err := readOSV(text)
	switch {
	case errors.Is(err, errOpenVEX):
		return several(name, file, text, readOpenVEX)
	case errors.Is(err, errSecDB):
		return several(name, file, text, readSecDB)
	case err != nil:
		return []Record{{Name: name, Err: err}}
	}
	a.Source.Name = file
	return []Record{{Name: name, Advisory: a}}
}

// several reads a document that holds many records.
func several(name, file, text string, read func(string) ([]resource.Advisory, error)) []Record {
	advisories, err := read(text)
	if err != nil {
		return []Record{{Name: name, Err: err}}
	}
	all := make([]Record, len(advisories))
	for i, a := range advisories {
		a.Source.Name = file
		all[i] = Record{Name: numbered(name, i), Advisory: a}
	}
	return all
}
