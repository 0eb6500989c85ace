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

// ClaimsImage reports whether a manifest has the media type of an image manifest and its configuration has a type of
// image configurations. Unlike IsImage, it ignores the subject.
func (m Manifest) ClaimsImage() bool {
	return slices.Contains(ImageManifests, m.MediaType) && slices.Contains(ImageConfigs, m.ArtifactType)
}

// Runs reports whether a client may run the content of a manifest. It depends only on the media type of the
// configuration, because some clients guess the other types. They also treat a configuration without a media type as
// the configuration of an image.
func (m Manifest) Runs() bool {
	var doc struct {
		Config    *struct{ MediaType string }
		Manifests []json.RawMessage
	}
	if json.Unmarshal(m.Body, &doc) != nil {
		return true
	}
	return doc.Manifests == nil && doc.Config != nil && slices.ContainsFunc(runnable, func(t string) bool {
		return strings.EqualFold(t, strings.TrimSpace(doc.Config.MediaType))
	})
}

// runnable are the media types that clients treat as image configurations.
var runnable = append([]string{"", "application/octet-stream", "application/json", "text/html",
	"application/vnd.docker.plugin.v1+json"}, ImageConfigs...)

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
	ImageNone                            // the manifest turned out not to be an image, because it has no layers of files
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
