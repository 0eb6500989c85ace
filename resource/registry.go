package resource

import (
	"path"
	"time"
)

// RegistrySettings are a group's rules for the repos in it and below. The
// settings of the nearest group that has any count, as a whole; where none has,
// the zero value does.
type RegistrySettings struct {
	UID             UID       `json:"uid"`                       // of the group that has them, or "" for the zero value
	Public          bool      `json:"public,omitempty"`          // anybody may pull
	NoCreateOnPush  bool      `json:"noCreateOnPush,omitempty"`  // a push does not make the repo
	ImmutableTags   bool      `json:"immutableTags,omitempty"`   // a tag is neither moved nor deleted
	ImmutableExcept []string  `json:"immutableExcept,omitempty"` // but those that match one of these, as path.Match does
	UniqueTags      bool      `json:"uniqueTags,omitempty"`      // kept for clients: nothing is copied
	GracePeriod     bool      `json:"gracePeriod,omitempty"`     // kept for clients, too
	UpdateTime      time.Time `json:"updateTime"`
}

const maxExceptions = 50

// Validate reports every field a caller must fix.
func (s RegistrySettings) Validate() error {
	var p problems
	if len(s.ImmutableExcept) > maxExceptions {
		p.add("immutable_except", "must have at most 50 patterns")
	}
	for _, pattern := range s.ImmutableExcept {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" || len(pattern) > maxName || !storable(pattern) {
			p.add("immutable_except", "must be patterns such as latest or nightly-*")
		}
	}
	return p.err()
}

// Frozen tells whether a tag, once there, must stay as it is.
func (s RegistrySettings) Frozen(tag string) bool {
	if !s.ImmutableTags {
		return false
	}
	for _, pattern := range s.ImmutableExcept {
		if ok, err := path.Match(pattern, tag); ok && err == nil {
			return false
		}
	}
	return true
}
