package format

import (
	"archive/zip"
	"io"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// A Format is a format that can be written.
type Format string

// The formats. An advisory in OSV can be read back without loss. OpenVEX contains
// only the determinations about products, and secdb only the fixes of apk packages.
const (
	OSV     Format = "osv"
	OpenVEX Format = "openvex"
	SecDB   Format = "secdb"
)

// Options are the metadata of a document.
type Options struct {
	Author string    // author in an OpenVEX document; "" means holdfast
	ID     string    // IRI of an OpenVEX document; if "", it is derived from Time
	Time   time.Time // timestamp in an OpenVEX document
	// Tooling says how the statements of an OpenVEX document were found. If it is "", the document does not say it.
	Tooling string
	// If Zip is true, OSV output is a zip archive with one file per advisory. Otherwise it is text with one advisory
	// per line.
	Zip bool

	// Options of a secdb. Only packages of Distribution, an ecosystem such as Alpine:v3.20, are written. If it is "",
	// all apk packages are written.
	Distribution, Repository, URLPrefix, APKURL string
	Architectures                               []string
}

// A Writer writes a document.
type Writer interface {
	// Write adds an advisory. It omits data that the format cannot represent.
	Write(vuln.Advisory) error

	// Close completes the document. It does not close the underlying writer.
	Close() error
}

// NewWriter returns a Writer to w. It returns fault.InvalidArgument for an unknown format.
func NewWriter(w io.Writer, f Format, o Options) (Writer, error) {
	switch {
	case f == OSV && o.Zip:
		return &osvArchive{zip.NewWriter(w)}, nil
	case f == OSV:
		return newOSVLines(w), nil
	case f == OpenVEX:
		return newVEXDocument(w, o), nil
	case f == SecDB:
		return &secDBWriter{to: w, options: o, fixes: map[string]map[string][]string{}}, nil
	}
	return nil, fault.Field("format", "%q is unknown; must be osv, openvex or secdb", f)
}
