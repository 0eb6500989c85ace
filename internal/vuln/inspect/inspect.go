// Package inspect answers which packages are in an image.
//
// An image is written by strangers, so it is not read in the process that holds keys and
// the database. Image starts this program again as a child that has no environment, no
// open files but its pipes, no network, no file system but an empty folder, and little
// memory and time. It streams the layers to the child, and reads a bounded answer. What
// a hostile image can do is crash the child or have it lie about the image: then the
// image is NotUnderstood, or its packages are wrong, and nothing else suffers.
//
// In the child, layer/ walks the archives, and extract/ finds packages in files. Nothing
// of the image is run, unpacked or trusted.
//
// A program that calls Image begins its main with
//
//	if inspect.IsChild() {
//		inspect.Child()
//	}
//
// and so does the TestMain of a test that calls it.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/extract"
)

// Version is the version of everything that decides on a Result. It rises when an image
// could now have another Result, so that those with an older Version are to be read again.
const Version = 1

// A Layer is a layer of an image.
type Layer struct {
	MediaType string
	Digest    string // for messages

	// Open returns the blob. It is called once, and read to its end or until the image
	// is understood to be bad.
	Open func(context.Context) (io.ReadCloser, error)
}

// A Package is a package that an image has.
//
// A package that Owner is set of is part of a package of the distribution, which has
// fixed it in its own way: advisories for the ecosystem do not tell whether it is
// affected, those for the owner do.
type Package = extract.Package

// A Distribution is what os-release says of an image; it is empty if there is none.
type Distribution = extract.Distribution

// A Result is what an image has.
type Result struct {
	Distribution Distribution
	Packages     []Package // by ecosystem, name, version and location
	Warnings     []string  // what could not be understood of it; the rest is complete. At most 100.
	Version      int       // of the extractors: Version, when it was made
	Document     *Document `json:",omitempty"` // of an SBOM

	Processor   time.Duration // that the child has used
	MemoryBytes int64         // that the child had at most, on Linux
}

// NotUnderstood is the error for an image that cannot be indexed, now or later.
type NotUnderstood struct {
	Reason string // may be shown to people who may see the image
	Detail string // for the log
}

func (e *NotUnderstood) Error() string { return "not understood: " + e.Reason }

// Limits are what an image may cost. A field that is 0 has its default.
type Limits struct {
	Bytes       int64 // of all layers after decompression; 32 GiB
	Entries     int   // of all archives; 2,000,000
	Layers      int   // 500
	Packages    int   // 50,000
	FileBytes   int64 // of the longest file that is read; 512 MiB, in a temporary folder if it is long
	MemoryBytes int64 // of the child; 512 MiB
	Seconds     int   // of processor time; 600. Ten times as many may pass on the clock.
}

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

// layerTypes are the media types of layers that are file systems. Those that need not be
// distributed are here if somebody has pushed them after all.
var layerTypes = []string{
	"application/vnd.oci.image.layer.v1.tar",
	"application/vnd.oci.image.layer.nondistributable.v1.tar",
	"application/vnd.docker.image.rootfs.diff.tar",
	"application/vnd.docker.image.rootfs.foreign.diff.tar",
}

// IsLayer reports whether layers of a media type can be read.
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

// clockFactor is how much longer than its processor time a child may take.
const clockFactor = 10

var errSlow = errors.New("the child took too long")

// Image returns which packages the image of these layers has, the lowest first.
//
// It returns a *NotUnderstood error if the image is at fault, which is the same whenever
// it is tried; any other error is one of reading a layer or of this machine.
func Image(ctx context.Context, layers []Layer, limits Limits) (Result, error) {
	limits = limits.withDefaults()
	if !ready {
		return Result{}, errors.New("this program does not begin with IsChild")
	}
	if len(layers) > limits.Layers {
		return Result{}, &NotUnderstood{Reason: fmt.Sprintf("it has %d layers, more than %d", len(layers), limits.Layers)}
	}
	for i, l := range layers {
		if !IsLayer(l.MediaType) {
			return Result{}, &NotUnderstood{
				Reason: fmt.Sprintf("layer %d has the media type %.100q, which is not that of a file system", i+1, l.MediaType),
			}
		}
	}
	limit := time.Duration(limits.Seconds) * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, clockFactor*limit, errSlow)
	defer cancel()
	return runChild(ctx, layers, limits, "")
}
