package registrydb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A repo follows another if its detail names the source and the table follows has a row for it. A repo that was
// restored from the trash has no such row, so it follows nothing until a caller sets the source again.
const (
	// FollowRow is the SQL condition that f is the row of follows for the repo t.
	FollowRow = `f.repo = t.seg`

	// isFollower is the SQL condition that the repo t follows another repo.
	isFollower = `EXISTS (SELECT 1 FROM follows AS f WHERE ` + FollowRow + `)`
)

// follows returns the error for a request that would change the tags of a repo that follows another.
func follows() error {
	return fault.Unmet("FOLLOWS",
		"this repo follows another repo and has its tags; push to the other repo, or stop following it")
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
