package replication

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store/lease"
	"github.com/holdfast-dev/holdfast/internal/store/outbox"
)

const (
	watchLease   = "replication" // name of the lease in the database
	leaseTime    = 15 * time.Second
	watchRenew   = 5 * time.Second
	eventsAtOnce = 500
	saveInterval = 30 * time.Second // time between saves of the cursor while nothing is queued
	maxBehind    = 100_000          // unread events; if there are more, all selected tags are queued instead
	namesAtOnce  = 1000
)

// watchEvents queues tags that have changed, while this replica holds the lease.
func (r *Replicator) watchEvents(ctx context.Context) {
	id := rand.Text()
	for ; ctx.Err() == nil; pause(ctx, watchRenew) {
		w := watch{Replicator: r, id: id, history: r.Store.History()}
		has, err := w.lease(ctx)
		if err == nil && has {
			err = w.watch(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.Log.WarnContext(ctx, "changes of replicated repos are not watched", "err", err)
		}
	}
	if r.Store.Replicated() {
		_ = lease.Release(context.WithoutCancel(ctx), r.Store.DB, watchLease, id) // if this fails, the lease expires
	}
}

// A watch reads events and queues the tags that they are about. Pushes do not wait for it.
type watch struct {
	*Replicator
	id      string
	history int64 // DB.History when watching began; after it changes, events may have other numbers
	tail    *outbox.Tail
	saved   int64 // number of the last event that was read, as stored in the database
}

// lease acquires or renews the lease. It reports whether this replica holds it.
func (w *watch) lease(ctx context.Context) (bool, error) {
	if !w.Store.Replicated() {
		return true, nil
	}
	return lease.Acquire(ctx, w.Store.DB, watchLease, w.id, leaseTime)
}

// watch reads events until the lease is lost, DB.History changes, or ctx ends.
func (w *watch) watch(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	renewed, saved := time.Now(), time.Now()
	for ctx.Err() == nil && w.Store.History() == w.history {
		if time.Since(renewed) >= watchRenew {
			renewed = time.Now()
			if has, err := w.lease(ctx); err != nil || !has {
				return err
			}
		}
		n, err := w.readEvents(ctx)
		if err != nil {
			return err
		}
		if w.tail.At() != w.saved && time.Since(saved) >= saveInterval {
			saved = time.Now()
			if err := w.save(ctx); err != nil {
				return err
			}
		}
		if n < eventsAtOnce {
			pause(ctx, pollInterval)
		}
	}
	return nil
}

// begin prepares reading after the last event that any replica has read. If that event is unknown or too old, all
// selected tags are queued.
func (w *watch) begin(ctx context.Context) error {
	cursor, err := w.sources.ReplicationCursor(ctx)
	if err != nil {
		return err
	}
	last, err := outbox.Last(ctx, w.Store.DB)
	if err != nil {
		return err
	}
	unknown := cursor < 0 || cursor > last || last-cursor > maxBehind
	if unknown {
		cursor = last
	}
	w.saved = cursor
	if w.tail, err = outbox.NewTail(ctx, w.Store.DB, cursor); err != nil || !unknown {
		return err
	}
	has, err := w.sources.HasReplications(ctx)
	if err != nil || !has {
		return err
	}
	if err := w.sources.ScanPushReplications(ctx); err != nil {
		return err
	}
	return w.sources.SaveReplicationCursor(ctx, cursor)
}

// save stores the number of the last event that was read. It writes nothing if there are no replications, because
// begin then needs no cursor.
func (w *watch) save(ctx context.Context) error {
	has, err := w.sources.HasReplications(ctx)
	if err != nil || !has {
		return err
	}
	w.saved = w.tail.At()
	return w.sources.SaveReplicationCursor(ctx, w.saved)
}

// readEvents reads the next events and returns their number. If nothing is replicated after pushes, it skips events
// without reading them.
func (w *watch) readEvents(ctx context.Context) (n int, _ error) {
	has, err := w.sources.HasReplications(ctx)
	if err != nil {
		return 0, err
	}
	if !has {
		n, whole, err := w.tail.Skip(ctx, eventsAtOnce, "")
		if err != nil || whole {
			return n, errors.Join(err, w.scanIfCreated(ctx, n))
		}
	}
	events, err := w.tail.Next(ctx, eventsAtOnce)
	if err != nil || !has {
		return len(events), errors.Join(err, w.scanIfCreated(ctx, len(events)))
	}
	changes := map[resource.UID]*change{}
	for _, e := range events {
		if e.Type == resource.SignerCreated { // images may count as signed now
			if err := w.sources.ScanOrganization(ctx, e.Subject.Root()); err != nil {
				return 0, err
			}
		}
		if err := collect(changes, e); err != nil {
			return 0, err
		}
	}
	for repo, c := range changes {
		if err := w.queueChange(ctx, repo, c); err != nil {
			return 0, err
		}
	}
	if len(changes) == 0 {
		return len(events), nil
	}
	return len(events), w.save(ctx)
}

// scanIfCreated queues all selected tags if a replication was created while n events were skipped, because one of them
// may be about a tag that the first scan of the replication did not see.
func (w *watch) scanIfCreated(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	has, err := w.sources.HasReplications(ctx)
	if err != nil || !has {
		return err
	}
	return w.sources.ScanPushReplications(ctx)
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
func (w *watch) queueChange(ctx context.Context, repo resource.UID, c *change) error {
	over, err := w.sources.ReplicationsOver(ctx, repo.Ancestors())
	if err != nil || len(over) == 0 {
		return err
	}
	if c.deleted {
		for _, r := range over {
			if err := w.sources.QueueCopiedOf(ctx, r.UID, repo); err != nil {
				return err
			}
		}
	}
	path, err := w.Store.RepoPath(ctx, repo)
	if errors.Is(err, fault.NotFound) { // it was deleted, or will be found deleted by a later event
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.addReached(ctx, repo, c); err != nil {
		return err
	}
	for _, r := range over {
		if !r.SelectsRepo(pathBelow(r, path)) {
			continue
		}
		var tags []sourcedb.QueuedTag
		for name := range c.tags {
			if r.SelectsTag(name) {
				tags = append(tags, sourcedb.QueuedTag{Repo: repo, Name: name})
			}
		}
		if err := w.sources.QueueReplicated(ctx, r.UID, tags); err != nil {
			return err
		}
	}
	return nil
}

// addReached adds the tags of a new repo, and the tags of images to which something was attached.
func (w *watch) addReached(ctx context.Context, repo resource.UID, c *change) error {
	for last := ""; c.added; {
		names, err := w.Store.TagNames(ctx, repo, last, namesAtOnce)
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
		names, err := w.tagsOf(ctx, repo, digest)
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
func (w *watch) tagsOf(ctx context.Context, repo resource.UID, digest string) (names []string, _ error) {
	for range maxAttached {
		reached, err := w.sources.TagsReaching(ctx, repo, digest)
		if err != nil {
			return nil, err
		}
		names = append(names, reached...)
		m, err := w.Store.Manifest(ctx, repo, digest)
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
