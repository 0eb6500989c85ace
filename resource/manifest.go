package resource

import "time"

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
}

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
}

// An Upload is an upload that has not become a blob. Its first Size bytes are stored, and
// State is the state of their hash.
type Upload struct {
	ID        string
	Group     UID    // of the repo, which may not exist yet
	Repo      string // its name in the group
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
}
