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
	// named is the condition that the repo t has a source. The index repos_following has these.
	named = `replace(t.detail, '"syncConfig":', '') <> t.detail`

	maxChain = 100 // repos that follow one another
)

// Texts for those who ask why a repo is not equal to its source.
const (
	nobodySet = "nobody who may push here has set the source since this server follows: set it again"
	expired   = "following has expired: set the source again"
)

// InsertFollower is InsertRepo for a repo that follows another, in the name of an identity. It returns fault.NotFound if
// there is no such source.
func (s *Store) InsertFollower(ctx context.Context, r registry.Repo, by resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		if err := registrydb.In(t.Tx).InsertRepo(ctx, r); err != nil {
			return err
		}
		return t.follow(ctx, r, by)
	})
}

// UpdateFollower is UpdateRepo that makes the repo follow another, or anew, in the name of an identity. It returns
// fault.InvalidArgument if the two would follow one another, and fault.NotFound if there is no such source.
func (s *Store) UpdateFollower(ctx context.Context, before, after registry.Repo, by resource.UID) (registry.Repo, error) {
	err := s.write(ctx, func(t Tx) error {
		if err := registrydb.In(t.Tx).UpdateRepo(ctx, before, &after); err != nil {
			return err
		}
		return t.follow(ctx, after, by)
	})
	return after, err
}

// follow makes a repo follow the one that it names. It is due at once.
func (t Tx) follow(ctx context.Context, r registry.Repo, by resource.UID) error {
	source := resource.UID(r.Sync.Source)
	if err := t.Require(ctx, "repos", "repo", source); err != nil {
		return err
	}
	if err := t.refuseLoop(ctx, r.UID, source); err != nil {
		return err
	}
	now, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	if err := registrydb.In(t.Tx).Unfollow(ctx, r.UID); err != nil {
		return err
	}
	_, err = t.Exec(ctx, `INSERT INTO follows (repo, uid, root, source, source_uid, identity, set_ms, due_ms, holder, until_ms, again,
		begin_ms, ran_ms, success_ms, fail_ms, tries, error, failed, tags)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, '', 0, $8, 0, 0, 0, 0, 0, '', '', 0)`, store.Segment(r.UID), string(r.UID),
		store.Segment(r.UID.Root()), store.Segment(source), string(source), string(by), store.MS(now), false)
	return err
}

// refuseLoop returns fault.InvalidArgument if source follows repo, through others perhaps. Nobody else sets a source until
// the commit.
func (t Tx) refuseLoop(ctx context.Context, repo, source resource.UID) error {
	if _, err := t.Exec(ctx, `UPDATE follow_cursor SET seq = seq WHERE id = 1`); err != nil {
		return err
	}
	for at, n := source, 0; ; n++ {
		if at == repo {
			return fault.Field("sync_config.source", "would make this repo follow itself, through others")
		}
		if n == maxChain {
			return fault.Field("sync_config.source", "follows others that follow others, more than %d in a row", maxChain)
		}
		err := t.Row(ctx, `SELECT f.source_uid FROM follows AS f CROSS JOIN repos AS t WHERE `+registrydb.FollowRow+` AND f.uid = $1`,
			[]any{string(at)}, &at)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// clockMS returns the time of the database.
func (s *Store) clockMS(ctx context.Context) (ms int64, err error) {
	if !s.Engine.Postgres {
		_, now := s.Clock()
		return store.MS(now), nil
	}
	err = s.Row(ctx, `SELECT `+s.Engine.Clock, nil, &ms)
	return ms, err
}

const followColumns = `t.uid, t.detail, f.source_uid, f.identity, f.set_ms, f.due_ms, f.until_ms, f.begin_ms, f.ran_ms, f.success_ms,
	f.fail_ms, f.error, f.failed, f.tags`

// Follow returns how a repo stands that follows another. It returns fault.NotFound if it has no source, or if there is no
// such repo.
func (s *Store) Follow(ctx context.Context, repo resource.UID) (f registry.Follow, _ error) {
	now, err := s.clockMS(ctx)
	if err != nil {
		return f, err
	}
	all, err := s.readFollows(ctx, now, `SELECT `+followColumns+` FROM repos AS t LEFT JOIN follows AS f ON `+registrydb.FollowRow+`
		WHERE t.uid = $1 AND `+named, string(repo))
	if err == nil && len(all) == 0 {
		err = fault.Missing("source of repo", string(repo))
	}
	if err != nil {
		return f, err
	}
	return all[0], nil
}

// Follows returns one page of the repos with a source below a group, in the order of their uids.
func (s *Store) Follows(ctx context.Context, group resource.UID, p page.Request) (out page.Page[registry.Follow], _ error) {
	now, err := s.clockMS(ctx)
	if err != nil {
		return out, err
	}
	below, above := registrydb.Below(group)
	if err := s.Row(ctx, `SELECT count(*) FROM repos AS t WHERE `+named+` AND t.uid > $1 AND t.uid < $2`, []any{below, above},
		&out.Total); err != nil {
		return out, err
	}
	if p.After != nil {
		below = p.After.UID
	}
	out.Items, err = s.readFollows(ctx, now, `SELECT `+followColumns+` FROM repos AS t LEFT JOIN follows AS f ON `+registrydb.FollowRow+`
		WHERE `+named+` AND t.uid > $1 AND t.uid < $2 ORDER BY t.uid LIMIT $3 OFFSET $4`, below, above, p.Size+1, p.Skip)
	if err == nil && len(out.Items) > p.Size {
		out.Items = out.Items[:p.Size]
		out.Last = &page.Cursor{UID: string(out.Items[p.Size-1].Repo)}
	}
	return out, err
}

func (s *Store) readFollows(ctx context.Context, now int64, text string, args ...any) ([]registry.Follow, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (f registry.Follow, _ error) {
		var detail string
		var source, identity, why, failed *string
		var set, due, until, begun, ran, success, fail, tags *int64
		err := row.Scan(&f.Repo, &detail, &source, &identity, &set, &due, &until, &begun, &ran, &success, &fail, &why, &failed, &tags)
		if err != nil {
			return f, err
		}
		var r registry.Repo
		if err := json.Unmarshal([]byte(detail), &r); err != nil || r.Sync == nil {
			return f, fmt.Errorf("detail of repo %s: %w", f.Repo, err)
		}
		f.Source = resource.UID(r.Sync.Source)
		if source == nil { // nobody has set it
			f.State, f.Error, f.ExpireTime = registry.FollowFailed, nobodySet, r.Sync.ExpirationTime
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
		case f.Expired(store.FromMS(now)):
			f.State, f.StateTime, f.Error = registry.FollowFailed, f.ExpireTime, expired
		case *until > now:
			f.State, f.StateTime = registry.FollowRunning, store.FromMS(*begun)
		case due != nil && *due <= now:
			f.State, f.StateTime = registry.FollowQueued, f.DueTime
		case f.Error != "":
			f.State, f.StateTime = registry.FollowFailed, store.FromMS(*fail)
		}
		return f, nil
	}, text, args...)
}

// optional returns the time of a column in which 0 stands for none.
func optional(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return store.FromMS(ms)
}

// RequestFollow makes a repo that follows another due, but no earlier than gap after it was last begun. It returns
// fault.FailedPrecondition if it does not follow, or does not any more.
func (s *Store) RequestFollow(ctx context.Context, repo resource.UID, gap time.Duration) error {
	return s.write(ctx, func(t Tx) error {
		var due sql.NullInt64
		var begun int64
		err := t.Row(ctx, `SELECT f.due_ms, f.begin_ms FROM follows AS f CROSS JOIN repos AS t WHERE `+registrydb.FollowRow+` AND f.uid = $1`,
			[]any{string(repo)}, &due, &begun)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fault.Unmet("SYNC_UNSET", nobodySet)
		case err != nil:
			return err
		case !due.Valid:
			return fault.Unmet("SYNC_EXPIRED", expired)
		}
		return t.markDue(ctx, begun+gap.Milliseconds(), store.Segment(repo))
	})
}

// markDue makes repos due now, or at a time if that is later. One that is being made equal is due again afterwards. Those
// whose following has ended are not.
func (t Tx) markDue(ctx context.Context, from int64, repos ...int64) error {
	clock, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	q := store.Query{Engine: t.DB.Engine}
	now := q.Arg(store.MS(clock))
	at := q.Arg(max(from, store.MS(clock)))
	_, err = t.Exec(ctx, fmt.Sprintf(`UPDATE follows SET again = (until_ms > %[1]s),
		due_ms = CASE WHEN until_ms > %[1]s OR due_ms < %[2]s THEN due_ms ELSE %[2]s END
		WHERE due_ms IS NOT NULL AND repo IN (SELECT v FROM %[3]s AS s)`, now, at, t.DB.Engine.Unnest(&q, repos)), q.Args...)
	return err
}

// FollowCursor returns up to which event followers were told that their source has changed: -1 before the first.
func (s *Store) FollowCursor(ctx context.Context) (seq int64, err error) {
	err = s.Row(ctx, `SELECT seq FROM follow_cursor WHERE id = 1`, nil, &seq)
	return seq, err
}

// HasFollowers reports whether any repo follows another.
func (s *Store) HasFollowers(ctx context.Context) (has bool, err error) {
	err = s.Row(ctx, `SELECT EXISTS (SELECT 1 FROM follows)`, nil, &has)
	return has, err
}

// followBatch is how many followers one transaction makes due.
const followBatch = 500

// TellFollowers makes those due that follow repos which have changed, and then moves the cursor. sources nil is every repo.
// It takes several transactions if they are many.
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
	all, err := store.ReadColumn[int64](ctx, s.Rows, text, q.Args...)
	if err != nil {
		return err
	}
	slices.Sort(all) // whoever locks several does it in order
	for some := range slices.Chunk(all, followBatch) {
		if err := s.write(ctx, func(t Tx) error { return t.markDue(ctx, 0, some...) }); err != nil {
			return err
		}
	}
	_, err = s.Exec(ctx, `UPDATE follow_cursor SET seq = $1 WHERE id = 1`, seq)
	return err
}
