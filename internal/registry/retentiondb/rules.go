package retentiondb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Retention returns the rules that apply to a group or a repo: its own rules, or the rules of the nearest group
// above that has any. It returns fault.NotFound if there are none.
func (s *Store) Retention(ctx context.Context, place resource.UID) (registry.Retention, error) {
	return s.retentionAbove(ctx, place, s.Row)
}

func (s *Store) retentionAbove(
	ctx context.Context, place resource.UID, row func(context.Context, string, []any, ...any) error,
) (registry.Retention, error) {
	q := store.Query{Engine: s.Engine}
	var places []string
	for _, p := range append(place.Ancestors(), place) {
		places = append(places, string(p))
	}
	// The UIDs are prefixes of each other, so the longest sorts last. `uid || ''` keeps the planner from using the
	// index on uid for the order, which would scan all rules.
	text := `SELECT t.uid, t.detail, t.update_ms FROM retention AS t
		WHERE t.uid IN (SELECT v FROM ` + s.Engine.Unnest(&q, places) + ` AS s) ORDER BY t.uid || '' DESC LIMIT 1`
	return scanRetention(place, func(dest ...any) error { return row(ctx, text, q.Args, dest...) })
}

func scanRetention(place resource.UID, scan func(...any) error) (r registry.Retention, _ error) {
	var detail string
	var uid resource.UID
	var updated int64
	if err := scan(&uid, &detail, &updated); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return r, fault.Missing("retention rules", string(place))
		}
		return r, err
	}
	if err := json.Unmarshal([]byte(detail), &r); err != nil {
		return r, fmt.Errorf("retention rules of %s: %w", uid, err)
	}
	r.UID, r.UpdateTime = uid, store.FromMS(updated)
	return r, nil
}

// holdPlace holds the group or repo that has a UID until the commit. It returns fault.NotFound if there is none.
func (t Tx) holdPlace(ctx context.Context, place resource.UID) error {
	err := t.Require(ctx, "groups", "group or repo", place)
	if errors.Is(err, fault.NotFound) {
		return t.Require(ctx, "repos", "group or repo", place)
	}
	return err
}

// firstRetention is the time between a change of rules and their first scheduled run, so that the person who
// changed them can check their effect first.
const firstRetention = 24 * time.Hour

// SetRetention sets the rules of a group or repo. If the rules are unchanged, nothing is written. It returns
// fault.NotFound if there is no such group or repo.
func (s *Store) SetRetention(ctx context.Context, r registry.Retention) (registry.Retention, error) {
	err := s.write(ctx, func(t Tx) error {
		if err := t.holdPlace(ctx, r.UID); err != nil {
			return err
		}
		before, err := s.ownRetention(ctx, t, r.UID)
		if err != nil && !errors.Is(err, fault.NotFound) {
			return err
		}
		if err := resource.CheckExpected(ctx, r.UID, before.UpdateTime); err != nil {
			return err
		}
		r.UpdateTime = before.UpdateTime
		if err == nil && reflect.DeepEqual(before, r) {
			return nil
		}
		r.UpdateTime = s.TimeAfter(before.UpdateTime)
		detail, err := store.Encode(r)
		if err != nil {
			return err
		}
		var due any
		if r.EveryDays > 0 {
			due = store.MS(s.Time().Add(firstRetention))
		}
		if _, err := t.Exec(ctx, `INSERT INTO retention (place, root, uid, detail, update_ms, due_ms, taken)
			VALUES ($1, $2, $3, $4, $5, $6, '') ON CONFLICT (place) DO UPDATE
			SET detail = excluded.detail, update_ms = excluded.update_ms, due_ms = excluded.due_ms, taken = ''`,
			store.Segment(r.UID), store.Segment(r.UID.Root()), string(r.UID), detail, store.MS(r.UpdateTime), due); err != nil {
			return err
		}
		return t.Emit(ctx, resource.RetentionUpdated, r.UID, r.UID, before, r)
	})
	return r, err
}

// ownRetention locks and returns the rules that are set on a group or repo itself. It returns fault.NotFound if there
// are none.
func (s *Store) ownRetention(ctx context.Context, t Tx, place resource.UID) (registry.Retention, error) {
	return scanRetention(place, func(dest ...any) error {
		return t.Row(ctx, `SELECT t.uid, t.detail, t.update_ms FROM retention AS t WHERE t.uid = $1`+s.Engine.ForDelete,
			[]any{string(place)}, dest...)
	})
}

// DeleteRetention removes the rules that are set on a group or repo itself. It returns fault.NotFound if there are
// none.
func (s *Store) DeleteRetention(ctx context.Context, place resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		before, err := s.ownRetention(ctx, t, place)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `DELETE FROM retention WHERE uid = $1`, string(place)); err != nil {
			return err
		}
		return t.Emit(ctx, resource.RetentionDeleted, place, place, before, nil)
	})
}

// A RetentionTurn is a repo to which rules must be applied, and the group or repo that has the rules.
type RetentionTurn struct{ Rules, Repo resource.UID }

// RetentionDue returns up to n groups or repos whose rules are due, at most one for each organization.
func (s *Store) RetentionDue(ctx context.Context, now time.Time, n int) ([]resource.UID, error) {
	return store.ReadColumn[resource.UID](ctx, s.Rows, `SELECT min(uid) FROM retention WHERE due_ms <= $1
		GROUP BY root ORDER BY min(due_ms), root LIMIT $2`, store.MS(now), n)
}

// TakeRetention returns the next repo to which the rules of place must be applied, and records that it was taken, so
// that no other replica takes it, too. After the last repo it schedules the next run and returns no repo. It also
// returns no repo if the rules are not due.
func (s *Store) TakeRetention(ctx context.Context, place resource.UID, now time.Time) (turn RetentionTurn, _ error) {
	err := s.write(ctx, func(t Tx) error {
		turn = RetentionTurn{Rules: place}
		var taken string
		err := t.Row(ctx, `SELECT t.taken FROM retention AS t WHERE t.uid = $1 AND t.due_ms <= $2`+s.Engine.ForDelete,
			[]any{string(place), store.MS(now)}, &taken)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		rules, err := s.ownRetention(ctx, t, place)
		if err != nil {
			return err
		}
		turn.Repo, err = s.nextRepo(ctx, t, place, resource.UID(taken))
		if err != nil {
			return err
		}
		if turn.Repo != "" {
			_, err = t.Exec(ctx, `UPDATE retention SET taken = $2 WHERE uid = $1`, string(place), string(turn.Repo))
			return err
		}
		if err := t.holdPlace(ctx, place); errors.Is(err, fault.NotFound) {
			return t.postponeTrashed(ctx, place)
		} else if err != nil {
			return err
		}
		due := now.Add(time.Duration(rules.EveryDays) * 24 * time.Hour)
		_, err = t.Exec(ctx, `UPDATE retention SET taken = '', due_ms = $2 WHERE uid = $1`, string(place), store.MS(due))
		return err
	})
	return turn, err
}

// nextRepo returns the next repo, in the order of UIDs after a UID, that is place or below it. It returns "" if
// there is none.
func (s *Store) nextRepo(ctx context.Context, t Tx, place, after resource.UID) (resource.UID, error) {
	_, above := registrydb.Below(place)
	next, err := store.ReadColumn[resource.UID](ctx, t.Rows, `SELECT uid FROM `+registrydb.RepoRows+` AS repos
		WHERE uid > $1 AND uid >= $2 AND uid < $3 ORDER BY uid LIMIT 1`, string(after), string(place), above)
	if err != nil || len(next) == 0 {
		return "", err
	}
	return next[0], nil
}

// postponeTrashed postpones the rules of a repo in the trash by a day. It does not delete the rules, because they are
// restored with the repo.
func (t Tx) postponeTrashed(ctx context.Context, repo resource.UID) error {
	_, err := t.Exec(ctx, `UPDATE retention SET due_ms = due_ms + 86400000 WHERE uid = $1`, string(repo))
	return err
}
