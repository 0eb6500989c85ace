package sourcedb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
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
	// hasSource is the SQL condition that the repo t has a source. The index repos_following has the same condition.
	hasSource = `replace(t.detail, '"syncConfig":', '') <> t.detail`

	maxChain = 100 // longest chain of repos in which each follows the next
)

// Reasons, shown to callers, why a repo is not equal to its source.
const (
	notConfirmed = "the source was set before the repo was restored; set it again"
	expired      = "following has expired; set the source again"
)

// InsertFollower is registrydb.Store.InsertRepo for a repo that follows another. The syncs of the repo act as the
// identity by. It returns fault.NotFound if the source does not exist.
func (s *Store) InsertFollower(ctx context.Context, r registry.Repo, by resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		if err := registrydb.In(t.Tx).InsertRepo(ctx, r); err != nil {
			return err
		}
		return t.follow(ctx, r, by)
	})
}

// UpdateFollower is registrydb.Store.UpdateRepo for a change that sets the source of a repo, to another one or to the
// same one again. The syncs of the repo act as the identity by. It returns fault.InvalidArgument if the repo would
// follow itself through other repos, and fault.NotFound if the source does not exist.
func (s *Store) UpdateFollower(
	ctx context.Context, before, after registry.Repo, by resource.UID,
) (registry.Repo, error) {
	err := s.write(ctx, func(t Tx) error {
		if err := registrydb.In(t.Tx).UpdateRepo(ctx, before, &after); err != nil {
			return err
		}
		return t.follow(ctx, after, by)
	})
	return after, err
}

// follow makes a repo follow its source. The first sync is due immediately.
func (t Tx) follow(ctx context.Context, r registry.Repo, by resource.UID) error {
	source := resource.UID(r.Sync.Source)
	if err := t.Require(ctx, "repos", "repo", source); err != nil {
		return err
	}
	if err := t.refuseLoop(ctx, r.UID, source); err != nil {
		return err
	}
	clock, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	if err := registrydb.In(t.Tx).Unfollow(ctx, r.UID); err != nil {
		return err
	}
	_, err = t.Exec(ctx, `INSERT INTO follows (repo, uid, root, source, source_uid, identity, set_ms, due_ms, holder,
		until_ms, again, begin_ms, ran_ms, success_ms, fail_ms, tries, error, failed, tags)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, '', 0, $8, 0, 0, 0, 0, 0, '', '', 0)`, store.Segment(r.UID), string(r.UID),
		store.Segment(r.UID.Root()), store.Segment(source), string(source), string(by), store.MS(clock), false)
	return err
}

// refuseLoop returns fault.InvalidArgument if source follows repo, directly or through other repos. It locks the row of
// follow_cursor, so that no other transaction can set a source before the commit.
func (t Tx) refuseLoop(ctx context.Context, repo, source resource.UID) error {
	if _, err := t.Exec(ctx, `UPDATE follow_cursor SET seq = seq WHERE id = 1`); err != nil {
		return err
	}
	const text = `SELECT f.source_uid FROM follows AS f CROSS JOIN ` + registrydb.RepoRows + ` AS t
		WHERE ` + registrydb.FollowRow +
		` AND f.uid = $1`
	for current, n := source, 0; ; n++ {
		if current == repo {
			return fault.Field("sync_config.source", "would make this repo follow itself through other repos")
		}
		if n == maxChain {
			return fault.Field("sync_config.source", "follows a chain of more than %d repos", maxChain)
		}
		err := t.Row(ctx, text, []any{string(current)}, &current)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// clockMS returns the current time of the database server, in milliseconds.
func (s *Store) clockMS(ctx context.Context) (ms int64, err error) {
	if !s.Engine.Postgres {
		_, clock := s.Clock()
		return store.MS(clock), nil
	}
	err = s.Row(ctx, `SELECT `+s.Engine.Clock, nil, &ms)
	return ms, err
}

const followColumns = `t.uid, t.detail, f.source_uid, f.identity, f.set_ms, f.due_ms, f.until_ms, f.begin_ms, f.ran_ms,
	f.success_ms, f.fail_ms, f.error, f.failed, f.tags`

// selectFollows selects the columns in followColumns for repos, whose alias is t.
const selectFollows = `SELECT ` + followColumns + ` FROM ` + registrydb.RepoRows + ` AS t
	LEFT JOIN follows AS f ON ` + registrydb.FollowRow

// Follow returns the sync status of a repo. It returns fault.NotFound if there is no such repo, or if the repo has no
// source.
func (s *Store) Follow(ctx context.Context, repo resource.UID) (f registry.Follow, _ error) {
	clock, err := s.clockMS(ctx)
	if err != nil {
		return f, err
	}
	found, err := s.readFollows(ctx, clock, selectFollows+` WHERE t.uid = $1 AND `+hasSource, string(repo))
	if err == nil && len(found) == 0 {
		err = fault.Missing("source of repo", string(repo))
	}
	if err != nil {
		return f, err
	}
	return found[0], nil
}

// Follows returns one page of the sync statuses of the repos below a group that have a source, in the order of their
// UIDs.
func (s *Store) Follows(
	ctx context.Context, group resource.UID, p page.Request,
) (out page.Page[registry.Follow], _ error) {
	clock, err := s.clockMS(ctx)
	if err != nil {
		return out, err
	}
	below, above := registrydb.Below(group)
	if err := s.Row(ctx, `SELECT count(*) FROM `+registrydb.RepoRows+` AS t WHERE `+hasSource+` AND t.uid > $1
		AND t.uid < $2`,
		[]any{below, above}, &out.Total); err != nil {
		return out, err
	}
	if p.After != nil {
		below = p.After.UID
	}
	out.Items, err = s.readFollows(ctx, clock, selectFollows+` WHERE `+hasSource+` AND t.uid > $1 AND t.uid < $2
		ORDER BY t.uid LIMIT $3 OFFSET $4`, below, above, p.Size+1, p.Skip)
	if err == nil && len(out.Items) > p.Size {
		out.Items = out.Items[:p.Size]
		out.Last = &page.Cursor{UID: string(out.Items[p.Size-1].Repo)}
	}
	return out, err
}

// readFollows runs a statement that begins with selectFollows. clock is the current time of the database in
// milliseconds, on which the state of each repo depends.
func (s *Store) readFollows(ctx context.Context, clock int64, text string, args ...any) ([]registry.Follow, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (f registry.Follow, _ error) {
		var detail string
		var source, identity, why, failed *string
		var set, due, until, begun, ran, success, fail, tags *int64
		err := row.Scan(&f.Repo, &detail, &source, &identity, &set, &due, &until, &begun, &ran, &success, &fail,
			&why, &failed, &tags)
		if err != nil {
			return f, err
		}
		var r registry.Repo
		if err := json.Unmarshal([]byte(detail), &r); err != nil || r.Sync == nil {
			return f, fmt.Errorf("detail of repo %s: %w", f.Repo, err)
		}
		f.Source = resource.UID(r.Sync.Source)
		if source == nil { // the repo was restored from the trash, so it has no row in follows
			f.State, f.Error, f.ExpireTime = registry.FollowFailed, notConfirmed, r.Sync.ExpirationTime
			return f, nil
		}
		f.Identity, f.Error, f.Tags = resource.UID(*identity), *why, *tags
		f.SetTime, f.RunTime, f.SuccessTime = store.FromMS(*set), optional(*ran), optional(*success)
		f.ExpireTime = store.FromMS(max(*set, *ran)).Add(registry.FollowLife)
		if due != nil {
			f.DueTime = store.FromMS(*due)
		}
		if *failed != "" {
			f.FailedTags = strings.Split(*failed, " ")
		}
		f.State, f.StateTime = registry.FollowEqual, f.SuccessTime
		switch {
		case f.Expired(store.FromMS(clock)):
			f.State, f.StateTime, f.Error = registry.FollowFailed, f.ExpireTime, expired
		case *until > clock:
			f.State, f.StateTime = registry.FollowRunning, store.FromMS(*begun)
		case due != nil && *due <= clock:
			f.State, f.StateTime = registry.FollowQueued, f.DueTime
		case f.Error != "":
			f.State, f.StateTime = registry.FollowFailed, store.FromMS(*fail)
		}
		return f, nil
	}, text, args...)
}

// optional returns the time in a column. It returns the zero time for 0.
func optional(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return store.FromMS(ms)
}

// RequestFollow makes a sync of a repo that follows another due, but not before gap has passed since its last sync
// began. It returns fault.FailedPrecondition if the repo does not follow another, or if its sync has expired.
func (s *Store) RequestFollow(ctx context.Context, repo resource.UID, gap time.Duration) error {
	return s.write(ctx, func(t Tx) error {
		var due sql.NullInt64
		var begun int64
		err := t.Row(ctx, `SELECT f.due_ms, f.begin_ms FROM follows AS f CROSS JOIN `+registrydb.RepoRows+` AS t
			WHERE `+registrydb.FollowRow+` AND f.uid = $1`, []any{string(repo)}, &due, &begun)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fault.Unmet("SYNC_UNSET", notConfirmed)
		case err != nil:
			return err
		case !due.Valid:
			return fault.Unmet("SYNC_EXPIRED", expired)
		}
		return t.markDue(ctx, begun+gap.Milliseconds(), store.Segment(repo))
	})
}

// markDue makes syncs due at from (in milliseconds), or now if from is in the past. A sync that is due earlier keeps
// its time. If a repo is being synced, it is synced again afterwards. Repos that no longer follow their source because
// following has expired are skipped.
func (t Tx) markDue(ctx context.Context, from int64, repos ...int64) error {
	clock, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	q := store.Query{Engine: t.DB.Engine}
	current := q.Arg(store.MS(clock))
	due := q.Arg(max(from, store.MS(clock)))
	_, err = t.Exec(ctx, fmt.Sprintf(`UPDATE follows SET again = (until_ms > %[1]s),
		due_ms = CASE WHEN until_ms > %[1]s OR due_ms < %[2]s THEN due_ms ELSE %[2]s END
		WHERE due_ms IS NOT NULL AND repo IN (SELECT v FROM %[3]s AS s)`,
		current, due, t.DB.Engine.Unnest(&q, repos)), q.Args...)
	return err
}

// FollowCursor returns the sequence number of the last event that was processed for repos with a source. It returns
// -1 if no event was processed yet.
func (s *Store) FollowCursor(ctx context.Context) (seq int64, err error) {
	err = s.Row(ctx, `SELECT seq FROM follow_cursor WHERE id = 1`, nil, &seq)
	return seq, err
}

// HasFollowers reports whether any repo follows another.
func (s *Store) HasFollowers(ctx context.Context) (has bool, err error) {
	err = s.Row(ctx, `SELECT EXISTS (SELECT 1 FROM follows)`, nil, &has)
	return has, err
}

// followBatch is the number of repos that one transaction makes due.
const followBatch = 500

// TellFollowers makes syncs of the repos that follow sources due, in transactions of followBatch repos each. Then it
// sets the cursor to seq. If sources is nil, it makes all repos with a source due.
func (s *Store) TellFollowers(ctx context.Context, sources []resource.UID, seq int64) error {
	q := store.Query{Engine: s.Engine}
	text := `SELECT repo FROM follows`
	if sources != nil {
		var segments []int64
		for _, uid := range sources {
			segments = append(segments, store.Segment(uid))
		}
		text = `SELECT f.repo FROM ` + s.Engine.Unnest(&q, segments) + ` AS s CROSS JOIN follows AS f WHERE f.source = s.v`
	}
	followers, err := store.ReadColumn[int64](ctx, s.Rows, text, q.Args...)
	if err != nil {
		return err
	}
	slices.Sort(followers) // every transaction locks repos in this order, which prevents deadlocks
	for batch := range slices.Chunk(followers, followBatch) {
		if err := s.write(ctx, func(t Tx) error { return t.markDue(ctx, 0, batch...) }); err != nil {
			return err
		}
	}
	_, err = s.Exec(ctx, `UPDATE follow_cursor SET seq = $1 WHERE id = 1`, seq)
	return err
}
