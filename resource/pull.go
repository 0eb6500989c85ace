package resource

import "time"

// A Pull is one time somebody fetched a manifest, or pushed one, or several
// times that somebody without a role on the repo fetched it.
type Pull struct {
	UID      UID       `json:"uid"` // under the repo
	Push     bool      `json:"push,omitempty"`
	Digest   string    `json:"digest"`             // "" if many times were of several manifests
	Tag      string    `json:"tag,omitempty"`      // if it was asked for by tag
	Identity UID       `json:"identity,omitempty"` // "" for an anonymous one
	Remote   string    `json:"remote,omitempty"`   // the network, as 192.0.2.0/24, if many times were from several addresses of it
	Agent    string    `json:"agent,omitempty"`
	Time     time.Time `json:"time"`           // of the last
	More     int64     `json:"more,omitempty"` // how many more times it stands for
}

// A Direction is which way an image went. Its numbers are the wire's.
type Direction int32

// The directions there are.
const (
	AnyDirection Direction = iota
	Pulled
	Pushed
)

// Repo is the UID of the repo it happened to.
func (p Pull) Repo() UID { return p.UID.Parent() }
