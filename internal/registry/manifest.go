package registry

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Manifest is a manifest of a repo.
type Manifest struct {
	Digest       string
	MediaType    string
	Size         int64
	Subject      string // the digest of the manifest this one is about, or ""
	ArtifactType string // as the list of referrers has it
	Annotations  string // JSON object, or ""
	PushTime     time.Time
	Body         []byte
	Needs        []Need
	About        []string // of an index: the images that attestations in it are about
}

// ClaimsImage reports whether the types in a manifest are those of an image with layers of
// files, whatever else it says.
func (m Manifest) ClaimsImage() bool {
	return slices.Contains(ImageManifests, m.MediaType) && slices.Contains(ImageConfigs, m.ArtifactType)
}

// Runs reports whether a client may run what the body of a manifest describes. That depends on
// the type of its configuration and on nothing else: some clients guess the other types, and
// take a configuration without a type for that of an image.
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

// runnable are the types of configurations that clients take for those of images.
var runnable = append([]string{"", "application/octet-stream", "application/json", "text/html",
	"application/vnd.docker.plugin.v1+json"}, ImageConfigs...)

// IsImage reports whether a manifest is that of an image, as far as its types tell: also
// attestations have them.
func (m Manifest) IsImage() bool {
	return m.Subject == "" && slices.Contains(ImageManifests, m.MediaType) && slices.Contains(ImageConfigs, m.ArtifactType)
}

// The media types of images: those of their manifests, and of their configurations.
var (
	ImageManifests = []string{"application/vnd.oci.image.manifest.v1+json",
		"application/vnd.docker.distribution.manifest.v2+json"}
	ImageConfigs = []string{"application/vnd.oci.image.config.v1+json",
		"application/vnd.docker.container.image.v1+json"}
)

// A Need is content a manifest refers to.
type Need struct {
	Digest   string
	Manifest bool // otherwise a blob
	Optional bool // may be missing: it is non-distributable, or the registry accepts sparse images
}

// A Blob is a blob in the storage.
type Blob struct {
	Digest string
	Size   int64
	Path   string
	Rotten bool // the bytes are missing or wrong; known to some methods of the store only
}

// An Upload is an upload that has not become a blob. Its first Size bytes are stored, and
// State is the state of their hash.
type Upload struct {
	ID        string
	Group     resource.UID // of the repo, which may not exist yet
	Repo      string       // its name in the group
	Algorithm string
	Size      int64
	State     []byte
}

// An Image has the variants of an image for each platform.
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
	Size         int64  `json:"size"` // layers and config
	Layers       int    `json:"layers"`
	Config       []byte `json:"-"` // the image's configuration in JSON, if it has one

	Stack []Layer `json:"-"` // the lowest first
}

// A Layer is a layer of an image, as its manifest lists it.
type Layer struct {
	Digest    string
	MediaType string
	Size      int64
}

// Platform returns the system that a variant is for, such as linux/arm64/v8.
func (v Variant) Platform() string {
	return strings.Trim(strings.Join([]string{v.OS, v.Architecture, v.Variant}, "/"), "/")
}

// An ImageState says whether it is known what packages an image has.
type ImageState int

// The states of an image.
const (
	ImageWaiting       ImageState = iota // in the queue
	ImageIndexed                         // its packages are known
	ImageNotUnderstood                   // for a reason
	ImageNone                            // it has no layers of files, and so is no image
)

// A StoredImage is an image of a repo, and how far it is known.
type StoredImage struct {
	Repo       resource.UID
	Digest     string
	State      ImageState
	Reason     string // why it is not understood, or not inspected yet
	UpdateTime time.Time
	IndexTime  time.Time // when its packages were first known; zero if they are not
}

// A PastTag is a tag that stood for an image for some time.
type PastTag struct {
	Name         string
	Since, Until time.Time
}

// A Package is a version of a package as it is found in images. For a package of a
// distribution, Ecosystem names also the release, as in Debian:12.
type Package struct {
	Ecosystem, Name, Version  string
	SourceName, SourceVersion string // what it was built from, if a distribution says so
	PURL                      string
	Owned                     bool // it is part of a package of a distribution, whose advisories tell about it
}

// An ImagePackage is a package in an image.
type ImagePackage struct {
	Package
	ID      int64  // its number in the database
	Place   string // the file that tells of it; "" if only SBOMs do
	Layer   int    // the first is 0
	Origins []Origin
}

// An Origin is how it is known that an image has a package: the files of the image tell, or
// an SBOM that somebody has attached to it in its repo.
type Origin struct {
	Manifest string       // the digest of what is attached; "" for the files of the image
	By       resource.UID // who has attached it; "" if that is not known
	Time     time.Time
}

// SBOMReader is the version of how SBOMs are read. It rises when more could be read of one
// than before, so that all are to be read again.
const SBOMReader = 1

// An SBOM is what the documents of an attached manifest say about an image of a repo.
type SBOM struct {
	Origin
	Format   string
	Tool     string   // that wrote it
	Warnings []string // what could not be understood
	IDs      []int64  // of its packages, in order
}

// An Inspection is what an image contains.
type Inspection struct {
	Digest       string
	Extractors   int // the version of what has read it
	UpdateTime   time.Time
	Distribution Distribution
	Warnings     []string // what could not be understood
	Packages     []ImagePackage
}

// IDs returns the numbers of the packages, in order.
func (i Inspection) IDs() []int64 {
	ids := make([]int64, len(i.Packages))
	for n, p := range i.Packages {
		ids[n] = p.ID
	}
	slices.Sort(ids)
	return ids
}

// A Distribution is a release of an operating system, as its os-release has it.
type Distribution struct {
	ID      string `json:"id,omitempty"`
	Version string `json:"version,omitempty"`
	Name    string `json:"name,omitempty"`
}
