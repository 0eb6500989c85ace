package finding

import "github.com/holdfast-dev/holdfast/internal/core/resource"

// An ImageKey names an image of a repo.
type ImageKey struct {
	Repo   resource.UID
	Digest string
}

// An Image is the reference of an image in a repo: a tag or a digest, and of an index the
// architecture, or amd64 if that is "".
type Image struct {
	Repo         resource.UID `json:"repo,omitempty"`
	Reference    string       `json:"reference,omitempty"`
	Architecture string       `json:"architecture,omitempty"`
}
