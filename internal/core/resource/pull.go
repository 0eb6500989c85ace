package resource

import "time"

// A Pull is a pull or a push of a manifest, or several pulls of a public repo that are recorded together.
type Pull struct {
	UID      UID       `json:"uid"` // under the repo
	Push     bool      `json:"push,omitempty"`
	Digest   string    `json:"digest"`             // "" for pulls of several manifests
	Tag      string    `json:"tag,omitempty"`      // in the request
	Identity UID       `json:"identity,omitempty"` // "" for anonymous pulls
	Remote   string    `json:"remote,omitempty"`   // an address, or a network such as 192.0.2.0/24 for several
	Agent    string    `json:"agent,omitempty"`
	Time     time.Time `json:"time"`           // of the last pull
	More     int64     `json:"more,omitempty"` // how many further pulls are recorded with it
}

// A Direction selects pulls or pushes. Its values are those of the API.
type Direction int32

// The directions.
const (
	AnyDirection Direction = iota
	Pulled
	Pushed
)

// Repo returns the UID of the repo.
func (p Pull) Repo() UID { return p.UID.Parent() }
