package sourcedb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var replications = store.Kind[registry.Replication]{
	Table: "replications", Label: "replication", Unique: "parent, name",
	Created: resource.ReplicationCreated, Updated: resource.ReplicationUpdated, Deleted: resource.ReplicationDeleted,
	Columns: func(r *registry.Replication) []store.Column {
		return []store.Column{
			store.JSON("detail", r), // fields that have a column are read from the column
			store.Key(&r.UID),
			store.Text("name", &r.Name).Order("name"),
			store.Bytes("secret", &r.Credentials.Sealed),
			store.Time("create_ms", &r.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &r.UpdateTime),
		}
	},
}

// ReplicationList is the list of replications, with its default order.
var ReplicationList = replications.List(page.Order{Field: "uid"})

// maxReplications is the number of replications that a group can have.
const maxReplications = 20

// InsertReplication adds a replication to a group. If it copies after pushes, all selected tags are queued. It returns
// fault.NotFound if there is no such group, fault.AlreadyExists if the group has a replication of that name, and
// fault.FailedPrecondition if the group has maxReplications.
func (s *Store) InsertReplication(ctx context.Context, r registry.Replication) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, r.Group()); err != nil {
			return err
		}
		var n int
		err := t.Row(ctx, `SELECT count(*) FROM replications WHERE parent = $1`, []any{store.Segment(r.Group())}, &n)
		if err != nil {
			return err
		}
		if n >= maxReplications {
			return fault.Unmet("TOO_MANY_REPLICATIONS", "a group has at most %d replications", maxReplications)
		}
		if err := store.Insert(ctx, t.Tx, &replications, r); err != nil {
			return err
		}
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		_, err = t.Exec(ctx, `INSERT INTO replication_states (replication, uid, root, push, paused, gone, due_ms, pause_ms,
			retry_ms, scan_ms, run_ms, holder, until_ms, tries, error, error_ms, success_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, $7, 0, '', 0, 0, '', 0, 0)`, store.Segment(r.UID), string(r.UID),
			store.Segment(r.UID.Root()), r.Trigger == registry.OnPush, r.Paused, false, firstScan(r, store.MS(clock)))
		return err
	})
}

// firstScan returns the time in milliseconds at which all tags of a new or changed replication are queued, or nil.
func firstScan(r registry.Replication, now int64) any {
	if r.Trigger == registry.OnDemand {
		return nil
	}
	return now
}

// Replication returns a replication, or fault.NotFound.
func (s *Store) Replication(ctx context.Context, uid resource.UID) (registry.Replication, error) {
	return store.Get(ctx, s.DB, &replications, uid)
}

// Replications returns one page of replications.
func (s *Store) Replications(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[registry.Replication], error) {
	return store.List(ctx, s.DB, &replications, r, f, p)
}

// UpdateReplication replaces before by after. It ends the current attempt and, unless the replication copies only on
// request, queues all selected tags. It returns store.ErrStale if the replication has changed since before was read.
func (s *Store) UpdateReplication(
	ctx context.Context, before, after registry.Replication,
) (registry.Replication, error) {
	err := s.write(ctx, func(t Tx) error {
		if err := store.Update(ctx, t.Tx, &replications, before, &after); err != nil {
			return err
		}
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		currentTime := store.MS(clock)
		_, err = t.Exec(ctx, `UPDATE replication_states SET push = $2, paused = $3, scan_ms = $4, due_ms = $5, pause_ms = 0,
			holder = '', until_ms = 0, tries = 0 WHERE replication = $1`, store.Segment(after.UID),
			after.Trigger == registry.OnPush, after.Paused, firstScan(after, currentTime), currentTime)
		return err
	})
	return after, err
}

// DeleteReplication removes a replication. Its tags are removed later, by DropReplicated. It returns fault.NotFound if
// there is no such replication.
func (s *Store) DeleteReplication(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		r, err := store.Lock(ctx, t.Tx, &replications, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `UPDATE replication_states SET gone = $2, push = $3, paused = $3, scan_ms = NULL,
			due_ms = $4, pause_ms = 0, retry_ms = 0, holder = '', until_ms = 0 WHERE replication = $1`,
			store.Segment(uid), true, false, store.MS(clock)); err != nil {
			return err
		}
		return store.Remove(ctx, t.Tx, &replications, r)
	})
}

// ReplicationSecrets returns the sealed credentials of all replications.
func (s *Store) ReplicationSecrets(ctx context.Context) ([][]byte, error) {
	return store.ReadColumn[[]byte](ctx, s.Rows,
		`SELECT secret FROM replications WHERE length(secret) > 0 ORDER BY seg`)
}

// ForgetReplicationSecrets removes all credentials for which opens reports false, and returns the replications that
// lost their credentials.
func (t Tx) ForgetReplicationSecrets(
	ctx context.Context, opens func(sealed []byte) bool,
) (lost []registry.Replication, _ error) {
	return forgetSecrets(ctx, t, &replications, opens,
		func(r *registry.Replication) *resource.Secret { return &r.Credentials })
}

// forgetSecrets removes all secrets of a kind for which opens reports false, and returns the resources that lost one.
func forgetSecrets[T any](
	ctx context.Context, t Tx, kind *store.Kind[T], opens func(sealed []byte) bool, secretOf func(*T) *resource.Secret,
) (lost []T, _ error) {
	sealed, err := kind.All(ctx, t.Rows, ` WHERE length(t.secret) > 0 ORDER BY t.seg`)
	if err != nil {
		return nil, err
	}
	for _, before := range sealed {
		if opens(secretOf(&before).Sealed) {
			continue
		}
		after := before
		*secretOf(&after) = resource.Secret{}
		if err := store.Update(ctx, t.Tx, kind, before, &after); err != nil {
			return nil, err
		}
		lost = append(lost, after)
	}
	return lost, nil
}
