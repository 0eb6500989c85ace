package sourcedb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	followEvery = time.Hour   // at least so often each repo is made equal to its source
	followLease = time.Minute // for how long one is kept from other replicas; each change to it begins anew

	followRetry = 30 * time.Second // after the first failure; then twice as long each time, up to followEvery

	followSoon = time.Second // after a run that has met somebody else's change

	maxFailedTags = 10 // that are remembered of a run
)

// A FollowRun is a repo that is being made equal to its source by one replica. It ends when somebody sets another source,
// or when the replica says nothing for a minute.
type FollowRun struct {
	Repo, Source, Identity resource.UID

	holder string
}

// FollowsDue returns for each organization that has repos which are due those that are due for longest: each of them at
// most, and n altogether.
func (s *Store) FollowsDue(ctx context.Context, each, n int) ([]resource.UID, error) {
	now, err := s.clockMS(ctx)
	if err != nil {
		return nil, err
	}
	return store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT uid FROM (
			SELECT uid, due_ms, row_number() OVER (PARTITION BY root ORDER BY due_ms, repo) AS place FROM follows
			WHERE due_ms IS NOT NULL AND due_ms <= $1
		) AS d WHERE place <= $2 ORDER BY place, due_ms, uid LIMIT $3`, now, each, n)
}

// TakeFollow begins to make a repo equal to its source, for one that others know as holder. It reports false if the repo is
// not due, if another replica was first, or if it does not follow any more. If following has expired, it is never due again.
func (s *Store) TakeFollow(ctx context.Context, repo resource.UID, holder string) (run FollowRun, ok bool, _ error) {
	err := s.write(ctx, func(t Tx) error {
		ok, run = false, FollowRun{Repo: repo, holder: holder}
		now, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		var counts bool
		var set, ran int64
		err = t.Row(ctx, `SELECT t.source_uid, t.identity, t.set_ms, t.ran_ms,
			EXISTS (SELECT 1 FROM repos AS r WHERE r.seg = t.repo AND r.detail LIKE '%"source":"' || t.source_uid || '"%')
			FROM follows AS t WHERE t.uid = $1 AND t.due_ms <= $2 AND t.until_ms <= $2`+s.Engine.ForDelete,
			[]any{string(repo), store.MS(now)}, &run.Source, &run.Identity, &set, &ran, &counts)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		case !counts: // the version before has changed the source
			return registrydb.In(t.Tx).Unfollow(ctx, repo)
		case store.MS(now) > max(set, ran)+registry.FollowLife.Milliseconds():
			_, err := t.Exec(ctx, `UPDATE follows SET due_ms = NULL WHERE uid = $1`, string(repo))
			return err
		}
		ok = true
		_, err = t.Exec(ctx, `UPDATE follows SET holder = $2, again = $3, begin_ms = $4, until_ms = $5, due_ms = $5 WHERE uid = $1`,
			string(repo), holder, false, store.MS(now), store.MS(now.Add(followLease)))
		return err
	})
	return run, ok, err
}

// keepFollow returns fault.Aborted unless a run goes on, and keeps others from it until the commit. Both repos are there
// until then: it returns a fault.NotFound about one that is not.
func (t Tx) keepFollow(ctx context.Context, run FollowRun) error {
	if err := t.Require(ctx, "repos", "repo", run.Repo); err != nil {
		return err
	}
	if err := t.Require(ctx, "repos", "source", run.Source); err != nil {
		return err
	}
	now, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	n, err := t.Exec(ctx, `UPDATE follows SET until_ms = $3, due_ms = $3 WHERE uid = $1 AND holder = $2 AND until_ms > $4`,
		string(run.Repo), run.holder, store.MS(now.Add(followLease)), store.MS(now))
	if err == nil && n == 0 {
		err = fault.New(fault.Aborted, "Aborted: the repo follows another now, or another replica does this")
	}
	return err
}

// A FollowedTag is a tag that a repo and its source do not have alike.
type FollowedTag struct {
	Name   string
	Digest string // in the source; "" if it has no such tag
	Here   string // in the repo; "" if it has no such tag
}

// FollowWanted returns up to n tags of a source, after last in the order of their names, that the repo does not have, or has
// elsewhere.
func (s *Store) FollowWanted(ctx context.Context, run FollowRun, last string, n int) ([]FollowedTag, error) {
	return store.ReadAll(ctx, s.Rows, scanFollowed, `SELECT s.name, s.digest, coalesce(f.digest, '') FROM tags AS s
		LEFT JOIN tags AS f ON f.parent = $2 AND f.name = s.name
		WHERE s.parent = $1 AND s.name > $3 AND (f.digest IS NULL OR f.digest <> s.digest) ORDER BY s.name LIMIT $4`,
		store.Segment(run.Source), store.Segment(run.Repo), last, n)
}

func scanFollowed(row store.Scanner) (g FollowedTag, _ error) {
	err := row.Scan(&g.Name, &g.Digest, &g.Here)
	return g, err
}

// FollowReferrers returns up to n digests after last of what is attached in a source to something that the repo has, and
// that the repo lacks.
func (s *Store) FollowReferrers(ctx context.Context, run FollowRun, last string, n int) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows, `SELECT m.digest FROM manifests AS m WHERE m.repo = $1 AND m.subject <> '' AND m.digest > $3
		AND EXISTS (SELECT 1 FROM manifests AS h WHERE h.repo = $2 AND h.digest = m.subject)
		AND NOT EXISTS (SELECT 1 FROM manifests AS f WHERE f.repo = $2 AND f.digest = m.digest)
		ORDER BY m.digest LIMIT $4`, store.Segment(run.Source), store.Segment(run.Repo), last, n)
}

// CopyFollowed is CopyImages from the source of a run to its repo. It returns fault.Aborted if the run has ended, or if a
// tag of the source has moved, and fault.NotFound if one of the repos is gone.
func (s *Store) CopyFollowed(ctx context.Context, run FollowRun, c registrydb.Copying) (registry.ImageCopy, error) {
	c.From, c.By, c.Agent = run.Source, run.Identity, "follow"
	c.Promote, c.Reason = false, ""
	return s.registry.CopyInto(ctx, c, func(t registrydb.Tx) (resource.UID, error) {
		return run.Repo, In(t.Tx).keepFollow(ctx, run)
	})
}

// DropFollowed deletes up to n tags of the repo of a run, after last in the order of their names, that the source does not
// have. Those that the settings make immutable stay, and are returned as kept. next is the last name that it looked at; ""
// if there are no others.
func (s *Store) DropFollowed(
	ctx context.Context, run FollowRun, last string, n int,
) (removed int, kept []string, next string, _ error) {
	err := s.write(ctx, func(t Tx) error {
		removed, kept, next = 0, nil, ""
		if err := t.keepFollow(ctx, run); err != nil {
			return err
		}
		d, err := s.registry.DeletionFrom(ctx, registrydb.In(t.Tx), run.Repo)
		if err != nil {
			return err
		}
		d.Follows = false // because this is following
		surplus, err := registrydb.In(t.Tx).LockTagsNotIn(ctx, run.Repo, run.Source, last, n)
		if err != nil {
			return err
		}
		for _, g := range surplus {
			if d.Frozen(g.Name) {
				kept = append(kept, g.Name)
				continue
			}
			if err := registrydb.In(t.Tx).DeleteTag(ctx, g, nil, d); err != nil {
				return err
			}
			removed++
		}
		if len(surplus) == n {
			next = surplus[n-1].Name
		}
		return nil
	})
	return removed, kept, next, err
}

// FollowSurplus reports whether a repo has a tag that the source of a run does not have.
func (s *Store) FollowSurplus(ctx context.Context, run FollowRun) (some bool, err error) {
	err = s.Row(ctx, `SELECT EXISTS (SELECT 1 FROM tags AS t WHERE t.parent = $1 AND NOT EXISTS
		(SELECT 1 FROM tags AS s WHERE s.parent = $2 AND s.name = t.name))`,
		[]any{store.Segment(run.Repo), store.Segment(run.Source)}, &some)
	return some, err
}

// A FollowEnd is how a run has ended.
type FollowEnd struct {
	Error  string   // why the two are not equal; "" if they are
	Failed []string // tags that are not
	Whole  bool     // it came to its end, though some tags may have failed: following goes on for its whole life
	Soon   bool     // it is due again soon, and nothing is remembered
}

// EndFollow ends a run, unless it has ended. When the repo is due next depends on how it went. It returns fault.NotFound if
// the repo is gone.
func (s *Store) EndFollow(ctx context.Context, run FollowRun, end FollowEnd) error {
	return s.write(ctx, func(t Tx) error {
		if err := registrydb.In(t.Tx).LockRepo(ctx, run.Repo); err != nil { // before the row, as those do who change the source
			return err
		}
		now, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		var tries, fail, ran, success int64
		var again bool
		err = t.Row(ctx, `SELECT t.tries, t.fail_ms, t.ran_ms, t.success_ms, t.again FROM follows AS t
			WHERE t.uid = $1 AND t.holder = $2`+s.Engine.ForDelete, []any{string(run.Repo), run.holder}, &tries, &fail, &ran, &success, &again)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if end.Soon {
			_, err := t.Exec(ctx, `UPDATE follows SET holder = '', until_ms = 0, due_ms = $2 WHERE uid = $1`, string(run.Repo),
				store.MS(now.Add(followSoon)))
			return err
		}
		due := now.Add(followEvery)
		switch {
		case end.Error != "":
			due = now.Add(min(followEvery, followRetry<<min(tries, 10)))
			tries++
			if fail == 0 {
				fail = store.MS(now)
			}
		case again:
			due = now
			fallthrough
		default:
			tries, fail, success = 0, 0, store.MS(now)
		}
		if end.Whole {
			ran = store.MS(now)
		}
		if _, err := t.Exec(ctx, `UPDATE follows SET holder = '', until_ms = 0, due_ms = $2, again = $3, tries = $4, fail_ms = $5, ran_ms = $6,
			success_ms = $7, error = $8, failed = $9, tags = (SELECT count(*) FROM tags AS g WHERE g.parent = follows.repo)
			WHERE uid = $1`, string(run.Repo), store.MS(due), false, tries, fail, ran, success, end.Error,
			strings.Join(end.Failed[:min(len(end.Failed), maxFailedTags)], " ")); err != nil {
			return err
		}
		if !end.Whole {
			return nil
		}
		return t.putOff(ctx, run, now.Add(registry.FollowLife))
	})
}

// putOff notes in a repo until when it follows, at most once a day. That is nothing that anybody has changed: it makes no
// event, and the version of the repo stays.
func (t Tx) putOff(ctx context.Context, run FollowRun, until time.Time) error {
	var detail string
	err := t.Row(ctx, `SELECT detail FROM repos WHERE uid = $1`, []any{string(run.Repo)}, &detail)
	if err != nil {
		return err
	}
	var r registry.Repo
	if err := json.Unmarshal([]byte(detail), &r); err != nil {
		return err
	}
	if r.Sync == nil || r.Sync.Source != string(run.Source) || until.Sub(r.Sync.ExpirationTime) < 24*time.Hour {
		return nil
	}
	r.Sync.ExpirationTime = until
	if detail, err = store.Encode(r); err != nil {
		return err
	}
	_, err = t.Exec(ctx, `UPDATE repos SET detail = $2 WHERE uid = $1`, string(run.Repo), detail)
	return err
}
