package registrydb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A repo follows another if its detail names the source and its row in follows names the same. The version before sets and
// clears the source without the row: such a repo follows nothing until somebody sets the source again.
const (
	// FollowRow is the condition in SQL that f is the row of follows of the repo t, and that it counts. A UID contains
	// no character that has a meaning in LIKE or JSON.
	FollowRow = `f.repo = t.seg AND t.detail LIKE '%"source":"' || f.source_uid || '"%'`

	// isFollower is the column that says whether the repo t follows another.
	isFollower = `EXISTS (SELECT 1 FROM follows AS f WHERE ` + FollowRow + `)`
)

// follows is the error for whatever would change the tags of a repo that follows another.
func follows() error {
	return fault.Unmet("FOLLOWS", "this repo follows another, and has its tags: push to that, or let this one follow no longer")
}

// requireUnfollowing returns fault.FailedPrecondition if a repo follows another.
func (t Tx) requireUnfollowing(ctx context.Context, repo resource.UID) error {
	var is bool
	err := t.Row(ctx, `SELECT `+isFollower+` FROM repos AS t WHERE t.seg = $1`, []any{store.Segment(repo)}, &is)
	if err == nil && is {
		err = follows()
	}
	return err
}

// Unfollow removes the row by which a repo follows another, if it has one.
func (t Tx) Unfollow(ctx context.Context, repo resource.UID) error {
	_, err := t.Exec(ctx, `DELETE FROM follows WHERE repo = $1`, store.Segment(repo))
	return err
}
