package registry

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A TrashKind is the kind of resource that was deleted.
type TrashKind int

// The kinds of resources in the trash.
const (
	TrashTag TrashKind = iota + 1
	TrashManifest
	TrashRepo
)

// A TrashEntry is a deleted tag, manifest or repo that can be restored until it expires. Its UID is a child of the
// UID of the repo: the deleted repo, or the repo that contained the tag or manifest.
type TrashEntry struct {
	UID       resource.UID `json:"uid"`
	Kind      TrashKind    `json:"kind"`
	RepoName  string       `json:"repoName"`
	Tag       string       `json:"tag,omitempty"`       // name of a tag
	Digest    string       `json:"digest,omitempty"`    // digest of a manifest, or the digest that a tag pointed to
	MediaType string       `json:"mediaType,omitempty"` // media type of a manifest
	Size      int64        `json:"size,omitempty"`      // size in bytes of a manifest with its blobs, or of a whole repo
	Together  bool         `json:"together,omitempty"`  // whether the tag was deleted together with its manifest
	By        resource.UID `json:"by,omitempty"`        // identity that deleted it; "" means the server

	WasTag  *Tag  `json:"wasTag,omitempty"`  // the deleted tag
	WasRepo *Repo `json:"wasRepo,omitempty"` // the deleted repo

	CreateTime time.Time `json:"createTime"` // time of the deletion
	ExpireTime time.Time `json:"expireTime"` // time after which the content cannot be restored
}

// Repo returns the UID of the deleted repo, or of the repo that contained the deleted tag or manifest.
func (e TrashEntry) Repo() resource.UID { return e.UID.Parent() }

// MaxTrashDays is the longest time, in days, that a group can set for its trash.
const MaxTrashDays = 365
