package reposync

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
)

// watchLease is the name of the lease of the replica that watches for changes of sources.
const watchLease = "follow"

// A sourceReader makes repos whose source has changed due.
type sourceReader struct{ sources *sourcedb.Store }

// Wanted implements watch.Reader.
func (r sourceReader) Wanted(ctx context.Context) (bool, error) { return r.sources.HasFollowers(ctx) }

// Cursor implements watch.Reader.
func (r sourceReader) Cursor(ctx context.Context) (int64, error) { return r.sources.FollowCursor(ctx) }

// Save implements watch.Reader.
func (r sourceReader) Save(ctx context.Context, seq int64) error {
	return r.sources.TellFollowers(ctx, []resource.UID{}, seq)
}

// Missed implements watch.Reader. It makes all repos with a source due.
func (r sourceReader) Missed(ctx context.Context, seq int64) error {
	return r.sources.TellFollowers(ctx, nil, seq)
}

// Handle implements watch.Reader.
func (r sourceReader) Handle(ctx context.Context, events []resource.Event, seq int64) (saved bool, _ error) {
	changed := map[resource.UID]bool{}
	for _, e := range events {
		switch e.Type {
		case resource.TagCreated, resource.TagDeleted:
			changed[e.Subject.Parent()] = true
		case resource.RegistryPush, resource.RepoDeleted, resource.RepoCreated: // a restored repo has a RepoCreated event
			changed[e.Subject] = true
		}
	}
	if len(changed) == 0 {
		return false, nil
	}
	var repos []resource.UID
	for repo := range changed {
		repos = append(repos, repo)
	}
	return true, r.sources.TellFollowers(ctx, repos, seq)
}
