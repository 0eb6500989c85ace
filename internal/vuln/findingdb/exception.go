package findingdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

var exceptions = store.Kind[vuln.Exception]{
	Table: "exceptions", Label: "exception",
	Created: resource.ExceptionCreated, Updated: resource.ExceptionApproved, Deleted: resource.ExceptionDeleted,
	Columns: func(e *vuln.Exception) []store.Column {
		return []store.Column{
			store.JSON("detail", e), // fields that also have a column are read from the column
			store.Key(&e.UID),
			store.Derived("target", store.Segment(e.Target)),
			store.OptionalTime("approve_ms", &e.ApproveTime),
			store.OptionalTime("expire_ms", &e.ExpireTime),
			store.Time("create_ms", &e.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &e.UpdateTime),
		}
	},
}

// ExceptionList describes the orders of a list of exceptions.
var ExceptionList = exceptions.List(page.Order{Field: "uid"})

// maxPast is the maximum number of past exceptions that are stored per group.
const maxPast = 10_000

// InsertExceptions adds exceptions to a group. It adds all of them or none. It returns fault.NotFound if the group or a
// target does not exist, and fault.FailedPrecondition if the group has too many exceptions.
func (s *Store) InsertExceptions(ctx context.Context, group resource.UID, added []vuln.Exception) error {
	return s.Write(ctx, func(tx *store.Tx) error {
		t := In(tx)
		if err := t.RequireGroup(ctx, group); err != nil {
			return err
		}
		var n int
		if err := t.Row(ctx, `SELECT count(*) FROM exceptions WHERE parent = $1`, []any{store.Segment(group)},
			&n); err != nil {
			return err
		}
		if n+len(added) > vuln.MaxExceptions {
			return fault.Unmet("TOO_MANY_EXCEPTIONS", "a group has at most %d exceptions; delete expired exceptions",
				vuln.MaxExceptions)
		}
		for _, e := range added {
			if err := t.requireTarget(ctx, e.Target); err != nil {
				return err
			}
			if err := store.Insert(ctx, t.Tx, &exceptions, e); err != nil {
				return err
			}
		}
		t.judgementsChanged()
		return nil
	})
}

// judgementsChanged clears the cached verdicts about pulls on every replica.
func (t Tx) judgementsChanged() { t.PathsChanged() }

// requireTarget returns fault.NotFound unless there is a group or a repo with that UID.
func (t Tx) requireTarget(ctx context.Context, uid resource.UID) error {
	err := t.RequireGroup(ctx, uid)
	if errors.Is(err, fault.NotFound) {
		return t.Require(ctx, "repos", "repo", uid)
	}
	return err
}

// Exception returns an exception, even if it was deleted. It returns fault.NotFound if there is none.
func (s *Store) Exception(ctx context.Context, uid resource.UID) (vuln.Exception, error) {
	e, err := store.Get(ctx, s.DB, &exceptions, uid)
	if !errors.Is(err, fault.NotFound) {
		return e, err
	}
	past, readErr := store.ReadAll(ctx, s.Rows, scanDetail[vuln.Exception],
		`SELECT detail FROM past_exceptions WHERE uid = $1`, string(uid))
	if readErr != nil || len(past) == 0 {
		return e, errors.Join(readErr, err)
	}
	return past[0], nil
}

// scanDetail decodes a resource from a column with JSON.
func scanDetail[T any](row store.Scanner) (v T, err error) {
	var text string
	if err = row.Scan(&text); err == nil {
		err = json.Unmarshal([]byte(text), &v)
	}
	return v, err
}

// Exceptions returns one page of exceptions.
func (s *Store) Exceptions(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[vuln.Exception], error) {
	return store.List(ctx, s.DB, &exceptions, r, f, p)
}

// ApproveException records who has approved an exception. It does nothing if the exception is already approved. It
// returns fault.NotFound if there is no such exception.
func (s *Store) ApproveException(ctx context.Context, uid, approver resource.UID) (e vuln.Exception, _ error) {
	return e, s.Write(ctx, func(tx *store.Tx) (err error) {
		before, err := store.Lock(ctx, tx, &exceptions, uid, s.Engine.ForUpdate)
		e = before
		if err != nil || !before.ApproveTime.IsZero() {
			return err
		}
		e.Approver, e.ApproveTime = approver, s.Time()
		if err := store.Update(ctx, tx, &exceptions, before, &e); err != nil {
			return err
		}
		In(tx).judgementsChanged()
		return nil
	})
}

// DeleteException deletes an exception. If it was approved, it is stored as a past exception. It returns fault.NotFound
// if there is no such exception.
func (s *Store) DeleteException(ctx context.Context, uid, deleter resource.UID) error {
	return s.Write(ctx, func(tx *store.Tx) error {
		e, err := store.Lock(ctx, tx, &exceptions, uid, s.Engine.ForDelete)
		if err != nil {
			return err
		}
		if err := store.Remove(ctx, tx, &exceptions, e); err != nil {
			return err
		}
		t := In(tx)
		t.judgementsChanged()
		if e.ApproveTime.IsZero() {
			return nil
		}
		e.Deleter, e.DeleteTime = deleter, s.Time()
		return t.keepPast(ctx, e)
	})
}

// keepPast stores a past exception. If the group has too many of them, it removes the oldest.
func (t Tx) keepPast(ctx context.Context, e vuln.Exception) error {
	detail, err := store.Encode(e)
	if err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `INSERT INTO past_exceptions (seg, uid, parent, detail, target, approve_ms, delete_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, store.Segment(e.UID), string(e.UID), store.Segment(e.Home()), detail,
		store.Segment(e.Target), store.MS(e.ApproveTime), store.MS(e.DeleteTime)); err != nil {
		return err
	}
	return t.Later(ctx, `DELETE FROM past_exceptions WHERE seg IN (SELECT seg FROM past_exceptions WHERE parent = $1
		ORDER BY delete_ms DESC, seg LIMIT 1000 OFFSET $2)`, store.Segment(e.Home()), maxPast)
}

// ExceptionsOn returns the exceptions whose target is one of targets, and that were in effect at any time between from
// and to, inclusive. The exceptions may be in any group.
func (s *Store) ExceptionsOn(
	ctx context.Context, targets []resource.UID, from, to time.Time,
) (targeting []vuln.Exception, _ error) {
	keys := make([]int64, len(targets))
	wanted := map[resource.UID]bool{}
	for i, t := range targets {
		keys[i], wanted[t] = store.Segment(t), true
	}
	q := store.Query{Engine: s.Engine}
	text := fmt.Sprintf(`SELECT e.detail FROM %s AS s CROSS JOIN exceptions AS e WHERE e.target = s.v
		AND e.approve_ms > 0 AND e.approve_ms <= %s AND (e.expire_ms = 0 OR e.expire_ms > %s)
		UNION ALL SELECT e.detail FROM %s AS s CROSS JOIN past_exceptions AS e WHERE e.target = s.v
		AND e.delete_ms > %s AND e.approve_ms <= %s`, s.Engine.Unnest(&q, keys), q.Arg(store.MS(to)), q.Arg(store.MS(from)),
		s.Engine.Unnest(&q, keys), q.Arg(store.MS(from)), q.Arg(store.MS(to)))
	found, err := store.ReadAll(ctx, s.Rows, scanDetail[vuln.Exception], text, q.Args...)
	for _, e := range found {
		if wanted[e.Target] { // excludes other targets with the same segment
			targeting = append(targeting, e)
		}
	}
	return targeting, err
}
