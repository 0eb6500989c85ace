package registry

import (
	"path"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Settings are the settings of a group for the repos in it and in the groups below it. If the group has none, the
// settings of the nearest group above that has any apply. Settings are not merged. If no group has any, the zero
// value applies.
type Settings struct {
	UID            resource.UID `json:"uid"`                      // group that has these settings; "" for the zero value
	Public         bool         `json:"public,omitempty"`         // everybody may pull
	NoCreateOnPush bool         `json:"noCreateOnPush,omitempty"` // a push does not create the repo
	ImmutableTags  bool         `json:"immutableTags,omitempty"`  // tags cannot be moved or deleted

	// ImmutableExcept are patterns for path.Match. Tags that match one can be moved and deleted.
	ImmutableExcept []string `json:"immutableExcept,omitempty"`

	// UniqueTags stops the sync of a repo from moving existing tags. A tag that was moved in the source keeps its
	// image in the repo, and the repo still counts as equal to its source. A tag that was deleted in the source is
	// deleted.
	UniqueTags bool `json:"uniqueTags,omitempty"`

	GracePeriod  bool      `json:"gracePeriod,omitempty"`  // stored for clients; the server does not use it
	CreateGroups bool      `json:"createGroups,omitempty"` // a push also creates the groups of its repo
	TrashDays    *int32    `json:"trashDays,omitempty"`    // days in the trash; nil means the setting of the server
	UpdateTime   time.Time `json:"updateTime"`
}

const maxExceptions = 50

// Validate reports every field a caller must fix.
func (s Settings) Validate() error {
	var p problems
	p.AtMost("immutable_except", len(s.ImmutableExcept), maxExceptions, "patterns")
	for _, pattern := range s.ImmutableExcept {
		p.tagPattern("immutable_except", pattern)
	}
	if s.TrashDays != nil && (*s.TrashDays < 0 || *s.TrashDays > MaxTrashDays) {
		p.Add("trash_days", "must be from 0 to "+strconv.Itoa(MaxTrashDays))
	}
	return p.Err()
}

// TrashLife returns how long deleted content can be restored. server is the default for groups that do not set
// TrashDays.
func (s Settings) TrashLife(server time.Duration) time.Duration {
	if s.TrashDays == nil {
		return server
	}
	return time.Duration(*s.TrashDays) * 24 * time.Hour
}

// Frozen reports whether an existing tag cannot be moved or deleted.
func (s Settings) Frozen(tag string) bool {
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
