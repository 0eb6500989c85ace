// Package inspect finds the packages in an image.
//
// Images are untrusted, so they are not read in the process that holds keys and the database. Image starts this program
// again as a child. The child has no environment, no open files except its pipes, no network, no file system except an
// empty folder, and limited memory and time. Image streams the layers to the child, and reads an answer of bounded
// size. A hostile image can crash the child, or make it lie about the image. Then the image is NotUnderstood, or its
// packages are wrong, but nothing else is affected.
//
// In the child, layer/ walks the archives, and extract/ finds packages in files. Nothing
// in the image is executed, unpacked or trusted.
//
// A program that calls Image begins its main with
//
//	if inspect.IsChild() {
//		inspect.Child()
//	}
//
// The TestMain of a test that calls Image begins in the same way.
package inspect

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/extract"
)

// Version is the version of the code that determines a Result. It is increased when an image may get a different
// Result, so that images with an older Version are read again.
const Version = 4

// A Layer is a layer of an image.
type Layer struct {
	MediaType string
	Digest    string // digest of the layer, used only in messages

	// Open returns the blob. It may be called several times. The blob is read to its end, or until the image is found to
	// be invalid.
	Open func(context.Context) (io.ReadCloser, error)
}

// A Package is a package in an image.
//
// A package with an Owner is part of a package of the distribution. The distribution may have fixed it without changing
// its version. So advisories about the owner show whether it is affected, and advisories about the package's own
// ecosystem do not.
type Package = extract.Package

// A Distribution is the content of os-release in an image. It is empty if the image has no os-release.
type Distribution = extract.Distribution

// A Result is the result of inspecting an image.
type Result struct {
	Distribution Distribution
	Packages     []Package // ordered by ecosystem, name, version and location
	// Warnings are about files that could not be read, at most 100. The packages in other files are complete.
	Warnings []string
	Version  int       // value of the constant Version when the result was made
	Document *Document `json:",omitempty"` // set if the result comes from an SBOM

	Layers      []LayerCost   // cost of each different layer that was read, in the order of the layers
	Processor   time.Duration // processor time that the child used
	MemoryBytes int64         // peak memory of the child; set only on Linux
}

// A LayerCost is the cost of reading a layer. The child reports how the cost is divided among the layers. A hostile
// image can falsify that, so it must only be used for the tenant that has pushed the image.
type LayerCost struct {
	Layer     int           // position of the layer in the image
	Bytes     int64         // bytes after decompression
	Processor time.Duration // processor time; the sum over all layers is at most the time that the child really used
}

// NotUnderstood is the error for an image that cannot be read. A retry has the same result.
type NotUnderstood struct {
	Reason string // reason that may be shown to users who may see the image
	Detail string // details for the log

	Layers    []LayerCost   // cost of the layers that were read, of the last one at least this
	Processor time.Duration // processor time that the child used

	crashed bool // whether the child ended without a valid answer
}

func (e *NotUnderstood) Error() string { return "not understood: " + e.Reason }

// Limits limit the cost of reading an image. If a field is 0, its default is used.
type Limits struct {
	Bytes    int64 // total bytes of all layers after decompression; default 32 GiB
	Entries  int   // total entries of all archives; default 2,000,000
	Layers   int   // maximum number of layers; default 500
	Packages int   // maximum number of packages; default 50,000
	// FileBytes is the maximum size of a file that is read; default 512 MiB. Long files are in a temporary folder.
	FileBytes   int64
	MemoryBytes int64 // maximum memory of the child; default 512 MiB
	Seconds     int   // maximum processor time; default 600. The elapsed time may be ten times as long.
}

// DefaultLimits returns the limits that Image uses if it gets none.
func DefaultLimits() Limits { return Limits{}.withDefaults() }

func (l Limits) withDefaults() Limits {
	setDefault(&l.Bytes, 32<<30)
	setDefault(&l.Entries, 2_000_000)
	setDefault(&l.Layers, 500)
	setDefault(&l.Packages, 50_000)
	setDefault(&l.FileBytes, 512<<20)
	setDefault(&l.MemoryBytes, 512<<20)
	setDefault(&l.Seconds, 600)
	return l
}

func setDefault[T int | int64](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// layerTypes are the media types of layers that are file systems. They include the non-distributable types, because
// such layers can be pushed, too.
var layerTypes = []string{
	"application/vnd.oci.image.layer.v1.tar",
	"application/vnd.oci.image.layer.nondistributable.v1.tar",
	"application/vnd.docker.image.rootfs.diff.tar",
	"application/vnd.docker.image.rootfs.foreign.diff.tar",
}

// IsLayer reports whether Image can read layers that have this media type.
func IsLayer(mediaType string) bool {
	base, _, _ := strings.Cut(mediaType, ";")
	base = strings.TrimSpace(base)
	for _, compression := range []string{"+gzip", "+zstd", ".gzip", ".zstd"} {
		if plain, ok := strings.CutSuffix(base, compression); ok {
			base = plain
			break
		}
	}
	return slices.Contains(layerTypes, base)
}

// clockFactor is the ratio between the elapsed time and the processor time that a child may take.
const clockFactor = 10

var (
	errSlow     = errors.New("the child took too long")
	errStarved  = errors.New("the child hardly got processor time")
	errBusy     = errors.New("the machine is too busy to read the image in time")
	errNotReady = errors.New("the main function of this program does not call inspect.IsChild first")
)

// Image calls Pool.Image with a pool that keeps no children.
func Image(ctx context.Context, layers []Layer, limits Limits) (Result, error) {
	return new(Pool).Image(ctx, "", layers, limits)
}
