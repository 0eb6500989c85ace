package registry

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A Pull is a pull or a push of a manifest, or several pulls of a public repo that are recorded together.
type Pull struct {
	UID      resource.UID `json:"uid"` // child of the UID of the repo
	Push     bool         `json:"push,omitempty"`
	Digest   string       `json:"digest"`             // digest of the manifest; "" for pulls of several manifests
	Tag      string       `json:"tag,omitempty"`      // tag in the request
	Identity resource.UID `json:"identity,omitempty"` // identity of the caller; "" for anonymous pulls
	Remote   string       `json:"remote,omitempty"`   // client address, or a network such as 192.0.2.0/24 for several
	Agent    string       `json:"agent,omitempty"`
	Time     time.Time    `json:"time"`           // time of the last pull
	More     int64        `json:"more,omitempty"` // number of further pulls in this record
}

// PullRefusal returns the message for a pull that a rule refuses.
func PullRefusal(why string) string { return "pulls of this image are refused: " + why }

// Repo returns the UID of the repo.
func (p Pull) Repo() resource.UID { return p.UID.Parent() }

// A PulledRepo is a repo from which an identity has pulled.
type PulledRepo struct {
	Repo   resource.UID
	Path   string // path of the repo: the names of its groups and its own name
	Public bool   // anybody can pull from it
	Count  int64  // number of pulls
	Last   time.Time
}
