package sourcedb

import (
	"context"
	"database/sql"
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
	followEvery = time.Hour   // time between syncs of a repo if nothing changes
	followLease = time.Minute // lease on a sync; each transaction of the sync renews it

	followRetry = 30 * time.Second // wait after the first failure; it doubles with each further failure, up to followEvery

	followSoon = time.Second // wait after a sync that ended because of a concurrent change

	maxFailedTags = 10 // number of failed tags whose names are stored
)

// A FollowRun is one sync of a repo, on one replica, that makes the repo equal to its source. It ends early when a
// caller sets another source, or when the replica does not renew the lease for followLease.
type FollowRun struct {
	Repo, Source, Identity resource.UID

	holder string
}

// FollowsDue returns repos whose sync is due, the longest due first. It returns at most perOrg repos for each
// organization, and at most n in all.
func (s *Store) FollowsDue(ctx context.Context, perOrg, n int) ([]resource.UID, error) {
	clock, err := s.clockMS(ctx)
	if err != nil {
		return nil, err
	}
	return store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT uid FROM (
			SELECT uid, due_ms, row_number() OVER (PARTITION BY root ORDER BY due_ms, repo) AS place FROM follows
			WHERE due_ms IS NOT NULL AND due_ms <= $1
		) AS d WHERE place <= $2 ORDER BY place, due_ms, uid LIMIT $3`, clock, perOrg, n)
}

// TakeFollow begins a sync of a repo on the replica holder. It reports false if no sync is due, if another replica
// has begun the sync, or if the repo does not follow another. If the sync has expired, it also reports false, and the
// repo never becomes due again.
func (s *Store) TakeFollow(ctx context.Context, repo resource.UID, holder string) (run FollowRun, ok bool, _ error) {
	err := s.write(ctx, func(t Tx) error {
		ok, run = false, FollowRun{Repo: repo, holder: holder}
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		var set, ran int64
		err = t.Row(ctx, `SELECT t.source_uid, t.identity, t.set_ms, t.ran_ms FROM follows AS t
			WHERE t.uid = $1 AND t.due_ms <= $2 AND t.until_ms <= $2`+s.Engine.ForDelete,
			[]any{string(repo), store.MS(clock)}, &run.Source, &run.Identity, &set, &ran)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		case store.MS(clock) > max(set, ran)+registry.FollowLife.Milliseconds():
			_, err := t.Exec(ctx, `UPDATE follows SET due_ms = NULL WHERE uid = $1`, string(repo))
			return err
		}
		ok = true
		_, err = t.Exec(ctx, `UPDATE follows SET holder = $2, again = $3, begin_ms = $4, until_ms = $5, due_ms = $5
			WHERE uid = $1`, string(repo), holder, false, store.MS(clock), store.MS(clock.Add(followLease)))
		return err
	})
	return run, ok, err
}

// keepFollow renews the lease on a sync, and holds the repo and its source until the commit. It returns fault.Aborted
// if the sync has ended, and fault.NotFound if one of the repos does not exist.
func (t Tx) keepFollow(ctx context.Context, run FollowRun) error {
	if err := t.Require(ctx, "repos", "repo", run.Repo); err != nil {
		return err
	}
	if err := t.Require(ctx, "repos", "source", run.Source); err != nil {
		return err
	}
	clock, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	n, err := t.Exec(ctx, `UPDATE follows SET until_ms = $3, due_ms = $3
		WHERE uid = $1 AND holder = $2 AND until_ms > $4`,
		string(run.Repo), run.holder, store.MS(clock.Add(followLease)), store.MS(clock))
	if err == nil && n == 0 {
		err = fault.New(fault.Aborted, "Aborted: the source of the repo has changed, or another replica runs the sync")
	}
	return err
}

// A FollowedTag is a tag that differs between a repo and its source.
type FollowedTag struct {
	Name   string
	Digest string // digest in the source; "" if the source has no such tag
	Here   string // digest in the repo; "" if the repo has no such tag
}

// FollowWanted returns up to n tags of the source that the repo does not have, or that point to another digest in the
// repo. They are in the order of their names, starting after last.
func (s *Store) FollowWanted(ctx context.Context, run FollowRun, last string, n int) ([]FollowedTag, error) {
	return store.ReadAll(ctx, s.Rows, scanFollowed, `SELECT s.name, s.digest, coalesce(f.digest, '')
		FROM `+registrydb.TagRows+` AS s
		LEFT JOIN `+registrydb.TagRows+` AS f ON f.parent = $2 AND f.name = s.name
		WHERE s.parent = $1 AND s.name > $3 AND (f.digest IS NULL OR f.digest <> s.digest) ORDER BY s.name LIMIT $4`,
		store.Segment(run.Source), store.Segment(run.Repo), last, n)
}

func scanFollowed(row store.Scanner) (g FollowedTag, _ error) {
	err := row.Scan(&g.Name, &g.Digest, &g.Here)
	return g, err
}

// FollowReferrers returns up to n digests of manifests that the source has and the repo lacks, and whose subject is
// in the repo. They are in order, starting after last.
func (s *Store) FollowReferrers(ctx context.Context, run FollowRun, last string, n int) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows, `SELECT m.digest FROM `+registrydb.ManifestRows+` AS m
		WHERE m.repo = $1 AND m.subject <> '' AND m.digest > $3
		AND EXISTS (SELECT 1 FROM `+registrydb.ManifestRows+` AS h WHERE h.repo = $2 AND h.digest = m.subject)
		AND NOT EXISTS (SELECT 1 FROM `+registrydb.ManifestRows+` AS f WHERE f.repo = $2 AND f.digest = m.digest)
		ORDER BY m.digest LIMIT $4`, store.Segment(run.Source), store.Segment(run.Repo), last, n)
}

// CopyFollowed is registrydb.Store.CopyImages from the source of a sync to its repo. It returns fault.Aborted if the
// sync has ended or if a tag of the source has moved, and fault.NotFound if one of the repos does not exist.
func (s *Store) CopyFollowed(ctx context.Context, run FollowRun, c registrydb.Copying) (registry.ImageCopy, error) {
	c.From, c.By, c.Agent = run.Source, run.Identity, "follow"
	c.Promote, c.Reason = false, ""
	return s.registry.CopyInto(ctx, c, func(t registrydb.Tx) (resource.UID, error) {
		return run.Repo, In(t.Tx).keepFollow(ctx, run)
	})
}

// DropFollowed deletes up to n tags that the repo of a sync has and its source lacks, in the order of their names,
// starting after last. It does not delete tags that the settings make immutable, and returns their names as kept.
// next is the value of last for the next call, or "" if there are no more tags.
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
		d.Follows = false // allows the deletion of tags, because it is part of the sync
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

// FollowSurplus reports whether the repo of a sync has a tag that its source lacks.
func (s *Store) FollowSurplus(ctx context.Context, run FollowRun) (surplus bool, err error) {
	err = s.Row(ctx, `SELECT EXISTS (SELECT 1 FROM `+registrydb.TagRows+` AS t WHERE t.parent = $1 AND NOT EXISTS
		(SELECT 1 FROM `+registrydb.TagRows+` AS s WHERE s.parent = $2 AND s.name = t.name))`,
		[]any{store.Segment(run.Repo), store.Segment(run.Source)}, &surplus)
	return surplus, err
}

// A FollowEnd is the result of a sync.
type FollowEnd struct {
	Error  string   // reason why the repo and its source are not equal; "" if they are equal
	Failed []string // names of the tags that could not be made equal
	Whole  bool     // the sync processed all tags, even if some failed; it extends syncing by registry.FollowLife
	Soon   bool     // the next sync is due after followSoon, and the result of this one is not stored
}

// EndFollow ends a sync and stores its result. The result decides when the next sync is due. If the sync has already
// ended, EndFollow does nothing. It returns fault.NotFound if the repo does not exist.
func (s *Store) EndFollow(ctx context.Context, run FollowRun, end FollowEnd) error {
	return s.write(ctx, func(t Tx) error {
		// The repo is locked before its row in follows. A change of the source locks in the same order.
		if err := registrydb.In(t.Tx).LockRepo(ctx, run.Repo); err != nil {
			return err
		}
		clock, err := t.Clock(ctx)
		if err != nil {
			return err
		}
		var tries, fail, ran, success int64
		var again bool
		err = t.Row(ctx, `SELECT t.tries, t.fail_ms, t.ran_ms, t.success_ms, t.again FROM follows AS t
			WHERE t.uid = $1 AND t.holder = $2`+s.Engine.ForDelete, []any{string(run.Repo), run.holder},
			&tries, &fail, &ran, &success, &again)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if end.Soon {
			_, err := t.Exec(ctx, `UPDATE follows SET holder = '', until_ms = 0, due_ms = $2 WHERE uid = $1`,
				string(run.Repo), store.MS(clock.Add(followSoon)))
			return err
		}
		due := clock.Add(followEvery)
		switch {
		case end.Error != "":
			due = clock.Add(min(followEvery, followRetry<<min(tries, 10)))
			tries++
			if fail == 0 {
				fail = store.MS(clock)
			}
		case again:
			due = clock
			fallthrough
		default:
			tries, fail, success = 0, 0, store.MS(clock)
		}
		if end.Whole {
			ran = store.MS(clock)
		}
		if _, err := t.Exec(ctx, `UPDATE follows SET holder = '', until_ms = 0, due_ms = $2, again = $3, tries = $4,
			fail_ms = $5, ran_ms = $6, success_ms = $7, error = $8, failed = $9,
			tags = (SELECT count(*) FROM `+registrydb.TagRows+` AS g WHERE g.parent = follows.repo) WHERE uid = $1`,
			string(run.Repo), store.MS(due), false, tries, fail, ran, success, end.Error,
			strings.Join(end.Failed[:min(len(end.Failed), maxFailedTags)], " ")); err != nil {
			return err
		}
		if !end.Whole {
			return nil
		}
		return t.extend(ctx, run, clock.Add(registry.FollowLife))
	})
}

// extend stores the time until which a repo syncs from its source, at most once a day. It adds no event and keeps the
// version of the repo, because no caller has changed the repo.
func (t Tx) extend(ctx context.Context, run FollowRun, until time.Time) error {
	return registrydb.In(t.Tx).ChangeSync(ctx, run.Repo, func(r *registry.Repo) bool {
		if r.Sync == nil || r.Sync.Source != string(run.Source) || until.Sub(r.Sync.ExpirationTime) < 24*time.Hour {
			return false
		}
		r.Sync.ExpirationTime = until
		return true
	})
}
