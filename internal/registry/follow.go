package registry

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// FollowLife is how long a repo syncs from its source after the source was set or after the last sync.
const FollowLife = 14 * 24 * time.Hour

// A FollowState is the sync status of a repo. Its values are the values of the API.
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
	Identity resource.UID // identity that set the source and in whose name the repo syncs; "" if unknown

	State     FollowState
	StateTime time.Time // time of the last change of State

	SetTime     time.Time // time at which the source was set
	RunTime     time.Time // end of the last sync
	SuccessTime time.Time // time at which the repo last equaled its source
	ExpireTime  time.Time // end of syncing
	DueTime     time.Time // time of the next sync; zero if there is none

	Error      string   // reason why the repo differs from its source
	FailedTags []string // some of the tags that differ, named by the source or by the repo
	Tags       int64    // number of tags of the repo after the last sync
}

// Expired reports whether syncing has ended at a time.
func (f Follow) Expired(now time.Time) bool { return !f.ExpireTime.IsZero() && now.After(f.ExpireTime) }
