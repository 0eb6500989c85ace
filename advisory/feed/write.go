package feed

import (
	"io"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// A Format is one a Writer writes.
type Format string

// The formats there are. OSV carries everything and comes back the same; OpenVEX
// carries what was determined about products, secdb what fixed which apk package.
const (
	OSV     Format = "osv"
	OpenVEX Format = "openvex"
	SecDB   Format = "secdb"
)

// Options are what a document says about itself.
type Options struct {
	Author string    // of an OpenVEX document; empty, it is holdfast's
	ID     string    // of an OpenVEX document, an IRI; empty, it is made from Time
	Time   time.Time // of an OpenVEX document
	Zip    bool      // OSV: a file for each advisory in an archive, not a line of text

	// Of a secdb. Distribution is an ecosystem such as Alpine:v3.20, whose packages
	// alone are written; empty, all packages of apk are.
	Distribution, Repository, URLPrefix, APKURL string
	Architectures                               []string
}

// A Writer writes advisories one after the other.
type Writer struct{ to document }

// A document is one being written.
type document interface {
	write(resource.Advisory) error
	close() error
}

// NewWriter returns a Writer to w. It returns fault.InvalidArgument for a format
// there is not.
func NewWriter(w io.Writer, f Format, o Options) (*Writer, error) {
	switch {
	case f == OSV && o.Zip:
		return &Writer{newOSVArchive(w)}, nil
	case f == OSV:
		return &Writer{newOSVLines(w)}, nil
	case f == OpenVEX:
		return &Writer{newVEXDocument(w, o)}, nil
	case f == SecDB:
		return &Writer{newSecDBDocument(w, o)}, nil
	}
	return nil, fault.Field("format", "%q is none of osv, openvex and secdb", f)
}

// Write adds an advisory. What the format has no word for is left out.
func (w *Writer) Write(a resource.Advisory) error { return w.to.write(a) }

// Close writes what ends the document. It does not close what it is written to.
func (w *Writer) Close() error { return w.to.close() }
