package registrydb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// InsertUpload begins a session.
func (s *Store) InsertUpload(ctx context.Context, u registry.Upload) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.Later(ctx, `
			INSERT INTO uploads (id, grp, repo, algorithm, size, state, holder, lease_ms, update_ms)
			VALUES ($1, $2, $3, $4, $5, $6, '', 0, $7)`,
			u.ID, string(u.Group), u.Repo, u.Algorithm, u.Size, stateOf(u), store.MS(s.Time())); err != nil {
			return err
		}
		return t.countUpload(ctx, u.Group, u.Size)
	})
}

// stateOf is the state of an upload's hash, never NULL.
func stateOf(u registry.Upload) []byte {
	if u.State == nil {
		return []byte{}
	}
	return u.State
}

// Upload returns a session of a repo, or fault.NotFound.
func (s *Store) Upload(ctx context.Context, group resource.UID, repo, id string) (registry.Upload, error) {
	u := registry.Upload{ID: id, Group: group, Repo: repo}
	err := s.Row(ctx, `SELECT algorithm, size, state FROM uploads WHERE id = $1 AND grp = $2 AND repo = $3`,
		[]any{id, string(group), repo}, &u.Algorithm, &u.Size, &u.State)
	return u, store.Missing(err, "upload", resource.UID(id))
}

// HoldUpload makes holder the only one who may write to a session until then,
// and returns it. interrupted reports that another held it whose lease has
// ended, and who may not know that yet. It returns fault.NotFound if there is no
// such session, and fault.Aborted while it has another holder.
func (s *Store) HoldUpload(
	ctx context.Context, group resource.UID, repo, id, holder string, until time.Time,
) (u registry.Upload, interrupted bool, _ error) {
	u = registry.Upload{ID: id, Group: group, Repo: repo}
	err := s.ExecRow(ctx, `UPDATE uploads SET holder = $4, lease_ms = $5, update_ms = $6
		WHERE id = $1 AND grp = $2 AND repo = $3 AND holder IN ('', $4) RETURNING algorithm, size, state`,
		[]any{id, string(group), repo, holder, store.MS(until), store.MS(s.Time())}, &u.Algorithm, &u.Size, &u.State)
	if !errors.Is(err, sql.ErrNoRows) {
		return u, false, err
	}
	return s.holdInterrupted(ctx, u, holder, until)
}

// holdInterrupted is HoldUpload if nobody can hold the session, or another does.
func (s *Store) holdInterrupted(
	ctx context.Context, u registry.Upload, holder string, until time.Time,
) (_ registry.Upload, interrupted bool, _ error) {
	err := s.write(ctx, func(t Tx) error {
		var other string
		var lease int64
		err := t.Row(ctx, `SELECT t.algorithm, t.size, t.state, t.holder, t.lease_ms FROM uploads AS t WHERE t.id = $1
			AND t.grp = $2 AND t.repo = $3`+s.Engine.ForUpdate,
			[]any{u.ID, string(u.Group), u.Repo}, &u.Algorithm, &u.Size, &u.State, &other, &lease)
		if err != nil {
			return store.Missing(err, "upload", resource.UID(u.ID))
		}
		interrupted = other != "" && other != holder
		if interrupted && lease > store.MS(s.Time()) {
			return fault.New(fault.Aborted, "Aborted: another request is writing to this upload")
		}
		return t.Later(ctx, `UPDATE uploads SET holder = $2, lease_ms = $3, update_ms = $4 WHERE id = $1`, u.ID, holder,
			store.MS(until), store.MS(s.Time()))
	})
	return u, interrupted && err == nil, err
}

// RenewUpload lets holder write to a session until a later time. It returns
// fault.NotFound if holder does not hold it any more.
func (s *Store) RenewUpload(ctx context.Context, id, holder string, until time.Time) error {
	n, err := s.Exec(ctx, `UPDATE uploads SET lease_ms = $3, update_ms = $4 WHERE id = $1 AND holder = $2`,
		id, holder, store.MS(until), store.MS(s.Time()))
	if err == nil && n == 0 {
		return fault.Missing("upload", id)
	}
	return err
}

// SaveUpload records the progress of a session, and lets go of it. It returns
// fault.NotFound if it was cancelled or has another holder, and
// fault.FailedPrecondition if a budget has no room for it.
func (s *Store) SaveUpload(ctx context.Context, u registry.Upload, holder string) error {
	return s.write(ctx, func(t Tx) error {
		var before int64 // a group that is deleted meanwhile waits for its uploads
		err := t.Row(ctx, `SELECT t.size FROM uploads AS t WHERE t.id = $1 AND t.holder = $2 AND t.grp = $3
			AND EXISTS (SELECT 1 FROM groups AS g WHERE g.uid = t.grp)`+s.Engine.ForUpdate,
			[]any{u.ID, holder, string(u.Group)}, &before)
		if err != nil {
			return store.Missing(err, "upload", resource.UID(u.ID))
		}
		if err := t.Later(ctx,
			`UPDATE uploads SET size = $2, state = $3, holder = '', lease_ms = 0, update_ms = $4 WHERE id = $1`,
			u.ID, u.Size, stateOf(u), store.MS(s.Time())); err != nil {
			return err
		}
		return t.countUpload(ctx, u.Group, u.Size-before)
	})
}

// countUpload adds bytes of an upload to the counters of its group and those above.
func (t Tx) countUpload(ctx context.Context, group resource.UID, by int64) error {
	if by == 0 {
		return nil
	}
	return t.Count(ctx, store.BytesCounter, group.NewChild(), int(by))
}

// takeUpload removes the session that a condition selects. It reports whether there was one. The caller takes its bytes
// out of the counters.
func (t Tx) takeUpload(ctx context.Context, where string, args ...any) (u registry.Upload, taken bool, _ error) {
	err := t.Row(ctx, `DELETE FROM uploads WHERE `+where+` RETURNING grp, size`, args, &u.Group, &u.Size)
	if errors.Is(err, sql.ErrNoRows) {
		return u, false, nil
	}
	return u, err == nil, err
}

// deleteUpload ends the session that a condition selects, and takes its bytes out of
// the counters. It reports whether there was one.
func (t Tx) deleteUpload(ctx context.Context, where string, args ...any) (bool, error) {
	u, taken, err := t.takeUpload(ctx, where, args...)
	if err != nil || !taken || u.Size == 0 {
		return taken, err
	}
	err = t.RequireGroup(ctx, u.Group)
	if errors.Is(err, fault.NotFound) { // deleted by a version that leaves its uploads
		return true, nil
	}
	if err != nil {
		return true, err
	}
	return true, t.countUpload(ctx, u.Group, -u.Size)
}

// ReleaseUpload releases a session that holder has not changed.
func (s *Store) ReleaseUpload(ctx context.Context, id, holder string) error {
	return s.write(ctx, func(t Tx) error {
		return t.Later(ctx, `UPDATE uploads SET holder = '', lease_ms = 0 WHERE id = $1 AND holder = $2`, id, holder)
	})
}

// DeleteUpload ends a session, or returns fault.NotFound.
func (s *Store) DeleteUpload(ctx context.Context, id string) error {
	return s.write(ctx, func(t Tx) error {
		gone, err := t.deleteUpload(ctx, `id = $1`, id)
		if err == nil && !gone {
			err = fault.Missing("upload", id)
		}
		return err
	})
}

// DropUpload ends a session that nobody has written to since before and nobody
// holds. It reports whether it did.
func (s *Store) DropUpload(ctx context.Context, id string, before time.Time) (gone bool, _ error) {
	err := s.write(ctx, func(t Tx) (err error) {
		gone, err = t.deleteUpload(ctx, `id = $1 AND update_ms < $2 AND lease_ms < $3`, id, store.MS(before),
			store.MS(s.Time()))
		return err
	})
	return gone, err
}

// StaleUploads returns up to n ids of sessions after last that nobody has
// written to since before.
func (s *Store) StaleUploads(ctx context.Context, last string, before time.Time, n int) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows,
		`SELECT id FROM uploads WHERE id > $1 AND update_ms < $2 ORDER BY id LIMIT $3`, last, store.MS(before), n)
}
