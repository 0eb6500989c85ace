package registry

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// FollowLife is how long a repo follows another after somebody has set it, or after it was last done.
const FollowLife = 14 * 24 * time.Hour

// A FollowState says how a repo stands that follows another. Its values are those of the API.
type FollowState int32

// The states of a repo that follows another.
const (
	FollowEqual   FollowState = iota // there is nothing to do
	FollowQueued                     // it is due, and nobody has begun
	FollowRunning                    // it is being made equal
	FollowFailed                     // it is not equal, and there is a reason
)

// A Follow is a repo that follows another, and how it stands.
type Follow struct {
	Repo     resource.UID
	Source   resource.UID
	Identity resource.UID // who has set the source, in whose name it is done; "" if nobody has

	State     FollowState
	StateTime time.Time // since when

	SetTime     time.Time // of the source
	RunTime     time.Time // when it last came to its end
	SuccessTime time.Time // when the two were last equal
	ExpireTime  time.Time // when following ends
	DueTime     time.Time // when it is next done; zero if never

	Error      string   // why they are not equal
	FailedTags []string // some of the tags that are not, named by the source or by the repo
	Tags       int64    // that the repo had after the last run
}

// Expired reports whether a repo does not follow any more at a time.
func (f Follow) Expired(now time.Time) bool { return !f.ExpireTime.IsZero() && now.After(f.ExpireTime) }
