package registry

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Manifest is a manifest in a repo.
type Manifest struct {
	Digest       string
	MediaType    string
	Size         int64
	Subject      string // digest of the manifest to which this one is attached, or ""
	ArtifactType string // artifactType of the manifest, or else the media type of its config
	Annotations  string // JSON object, or ""
	PushTime     time.Time
	Body         []byte
	Needs        []Need
	About        []string // digests of the images that the attestations of an index describe
}

// Runs reports whether a client may run the content of a manifest. Clients guess missing and unusual media types, so
// everything runs except an artifact of a known type, a manifest without layers, and an index. An index that contains
// the bytes of a manifest runs, too, because clients do not request that manifest.
func (m Manifest) Runs() bool {
	var doc content
	if json.Unmarshal(m.Body, &doc) != nil || doc.FSLayers != nil {
		return true
	}
	if doc.Config == nil && doc.Layers == nil {
		return slices.ContainsFunc(doc.Manifests, func(d descriptor) bool { return len(d.Data) > 0 })
	}
	return m.MediaType != ImageManifests[0] || !doc.isArtifact()
}

// content has the fields of a manifest that decide whether clients run it.
type content struct {
	Config    *descriptor
	Layers    []descriptor
	FSLayers  []json.RawMessage // layers in Docker's first format, which has no configuration
	Manifests []descriptor
}

type descriptor struct {
	MediaType string
	Data      []byte
}

// isArtifact reports whether the configuration of an OCI manifest has the type of a known artifact, and no client
// unpacks or runs one of its layers. The layers matter because containerd does not look at the type of the
// configuration when it runs an image, and unpacks layers if one of them is the configuration of an image.
// The content of the configuration does not count here; see images.Reader.DescribesImage.
func (c content) isArtifact() bool {
	return c.Config != nil && slices.Contains(artifactConfigs, c.Config.MediaType) &&
		!slices.ContainsFunc(c.Layers, func(d descriptor) bool {
			mediaType := strings.ToLower(strings.TrimSpace(d.MediaType))
			return strings.Contains(mediaType, "wasm") || slices.ContainsFunc(runnableLayers, func(prefix string) bool {
				return strings.HasPrefix(mediaType, prefix)
			})
		})
}

var (
	// artifactConfigs are the media types of the configurations of artifacts that no client runs.
	artifactConfigs = []string{
		"application/vnd.oci.empty.v1+json",               // SBOMs, bundles and other artifacts with an artifactType
		"application/vnd.unknown.config.v1+json",          // the same, by old versions of oras
		"application/vnd.cncf.helm.config.v1+json",        // Helm charts
		"application/vnd.cncf.notary.signature",           // signatures of notation
		"application/vnd.dev.cosign.artifact.sig.v1+json", // signatures of cosign with a subject
		"application/vnd.dev.cosign.artifact.sbom.v1+json",
		"application/vnd.cncf.flux.config.v1+json",            // sources of Flux
		"application/vnd.cncf.openpolicyagent.config.v1+json", // bundles of Open Policy Agent
	}

	// runnableLayers begin the media types of layers that clients unpack or run, of image configurations among layers,
	// and of the images of Singularity. WebAssembly has several more types.
	runnableLayers = []string{"application/vnd.oci.image.", "application/vnd.docker.", "application/vnd.sylabs.sif."}
)

// IsImage reports whether a manifest has the media types of an image and no subject. The result is also true for
// attestations that have these media types.
func (m Manifest) IsImage() bool {
	return m.Subject == "" && slices.Contains(ImageManifests, m.MediaType) && slices.Contains(ImageConfigs, m.ArtifactType)
}

// The media types of image manifests and image configurations.
var (
	ImageManifests = []string{"application/vnd.oci.image.manifest.v1+json",
		"application/vnd.docker.distribution.manifest.v2+json"}
	ImageConfigs = []string{"application/vnd.oci.image.config.v1+json",
		"application/vnd.docker.container.image.v1+json"}
)

// A Need is a blob or another manifest to which a manifest refers.
type Need struct {
	Digest   string
	Manifest bool // whether the content is a manifest; otherwise it is a blob
	Optional bool // whether it may be missing: it is non-distributable, or the registry accepts sparse images
}

// A Blob is a blob in the storage.
type Blob struct {
	Digest string
	Size   int64
	Path   string
	Rotten bool // the bytes are missing or damaged; only some methods of the store set this field
}

// An Upload is a blob that is still being uploaded. Its first Size bytes are stored, and State is the state of their
// hash.
type Upload struct {
	ID        string
	Group     resource.UID // group of the repo; the repo may not exist yet
	Repo      string       // name of the repo in the group
	Algorithm string
	Size      int64
	State     []byte
}

// An Image lists the variants of an image, one for each platform.
type Image struct {
	Digest    string    `json:"digest"`
	MediaType string    `json:"mediaType"`
	Variants  []Variant `json:"variants"`
}

// A Variant is an image for one platform.
type Variant struct {
	Digest       string `json:"digest"`
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant,omitempty"`
	Size         int64  `json:"size"` // bytes of the layers and the configuration
	Layers       int    `json:"layers"`
	Config       []byte `json:"-"` // configuration of the image in JSON; nil if there is none

	Stack []Layer `json:"-"` // layers, the lowest first
}

// A Layer is a layer of an image, as its manifest lists it.
type Layer struct {
	Digest    string
	MediaType string
	Size      int64
}

// Platform returns the platform of a variant, such as linux/arm64/v8.
func (v Variant) Platform() string {
	return strings.Trim(strings.Join([]string{v.OS, v.Architecture, v.Variant}, "/"), "/")
}

// An ImageState says how far an image has been inspected for packages.
type ImageState int

// The states of an image.
const (
	ImageWaiting       ImageState = iota // the inspection of the image is queued
	ImageIndexed                         // the inspection has found the packages of the image
	ImageNotUnderstood                   // the image could not be inspected; StoredImage.Reason has the reason
	ImageNone                            // the manifest turned out not to be an image: all its layers are documents
)

// A StoredImage is an image in a repo, with the state of its inspection.
type StoredImage struct {
	Repo       resource.UID
	Digest     string
	State      ImageState
	Reason     string // reason why the image was not inspected
	UpdateTime time.Time
	IndexTime  time.Time // time at which the packages were first found; zero if they were not
}

// A PastTag is a tag that named an image for some time.
type PastTag struct {
	Name         string
	Since, Until time.Time
}

// A Package is a version of a package in an image. For a package of a distribution, Ecosystem
// includes the release, as in Debian:12.
type Package struct {
	Ecosystem, Name, Version  string
	SourceName, SourceVersion string // source package from which a distribution built this one, if it names one
	PURL                      string
	Owned                     bool // whether a distribution's package contains it, whose advisories then cover it
}

// An ImagePackage is a package in an image.
type ImagePackage struct {
	Package
	ID      int64  // number that identifies the package in the database
	Place   string // path of the file in the image that lists the package; "" if only SBOMs list it
	Layer   int    // index of the layer that contains the package; the lowest is 0
	Origins []Origin
}

// An Origin is the evidence that an image has a package: the files of the image, or an SBOM that
// is attached to the image in its repo.
type Origin struct {
	Manifest string       // digest of the attached manifest; "" for the files of the image
	By       resource.UID // identity that attached the manifest; "" if unknown
	Time     time.Time
}

// SBOMReader is the version of the code that reads SBOMs. It increases when the code reads more
// than before, so that all SBOMs are read again.
const SBOMReader = 1

// An SBOM is the content of the documents in a manifest that is attached to an image of a repo.
type SBOM struct {
	Origin
	Format   string
	Tool     string   // program that wrote the SBOM
	Warnings []string // messages about parts of the SBOM that could not be read
	IDs      []int64  // numbers of the packages in the SBOM, sorted
}

// An Inspection is the result of inspecting an image for packages.
type Inspection struct {
	Digest       string
	Extractors   int // version of the extractors that read the image
	UpdateTime   time.Time
	Distribution Distribution
	Warnings     []string // messages about parts of the image that could not be read
	Packages     []ImagePackage
}

// IDs returns the numbers of the packages, sorted.
func (i Inspection) IDs() []int64 {
	ids := make([]int64, len(i.Packages))
	for n, p := range i.Packages {
		ids[n] = p.ID
	}
	slices.Sort(ids)
	return ids
}

// A Distribution is a release of an operating system, from its os-release file.
type Distribution struct {
	ID      string `json:"id,omitempty"`
	Version string `json:"version,omitempty"`
	Name    string `json:"name,omitempty"`
}
