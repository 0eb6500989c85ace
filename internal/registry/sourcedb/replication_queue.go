package sourcedb

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	replicationLease = 20 * time.Second // lease on an attempt; RenewReplication renews it

	replicationRetry    = 30 * time.Second // wait after the first failure; it doubles with each further failure
	maxReplicationRetry = time.Hour
)

// HasReplications reports whether any replication copies after pushes.
func (s *Store) HasReplications(ctx context.Context) (has bool, err error) {
	err = s.Row(ctx, `SELECT EXISTS (SELECT 1 FROM replication_states WHERE push)`, nil, &has)
	return has, err
}

// ReplicationCursor returns the sequence number of the last event that was considered for replications. It returns -1
// if none was.
func (s *Store) ReplicationCursor(ctx context.Context) (seq int64, err error) {
	err = s.Row(ctx, `SELECT seq FROM replication_cursor WHERE id = 1`, nil, &seq)
	return seq, err
}

// SaveReplicationCursor stores the sequence number of the last event that was considered for replications.
func (s *Store) SaveReplicationCursor(ctx context.Context, seq int64) error {
	_, err := s.Exec(ctx, `UPDATE replication_cursor SET seq = $1 WHERE id = 1`, seq)
	return err
}

// ReplicationsOver returns the replications of groups that copy after pushes.
func (s *Store) ReplicationsOver(ctx context.Context, groups []resource.UID) ([]registry.Replication, error) {
	segments := make([]int64, 0, len(groups))
	for _, uid := range groups {
		segments = append(segments, store.Segment(uid))
	}
	q := store.Query{Engine: s.Engine}
	text := ` WHERE t.parent IN (SELECT v FROM ` + s.Engine.Unnest(&q, segments) + ` AS s)`
	found, err := replications.All(ctx, s.Rows, text, q.Args...)
	return slices.DeleteFunc(found, func(r registry.Replication) bool { return r.Trigger != registry.OnPush }), err
}

// ScanPushReplications makes every replication that copies after pushes queue all selected tags. It is called if
// events may have been missed.
func (s *Store) ScanPushReplications(ctx context.Context) error {
	return s.write(ctx, func(t Tx) error {
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		_, err = t.Exec(ctx, `UPDATE replication_states SET scan_ms = $1, due_ms = $1 WHERE push`, store.MS(clock))
		return err
	})
}

// ScanOrganization makes every replication of an organization that copies after pushes queue all selected tags.
func (s *Store) ScanOrganization(ctx context.Context, organization resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		_, err = t.Exec(ctx, `UPDATE replication_states SET scan_ms = $1, due_ms = $1 WHERE push AND root = $2`,
			store.MS(clock), store.Segment(organization))
		return err
	})
}

// ScanReplication queues all selected tags of a replication in one run, but not before gap has passed since the last
// call. A pause that the target has demanded continues. It returns fault.NotFound if there is no such replication.
func (s *Store) ScanReplication(ctx context.Context, uid resource.UID, gap time.Duration) error {
	return s.write(ctx, func(t Tx) error {
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		currentTime := store.MS(clock)
		n, err := t.Exec(ctx, `UPDATE replication_states SET run_ms = CASE WHEN run_ms + $3 > $2 THEN run_ms + $3 ELSE $2 END,
			scan_ms = CASE WHEN run_ms + $3 > $2 THEN run_ms + $3 ELSE $2 END,
			due_ms = CASE WHEN run_ms + $3 > $2 THEN run_ms + $3 ELSE $2 END, pause_ms = 0
			WHERE uid = $1 AND NOT gone`, string(uid), currentTime, gap.Milliseconds())
		if err == nil && n == 0 {
			err = fault.Missing("replication", string(uid))
		}
		return err
	})
}

// A QueuedTag is a tag to queue for a replication.
type QueuedTag struct {
	Repo resource.UID
	Name string
}

// QueueReplicated queues tags for a replication. A tag that is queued already keeps the time at which it was queued,
// and is due now. It does nothing if there is no such replication.
func (s *Store) QueueReplicated(ctx context.Context, replication resource.UID, tags []QueuedTag) error {
	if len(tags) == 0 {
		return nil
	}
	return s.write(ctx, func(t Tx) error {
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		return t.queue(ctx, replication, tags, store.MS(clock))
	})
}

func (t Tx) queue(ctx context.Context, replication resource.UID, tags []QueuedTag, now int64) error {
	// The row of the state is locked before the rows of tags, here and in EndReplication.
	n, err := t.Exec(ctx, `UPDATE replication_states SET due_ms = CASE WHEN due_ms < $2 THEN due_ms ELSE $2 END
		WHERE uid = $1 AND NOT gone`, string(replication), now)
	if err != nil || n == 0 {
		return err
	}
	slices.SortFunc(tags, func(a, b QueuedTag) int {
		return strings.Compare(string(a.Repo)+" "+a.Name, string(b.Repo)+" "+b.Name)
	})
	for _, g := range tags {
		if err := t.Later(ctx, `INSERT INTO replication_tags
			(replication, repo, repo_uid, name, digest, content, target, queue_ms, due_ms, changes, tries, error)
			VALUES ($1, $2, $3, $4, '', '', '', $5, $5, 1, 0, '') ON CONFLICT (replication, repo, name) DO UPDATE SET
			queue_ms = CASE WHEN replication_tags.due_ms IS NULL THEN excluded.queue_ms ELSE replication_tags.queue_ms END,
			error = CASE WHEN replication_tags.due_ms IS NULL THEN '' ELSE replication_tags.error END,
			due_ms = excluded.due_ms, changes = replication_tags.changes + 1, tries = 0`,
			store.Segment(replication), store.Segment(g.Repo), string(g.Repo), g.Name, now); err != nil {
			return err
		}
	}
	return nil
}

// QueueCopiedOf queues all tags of a repo that replications have copied or are to copy, because the repo was deleted.
func (s *Store) QueueCopiedOf(ctx context.Context, replication, repo resource.UID) error {
	names, err := store.ReadColumn[string](ctx, s.Rows,
		`SELECT name FROM replication_tags WHERE replication = $1 AND repo = $2`, store.Segment(replication),
		store.Segment(repo))
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(names, replicationBatch) {
		tags := make([]QueuedTag, 0, len(batch))
		for _, name := range batch {
			tags = append(tags, QueuedTag{repo, name})
		}
		if err := s.QueueReplicated(ctx, replication, tags); err != nil {
			return err
		}
	}
	return nil
}

// replicationBatch is the number of tags that one transaction queues.
const replicationBatch = 500

// TagsReaching returns the names of the tags of a repo that name a manifest, or an index that lists it.
func (s *Store) TagsReaching(ctx context.Context, repo resource.UID, digest string) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows, `SELECT DISTINCT g.name
		FROM `+registrydb.IndexesAbove(registrydb.OneManifest)+` AS x CROSS JOIN `+registrydb.TagRows+` AS g
		WHERE g.parent = $1 AND g.digest = x.digest`, store.Segment(repo), digest)
}

// A ScannedTag is a tag of a repo below the group of a replication.
type ScannedTag struct {
	Repo         resource.UID
	Name, Digest string
	Copied       string // digest that was last copied; "" if none was
	Error        string // reason why the last attempt did not copy it; "" if it did
}

// ScanTags returns up to n tags of a repo, in the order of their names, starting after last.
func (s *Store) ScanTags(
	ctx context.Context, replication, repo resource.UID, last string, n int,
) ([]ScannedTag, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (ScannedTag, error) {
		g := ScannedTag{Repo: repo}
		err := row.Scan(&g.Name, &g.Digest, &g.Copied, &g.Error)
		return g, err
	}, `SELECT g.name, g.digest, coalesce(r.digest, ''), coalesce(r.error, '') FROM `+registrydb.TagRows+` AS g
		LEFT JOIN replication_tags AS r ON r.replication = $1 AND r.repo = $2 AND r.name = g.name
		WHERE g.parent = $2 AND g.name > $3 ORDER BY g.name LIMIT $4`,
		store.Segment(replication), store.Segment(repo), last, n)
}

// ReposBelow returns up to n repos below a group, in the order of their UIDs, starting after last.
func (s *Store) ReposBelow(ctx context.Context, group, last resource.UID, n int) ([]resource.UID, error) {
	below, above := registrydb.Below(group)
	return store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT uid FROM `+registrydb.RepoRows+` AS t
		WHERE t.uid > $1 AND t.uid < $2 ORDER BY t.uid LIMIT $3`, max(below, string(last)), above, n)
}

// CopiedWithoutTag returns up to n tags that were copied and do not exist any more, after a tag in their order.
func (s *Store) CopiedWithoutTag(
	ctx context.Context, replication resource.UID, last QueuedTag, n int,
) ([]QueuedTag, error) {
	var repo int64
	if last.Repo != "" {
		repo = store.Segment(last.Repo)
	}
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (g QueuedTag, _ error) {
		err := row.Scan(&g.Repo, &g.Name)
		return g, err
	}, `SELECT r.repo_uid, r.name FROM replication_tags AS r WHERE r.replication = $1
		AND (r.repo > $2 OR r.repo = $2 AND r.name > $3) AND NOT EXISTS (SELECT 1 FROM `+registrydb.TagRows+` AS g
		WHERE g.parent = r.repo AND g.name = r.name) ORDER BY r.repo, r.name LIMIT $4`,
		store.Segment(replication), repo, last.Name, n)
}

// A ReplicationRun is one attempt to copy the pending tags of a replication, on one replica. It ends early when the
// replication changes, or when the replica does not renew the lease.
type ReplicationRun struct {
	UID  resource.UID
	Scan bool // whether all selected tags are to be queued first
	Gone bool // whether the replication was deleted

	holder string
}

// ReplicationsDue returns replications that are due, the longest due first. It returns at most perOrg for each
// organization, and at most n in all.
func (s *Store) ReplicationsDue(ctx context.Context, perOrg, n int) ([]resource.UID, error) {
	clock, err := s.clockMS(ctx)
	if err != nil {
		return nil, err
	}
	return store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT uid FROM (
			SELECT uid, due_ms, row_number() OVER (PARTITION BY root ORDER BY due_ms, replication) AS place
			FROM replication_states WHERE due_ms IS NOT NULL AND due_ms <= $1 AND pause_ms <= $1 AND retry_ms <= $1
			AND until_ms <= $1 AND NOT paused
		) AS d WHERE place <= $2 ORDER BY place, due_ms, uid LIMIT $3`, clock, perOrg, n)
}

// BeginReplication begins an attempt on the replica holder. It reports false if none is due, or if another replica has
// begun it.
func (s *Store) BeginReplication(
	ctx context.Context, uid resource.UID, holder string,
) (run ReplicationRun, ok bool, _ error) {
	err := s.write(ctx, func(t Tx) error {
		ok, run = false, ReplicationRun{UID: uid, holder: holder}
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		var scan int64
		err = t.Row(ctx, `SELECT t.gone, coalesce(t.scan_ms, 0) FROM replication_states AS t
			WHERE t.uid = $1 AND t.due_ms <= $2 AND t.pause_ms <= $2 AND t.retry_ms <= $2 AND t.until_ms <= $2
			AND NOT t.paused`+s.Engine.ForDelete, []any{string(uid), store.MS(clock)}, &run.Gone, &scan)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		ok, run.Scan = true, scan > 0 && scan <= store.MS(clock)
		_, err = t.Exec(ctx, `UPDATE replication_states SET holder = $2, until_ms = $3 WHERE uid = $1`, string(uid), holder,
			store.MS(clock.Add(replicationLease)))
		return err
	})
	return run, ok, err
}

// RenewReplication renews the lease on an attempt. It returns fault.Aborted if the attempt has ended.
func (s *Store) RenewReplication(ctx context.Context, run ReplicationRun) error {
	return s.write(ctx, func(t Tx) error { return t.keepReplication(ctx, run) })
}

func (t Tx) keepReplication(ctx context.Context, run ReplicationRun) error {
	clock, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	n, err := t.Exec(ctx, `UPDATE replication_states SET until_ms = $3 WHERE uid = $1 AND holder = $2 AND until_ms > $4`,
		string(run.UID), run.holder, store.MS(clock.Add(replicationLease)), store.MS(clock))
	if err == nil && n == 0 {
		err = fault.New(fault.Aborted, "Aborted: the replication has changed, or another replica runs it")
	}
	return err
}

// QueueScanned queues tags that an attempt has found. It returns fault.Aborted if the attempt has ended.
func (s *Store) QueueScanned(ctx context.Context, run ReplicationRun, tags []QueuedTag) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.keepReplication(ctx, run); err != nil {
			return err
		}
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		return t.queue(ctx, run.UID, tags, store.MS(clock))
	})
}

// EndScan records that an attempt has queued all selected tags. The next scan is due after interval, or never if it is
// zero.
func (s *Store) EndScan(ctx context.Context, run ReplicationRun, interval time.Duration) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.keepReplication(ctx, run); err != nil {
			return err
		}
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		var next any
		if interval > 0 {
			next = store.MS(clock.Add(interval))
		}
		_, err = t.Exec(ctx, `UPDATE replication_states SET scan_ms = $2 WHERE uid = $1`, string(run.UID), next)
		return err
	})
}

// A PendingTag is a pending tag of a replication.
type PendingTag struct {
	Repo    resource.UID
	Name    string
	Digest  string // digest that was last copied; "" if none was
	Content string // identifies everything that was copied with it
	Target  string // name of the repo at the target to which it was copied

	changes, tries int64
}

// PendingTags returns up to n pending tags that are due, the longest due first.
func (s *Store) PendingTags(ctx context.Context, run ReplicationRun, n int) ([]PendingTag, error) {
	clock, err := s.clockMS(ctx)
	if err != nil {
		return nil, err
	}
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (g PendingTag, _ error) {
		err := row.Scan(&g.Repo, &g.Name, &g.Digest, &g.Content, &g.Target, &g.changes, &g.tries)
		return g, err
	}, `SELECT repo_uid, name, digest, content, target, changes, tries FROM replication_tags
		WHERE replication = $1 AND due_ms IS NOT NULL AND due_ms <= $2 ORDER BY due_ms, repo, name LIMIT $3`,
		store.Segment(run.UID), clock, n)
}

// A CopiedTag is what the target has.
type CopiedTag struct{ Digest, Content, Target string }

// Copied records that the target has a tag. If the tag was queued again since it was read, it
// stays pending. It returns fault.Aborted if the attempt has ended.
func (s *Store) Copied(ctx context.Context, run ReplicationRun, g PendingTag, now CopiedTag) error {
	return s.settle(ctx, run, `UPDATE replication_tags SET digest = $5, content = $6, target = $7, tries = 0, error = '',
		due_ms = CASE WHEN changes = $4 THEN NULL ELSE due_ms END
		WHERE replication = $1 AND repo = $2 AND name = $3`, g, now.Digest, now.Content, now.Target)
}

// Dropped removes a tag that the replication does not select any more, or that does not exist any more.
func (s *Store) Dropped(ctx context.Context, run ReplicationRun, g PendingTag) error {
	return s.settle(ctx, run, `DELETE FROM replication_tags
		WHERE replication = $1 AND repo = $2 AND name = $3 AND changes = $4`, g)
}

// Skipped records why a replication does not select a tag although its name matches. The tag is not pending any more.
// What was copied under the tag before stays known.
func (s *Store) Skipped(ctx context.Context, run ReplicationRun, g PendingTag, why string) error {
	return s.settle(ctx, run, `UPDATE replication_tags SET error = $5, tries = 0,
		due_ms = CASE WHEN changes = $4 THEN NULL ELSE due_ms END
		WHERE replication = $1 AND repo = $2 AND name = $3`, g, why)
}

// NotCopied records why a tag was not copied. The next attempt is due later, depending on the number of failures.
func (s *Store) NotCopied(ctx context.Context, run ReplicationRun, g PendingTag, why string) error {
	clock, err := s.clockMS(ctx)
	if err != nil {
		return err
	}
	return s.settle(ctx, run, `UPDATE replication_tags SET error = $5, tries = tries + 1,
		due_ms = CASE WHEN changes = $4 THEN $6 ELSE due_ms END
		WHERE replication = $1 AND repo = $2 AND name = $3`, g, why, clock+backoff(g.tries).Milliseconds())
}

// backoff returns the wait after a failure that follows a number of others.
func backoff(tries int64) time.Duration {
	return min(maxReplicationRetry, replicationRetry<<min(tries, 10))
}

// settle runs a statement about a tag whose first parameters are the replication, the repo, the name and the changes.
func (s *Store) settle(ctx context.Context, run ReplicationRun, text string, g PendingTag, more ...any) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.keepReplication(ctx, run); err != nil {
			return err
		}
		args := []any{store.Segment(run.UID), store.Segment(g.Repo), g.Name, g.changes}
		_, err := t.Exec(ctx, text, append(args, more...)...)
		return err
	})
}

// A ReplicationEnd is the result of an attempt.
type ReplicationEnd struct {
	Error   string        // reason why the attempt failed for all tags; "" if it did not
	RetryIn time.Duration // pause that the target demands; 0 if it demands none
}

// EndReplication ends an attempt and stores its result. If the attempt has already ended, it does nothing.
func (s *Store) EndReplication(ctx context.Context, run ReplicationRun, end ReplicationEnd) error {
	return s.write(ctx, func(t Tx) error {
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		var tries, failed, success int64
		var scan sql.NullInt64
		err = t.Row(ctx, `SELECT t.tries, t.scan_ms, t.error_ms, t.success_ms FROM replication_states AS t
			WHERE t.uid = $1 AND t.holder = $2`+s.Engine.ForDelete, []any{string(run.UID), run.holder}, &tries, &scan,
			&failed, &success)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		var due sql.NullInt64
		if err := t.Row(ctx, `SELECT min(due_ms) FROM replication_tags WHERE replication = $1 AND due_ms IS NOT NULL`,
			[]any{store.Segment(run.UID)}, &due); err != nil {
			return err
		}
		var pause, retry int64
		switch {
		case end.Error != "":
			pause, failed = store.MS(clock.Add(backoff(tries))), store.MS(clock)
			tries++
		case !due.Valid:
			success = store.MS(clock)
			fallthrough
		default:
			tries = 0
		}
		if end.RetryIn > 0 {
			retry = store.MS(clock.Add(end.RetryIn))
			pause = retry
		}
		if scan.Valid && (!due.Valid || scan.Int64 < due.Int64) {
			due = scan
		}
		_, err = t.Exec(ctx, `UPDATE replication_states SET holder = '', until_ms = 0, due_ms = $2, pause_ms = $3,
			retry_ms = $4, tries = $5, error = $6, error_ms = $7, success_ms = $8 WHERE uid = $1`,
			string(run.UID), due, pause, retry, tries, end.Error, failed, success)
		return err
	})
}

// LeaveReplications ends all attempts without a result. It is for a server that is the only one and starts: attempts
// that a crash has ended otherwise last until their leases expire.
func (s *Store) LeaveReplications(ctx context.Context) error {
	_, err := s.Exec(ctx, `UPDATE replication_states SET holder = '', until_ms = 0 WHERE until_ms > 0`)
	return err
}

// LeaveReplication ends an attempt without a result, so that another replica can continue it.
func (s *Store) LeaveReplication(ctx context.Context, run ReplicationRun) error {
	_, err := s.Exec(ctx, `UPDATE replication_states SET holder = '', until_ms = 0 WHERE uid = $1 AND holder = $2`,
		string(run.UID), run.holder)
	return err
}

// DropReplicated removes up to n tags of a deleted replication. If there are no more, it removes the state of the
// replication, too, and reports true.
func (s *Store) DropReplicated(ctx context.Context, run ReplicationRun, n int) (done bool, _ error) {
	err := s.write(ctx, func(t Tx) error {
		done = false
		if err := t.keepReplication(ctx, run); err != nil {
			return err
		}
		seg := store.Segment(run.UID)
		removed, err := t.Exec(ctx, `DELETE FROM replication_tags WHERE replication = $1 AND (repo, name) IN
			(SELECT repo, name FROM replication_tags WHERE replication = $1 ORDER BY repo, name LIMIT $2)`, seg, n)
		if err != nil || removed == int64(n) {
			return err
		}
		done = true
		_, err = t.Exec(ctx, `DELETE FROM replication_states WHERE replication = $1 AND gone`, seg)
		return err
	})
	return done, err
}

// ReplicationStatus returns the status of a replication. It returns fault.NotFound if there is no such replication.
func (s *Store) ReplicationStatus(
	ctx context.Context, r registry.Replication,
) (out registry.ReplicationStatus, _ error) {
	var due sql.NullInt64
	var oldest sql.NullInt64
	var pause, retry, failed, success int64
	err := s.Row(ctx, `SELECT t.due_ms, t.pause_ms, t.retry_ms, t.error, t.error_ms, t.success_ms,
		(SELECT count(*) FROM (SELECT 1 FROM replication_tags AS g WHERE g.replication = t.replication
			AND g.due_ms IS NOT NULL LIMIT $2) AS p),
		(SELECT count(*) FROM (SELECT 1 FROM replication_tags AS g WHERE g.replication = t.replication
			AND g.due_ms IS NOT NULL AND g.error <> '' LIMIT $2) AS f),
		(SELECT min(g.queue_ms) FROM replication_tags AS g WHERE g.replication = t.replication AND g.due_ms IS NOT NULL)
		FROM replication_states AS t WHERE t.uid = $1 AND NOT t.gone`, []any{string(r.UID), registry.MaxPendingCount},
		&due, &pause, &retry, &out.Error, &failed, &success, &out.Pending, &out.Failed, &oldest)
	if errors.Is(err, sql.ErrNoRows) {
		err = fault.Missing("replication", string(r.UID))
	}
	if err != nil {
		return out, err
	}
	if out.Error != "" {
		out.ErrorTime = store.FromMS(failed)
	}
	out.SuccessTime = optional(success)
	if oldest.Valid {
		out.OldestTime = store.FromMS(oldest.Int64)
	}
	if due.Valid && !r.Paused {
		out.DueTime = store.FromMS(max(due.Int64, pause, retry))
	}
	clock, err := s.clockMS(ctx)
	out.State = registry.ReplicationIdle
	switch {
	case r.Paused:
		out.State = registry.ReplicationPaused
	case out.Error != "" || out.Failed > 0:
		out.State = registry.ReplicationFailing
	case out.Pending > 0 || due.Valid && due.Int64 <= clock:
		out.State = registry.ReplicationPending
	}
	return out, err
}

// ReplicatedTags returns one page of the pending tags of a replication, by repo and name.
func (s *Store) ReplicatedTags(
	ctx context.Context, replication resource.UID, p page.Request,
) (out page.Page[registry.ReplicatedTag], _ error) {
	seg := store.Segment(replication)
	if err := s.Row(ctx, `SELECT count(*) FROM (SELECT 1 FROM replication_tags AS g WHERE g.replication = $1
		AND g.due_ms IS NOT NULL LIMIT $2) AS p`, []any{seg, registry.MaxPendingCount}, &out.Total); err != nil {
		return out, err
	}
	var repo, name string
	if p.After != nil {
		repo, name = p.After.UID, p.After.Key
	}
	var err error
	out.Items, err = store.ReadAll(ctx, s.Rows, func(row store.Scanner) (g registry.ReplicatedTag, _ error) {
		var queued, due int64
		err := row.Scan(&g.Repo, &g.Name, &g.Digest, &queued, &due, &g.Error)
		g.QueueTime, g.DueTime = store.FromMS(queued), store.FromMS(due)
		return g, err
	}, `SELECT repo_uid, name, digest, queue_ms, due_ms, error FROM replication_tags
		WHERE replication = $1 AND due_ms IS NOT NULL AND (repo_uid > $2 OR repo_uid = $2 AND name > $3)
		ORDER BY repo_uid, name LIMIT $4 OFFSET $5`, seg, repo, name, p.Size+1, p.Skip)
	if err == nil && len(out.Items) > p.Size {
		out.Items = out.Items[:p.Size]
		last := out.Items[p.Size-1]
		out.Last = &page.Cursor{UID: string(last.Repo), Key: last.Name}
	}
	return out, err
}

// ReplicationTotals are numbers about all replications that are not paused, for metrics.
type ReplicationTotals struct {
	Pending int64     // number of pending tags; counted up to registry.MaxPendingCount
	Failing int64     // number of replications whose last attempt failed for all tags
	Oldest  time.Time // time since which the oldest pending tag is queued; zero if none is pending
}

// ReplicationTotals returns numbers about all replications.
func (s *Store) ReplicationTotals(ctx context.Context) (out ReplicationTotals, _ error) {
	var oldest sql.NullInt64
	const active = `replication_states AS t WHERE t.due_ms IS NOT NULL AND NOT t.paused AND NOT t.gone`
	err := s.Row(ctx, `SELECT (SELECT count(*) FROM `+active+` AND t.error <> ''),
		(SELECT min((SELECT min(g.queue_ms) FROM replication_tags AS g
			WHERE g.replication = t.replication AND g.due_ms IS NOT NULL)) FROM `+active+`),
		(SELECT count(*) FROM (SELECT 1 FROM replication_states AS t CROSS JOIN replication_tags AS g
			WHERE t.due_ms IS NOT NULL AND NOT t.paused AND NOT t.gone AND g.replication = t.replication
			AND g.due_ms IS NOT NULL LIMIT $1) AS p)`, []any{registry.MaxPendingCount}, &out.Failing, &oldest, &out.Pending)
	if oldest.Valid {
		out.Oldest = store.FromMS(oldest.Int64)
	}
	return out, err
}
