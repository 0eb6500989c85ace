package resource

import "time"

// A Manifest is a document of a repo and what it says about itself.
type Manifest struct {
	Digest       string
	MediaType    string
	Size         int64
	Subject      string // digest of the manifest this one is about, or ""
	ArtifactType string // as the referrers list reports it
	Annotations  string // JSON object, or ""
	PushTime     time.Time
	Body         []byte
	Needs        []Need
}

// A Need is content a manifest refers to.
type Need struct {
	Digest   string
	Manifest bool // else a blob
	Optional bool // may be absent: non-distributable, or the registry takes sparse images
}

// A Blob is bytes at a path of the storage.
type Blob struct {
	Digest string
	Size   int64
	Path   string
}

// An Upload is a session that has not become a blob: its first Size bytes are
// stored, and State is their running hash.
type Upload struct {
	ID        string
	Group     UID    // of the repo, which may not exist yet
	Repo      string // its name in the group
	Algorithm string
	Size      int64
	State     []byte
}

// An Image is what a manifest can run as: one variant for each platform.
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
	Config       []byte `json:"-"` // the image's configuration, JSON; empty for what has none
}
