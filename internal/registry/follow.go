package registry

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// FollowLife is how long a repo keeps syncing from its source. The period begins when the source is set, and again
// after each sync that has processed all tags.
const FollowLife = 14 * 24 * time.Hour

// A FollowState is the sync status of a repo. Its values are the numbers of the enum in the API.
type FollowState int32

// The sync states of a repo.
const (
	FollowEqual   FollowState = iota // the repo equals its source
	FollowQueued                     // a sync is due and has not begun
	FollowRunning                    // a sync is running
	FollowFailed                     // the repo differs from its source; Follow.Error has the reason
)

// A Follow is the sync status of a repo that syncs from another repo, its source.
type Follow struct {
	Repo     resource.UID
	Source   resource.UID
	Identity resource.UID // identity that set the source; the repo syncs with its permissions; "" if unknown

	State     FollowState
	StateTime time.Time // time of the last change of State

	SetTime     time.Time // time at which the source was set
	RunTime     time.Time // end of the last sync
	SuccessTime time.Time // time at which the repo last equaled its source
	ExpireTime  time.Time // time at which the repo stops syncing
	DueTime     time.Time // time of the next sync; zero if there is none

	Error      string   // reason why the repo differs from its source; "" if it does not
	FailedTags []string // names of some tags that differ between the repo and its source
	Tags       int64    // number of tags of the repo after the last sync
}

// Expired reports whether syncing has ended by now.
func (f Follow) Expired(now time.Time) bool { return !f.ExpireTime.IsZero() && now.After(f.ExpireTime) }
