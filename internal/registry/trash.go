package registry

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A TrashKind says what an entry of the trash was.
type TrashKind int

// The kinds of what can be restored.
const (
	TrashTag TrashKind = iota + 1
	TrashManifest
	TrashRepo
)

// A TrashEntry is something that was deleted from the registry and can be restored until it expires. Its UID is below that
// of the repo that it was in; that of a repo is below the repo's own.
type TrashEntry struct {
	UID       resource.UID `json:"uid"`
	Kind      TrashKind    `json:"kind"`
	RepoName  string       `json:"repoName"`
	Tag       string       `json:"tag,omitempty"`       // of a tag, its name
	Digest    string       `json:"digest,omitempty"`    // of a tag or a manifest
	MediaType string       `json:"mediaType,omitempty"` // of a manifest
	Size      int64        `json:"size,omitempty"`      // of a manifest with its blobs, or of all content of a repo
	Together  bool         `json:"together,omitempty"`  // a tag that was deleted with its manifest
	By        resource.UID `json:"by,omitempty"`        // who deleted it; "" is the service

	WasTag  *Tag  `json:"wasTag,omitempty"`  // of a tag, as it was
	WasRepo *Repo `json:"wasRepo,omitempty"` // of a repo, as it was

	CreateTime time.Time `json:"createTime"` // when it was deleted
	ExpireTime time.Time `json:"expireTime"` // when it is gone for good
}

// Repo returns the UID of the repo that it was in, or that it was.
func (e TrashEntry) Repo() resource.UID { return e.UID.Parent() }

// MaxTrashDays is how long a group can have deleted things kept.
const MaxTrashDays = 365
