package finding

import "github.com/holdfast-dev/holdfast/internal/core/resource"

// An ImageKey identifies an image in a repo.
type ImageKey struct {
	Repo   resource.UID
	Digest string
}

// An Image refers to an image in a repo by a tag or a digest. If the tag or digest refers to an index, Architecture
// selects the image; "" means amd64.
type Image struct {
	Repo         resource.UID `json:"repo,omitempty"`
	Reference    string       `json:"reference,omitempty"`
	Architecture string       `json:"architecture,omitempty"`
}
