// Package format reads and writes advisories in the formats in which they are published.
//
// It reads OSV (JSON or YAML), OpenVEX, Alpine's secdb, and the YAML advisories of Wolfi and similar distributions. The
// input is a document, a stream or an array of documents, a zip archive, or a directory of these. It writes OSV,
// OpenVEX and secdb. Lists of exploited vulnerabilities, which are not advisories, have separate functions
// (exploit.go).
//
// The input is not trusted. An invalid record is reported by its name and a reason, and reading continues with the next
// record. For any input, reading ends, and needs only the memory for a few records.
package format

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A Record is an advisory, or the reason why it could not be read.
type Record struct {
	Advisory vuln.Advisory
	Name     string // file name, with the suffix #n for record n of a file with several records
	// Err is the reason why the record could not be read, or nil. It is a phrase that is shown to users.
	Err    error
	Offset int64 // number of input bytes read so far, before decompression
}

// Limits limit the input. Zero means the default, which is far above the size of the public databases.
type Limits struct {
	Record int64 // maximum bytes of one OSV record, or of one document in another format; default 16 MiB
	Total  int64 // maximum bytes of all records, uncompressed; default 16 GiB
	Files  int   // maximum number of files in an archive or a directory; default 4 million
}

// maxYAML is the maximum number of bytes of a YAML document, whatever the Limits are, because parsing needs up to a
// hundred times as much memory. Documents larger than largeYAML are parsed one at a time.
const (
	maxYAML   = 2 << 20
	largeYAML = 64 << 10
)

func (l Limits) withDefaults() Limits {
	return Limits{
		Record: cmp.Or(l.Record, 16<<20), Total: cmp.Or(l.Total, 16<<30), Files: cmp.Or(l.Files, 4_000_000),
	}
}

// Reasons why the input, or a record, was not read completely.
var (
	errTooLarge = errors.New("is larger than the limit for a record")
	errTotal    = errors.New("exceeds the size limit of a feed; the rest was not read")
	errFiles    = errors.New("exceeds the limit of files in a feed; the rest was not read")
	errEmpty    = errors.New("is empty")
)

// Read yields the records of a document or archive, in order. It detects the format from the content; name is only used
// in Records. Input that cannot be parsed yields one Record with an error. Records are decoded in parallel. If ctx
// ends, the last Record contains the error of ctx.
func Read(ctx context.Context, name string, r io.ReaderAt, size int64, lim Limits) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		p := newPipeline(ctx, lim, yield)
		defer p.finish()
		p.file(name, r, size)
	}
}

// file reads a file in any format.
func (p *pipeline) file(name string, r io.ReaderAt, size int64) {
	start := make([]byte, min(size, 512))
	if _, err := r.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		p.report(name, fmt.Errorf("cannot be read: %w", err))
		return
	}
	if bytes.HasPrefix(start, []byte("PK\x03\x04")) || bytes.HasPrefix(start, []byte("PK\x05\x06")) {
		p.archive(name, r, size)
		return
	}
	text := io.NewSectionReader(r, 0, size)
	if isJSON(start) {
		p.stream(name, text)
		return
	}
	p.document(name, text, size)
}

// isJSON distinguishes JSON from YAML by the first character.
func isJSON(start []byte) bool {
	start = bytes.TrimLeft(bytes.TrimPrefix(start, []byte("\ufeff")), " \t\r\n")
	return len(start) == 0 || start[0] == '{' || start[0] == '['
}

// decode decodes a document in any format except a zip archive.
func (p *pipeline) decode(name string, text []byte) []Record {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !isJSON(text) {
		if len(text) > largeYAML {
			p.largeYAMLMu.Lock()
			defer p.largeYAMLMu.Unlock()
		}
		return decodeYAML(name, text)
	}
	if a, err := readOSV(string(text)); err == nil { // in most files there is only one record
		a.Source.Name = name
		return []Record{{Name: name, Advisory: a}}
	}
	var records []Record
	n := 0
	for value, err := range values(bytes.NewReader(text), int64(len(text))) {
		if err != nil {
			return append(records, Record{Name: recordName(name, n), Err: err})
		}
		records = append(records, decodeValue(recordName(name, n), name, string(value))...)
		n++
	}
	if n == 0 {
		return []Record{{Name: name, Err: errEmpty}}
	}
	return records
}

// recordName returns the name of record n of a file, counted from 0.
func recordName(file string, n int) string {
	if n == 0 {
		return file
	}
	return fmt.Sprintf("%s#%d", file, n+1)
}

// decodeValue decodes a JSON object in any format.
func decodeValue(name, file, text string) []Record {
	a, err := readOSV(text)
	switch {
	case errors.Is(err, errOpenVEX):
		return decodeMany(name, file, text, readOpenVEX)
	case errors.Is(err, errSecDB):
		return decodeMany(name, file, text, readSecDB)
	case err != nil:
		return []Record{{Name: name, Err: err}}
	}
	a.Source.Name = file
	return []Record{{Name: name, Advisory: a}}
}

// decodeMany decodes a document with many records.
func decodeMany(name, file, text string, read func(string) ([]vuln.Advisory, error)) []Record {
	advisories, err := read(text)
	if err != nil {
		return []Record{{Name: name, Err: err}}
	}
	records := make([]Record, len(advisories))
	for i, a := range advisories {
		a.Source.Name = file
		records[i] = Record{Name: recordName(name, i), Advisory: a}
	}
	return records
}
