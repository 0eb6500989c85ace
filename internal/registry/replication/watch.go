package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
)

const (
	watchLease  = "replication" // name of the lease of the replica that watches for changes
	namesAtOnce = 1000
)

// A changeReader queues the tags that events are about.
type changeReader struct{ *Replicator }

// Wanted implements watch.Reader.
func (r changeReader) Wanted(ctx context.Context) (bool, error) {
	return r.sources.HasReplications(ctx)
}

// Cursor implements watch.Reader.
func (r changeReader) Cursor(ctx context.Context) (int64, error) {
	return r.sources.ReplicationCursor(ctx)
}

// Save implements watch.Reader.
func (r changeReader) Save(ctx context.Context, seq int64) error {
	return r.sources.SaveReplicationCursor(ctx, seq)
}

// Missed implements watch.Reader. It queues all selected tags.
func (r changeReader) Missed(ctx context.Context, seq int64) error {
	if err := r.sources.ScanPushReplications(ctx); err != nil {
		return err
	}
	return r.sources.SaveReplicationCursor(ctx, seq)
}

// Handle implements watch.Reader.
func (r changeReader) Handle(ctx context.Context, events []resource.Event, seq int64) (saved bool, _ error) {
	changes := map[resource.UID]*change{}
	for _, e := range events {
		if e.Type == resource.SignerCreated { // images may count as signed now
			if err := r.sources.ScanOrganization(ctx, e.Subject.Root()); err != nil {
				return false, err
			}
		}
		if err := collect(changes, e); err != nil {
			return false, err
		}
	}
	for repo, c := range changes {
		if err := r.queueChange(ctx, repo, c); err != nil {
			return false, err
		}
	}
	if len(changes) == 0 {
		return false, nil
	}
	return true, r.sources.SaveReplicationCursor(ctx, seq)
}

// A change has the tags of a repo that have changed.
type change struct {
	tags    map[string]bool
	digests map[string]bool // manifests that were pushed without a tag, or to which something was attached
	added   bool            // whether the repo was created or restored
	deleted bool
}

// collect adds what an event says about a repo.
func collect(changes map[resource.UID]*change, e resource.Event) error {
	changeOf := func(repo resource.UID) *change {
		c := changes[repo]
		if c == nil {
			c = &change{tags: map[string]bool{}, digests: map[string]bool{}}
			changes[repo] = c
		}
		return c
	}
	var tag struct {
		Name string `json:"name"`
	}
	var push registrydb.Push
	var err error
	switch e.Type {
	case resource.TagCreated:
		err = json.Unmarshal(e.After, &tag)
		changeOf(e.Subject.Parent()).addTag(tag.Name)
	case resource.TagDeleted:
		err = json.Unmarshal(e.Before, &tag)
		changeOf(e.Subject.Parent()).addTag(tag.Name)
	case resource.RegistryPush:
		err = json.Unmarshal(e.After, &push)
		c := changeOf(e.Subject)
		for _, name := range push.Tags {
			c.addTag(name)
		}
		if len(push.Tags) == 0 {
			c.digests[push.Digest] = true
		}
	case resource.RepoCreated: // a restored repo has this event, and none for its tags
		changeOf(e.Subject).added = true
	case resource.RepoDeleted:
		changeOf(e.Subject).deleted = true
	}
	if err != nil {
		return fmt.Errorf("event %d: %w", e.Seq, err)
	}
	return nil
}

// addTag adds a tag, or the image to which a tag such as sha256-….sig attaches something.
func (c *change) addTag(name string) {
	if subject, _, ok := registry.AttachedTag(name); ok {
		c.digests[subject] = true
		return
	}
	c.tags[name] = true
}

// queueChange queues the changed tags of a repo for all replications that select them.
func (r changeReader) queueChange(ctx context.Context, repo resource.UID, c *change) error {
	over, err := r.sources.ReplicationsOver(ctx, repo.Ancestors())
	if err != nil || len(over) == 0 {
		return err
	}
	if c.deleted {
		for _, to := range over {
			if err := r.sources.QueueCopiedOf(ctx, to.UID, repo); err != nil {
				return err
			}
		}
	}
	path, err := r.Store.RepoPath(ctx, repo)
	if errors.Is(err, fault.NotFound) { // it was deleted, or will be found deleted by a later event
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.addReached(ctx, repo, c); err != nil {
		return err
	}
	for _, to := range over {
		if !to.SelectsRepo(pathBelow(to, path)) {
			continue
		}
		var tags []sourcedb.QueuedTag
		for name := range c.tags {
			if to.SelectsTag(name) {
				tags = append(tags, sourcedb.QueuedTag{Repo: repo, Name: name})
			}
		}
		if err := r.sources.QueueReplicated(ctx, to.UID, tags); err != nil {
			return err
		}
	}
	return nil
}

// addReached adds the tags of a new repo, and the tags of images to which something was attached.
func (r changeReader) addReached(ctx context.Context, repo resource.UID, c *change) error {
	for last := ""; c.added; {
		names, err := r.Store.TagNames(ctx, repo, last, namesAtOnce)
		if err != nil {
			return err
		}
		for _, name := range names {
			last = name
			c.addTag(name)
		}
		c.added = len(names) == namesAtOnce
	}
	for digest := range c.digests {
		names, err := r.tagsOf(ctx, repo, digest)
		if err != nil {
			return err
		}
		for _, name := range names {
			c.addTag(name)
		}
	}
	return nil
}

// maxAttached is the length of a chain of manifests that are attached to each other.
const maxAttached = 4

// tagsOf returns the tags whose images contain a manifest, or to whose images it is attached.
func (r changeReader) tagsOf(ctx context.Context, repo resource.UID, digest string) (names []string, _ error) {
	for range maxAttached {
		reached, err := r.sources.TagsReaching(ctx, repo, digest)
		if err != nil {
			return nil, err
		}
		names = append(names, reached...)
		m, err := r.Store.Manifest(ctx, repo, digest)
		if errors.Is(err, fault.NotFound) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		if m.Subject == "" {
			break
		}
		digest = m.Subject
	}
	return names, nil
}
