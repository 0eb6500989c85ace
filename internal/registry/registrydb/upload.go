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

// InsertUpload adds an upload session.
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

// stateOf returns the state of an upload's hash. It is never nil, because the column is NOT NULL.
func stateOf(u registry.Upload) []byte {
	if u.State == nil {
		return []byte{}
	}
	return u.State
}

// Upload returns an upload session of a repo, or fault.NotFound.
func (s *Store) Upload(ctx context.Context, group resource.UID, repo, id string) (registry.Upload, error) {
	u := registry.Upload{ID: id, Group: group, Repo: repo}
	err := s.Row(ctx, `SELECT algorithm, size, state FROM uploads WHERE id = $1 AND grp = $2 AND repo = $3`,
		[]any{id, string(group), repo}, &u.Algorithm, &u.Size, &u.State)
	return u, store.Missing(err, "upload", resource.UID(id))
}

// HoldUpload leases an upload session to holder until a time, and returns the session. Only the holder may write to
// it. interrupted reports whether the lease of another holder had expired; that holder may not have noticed yet.
// HoldUpload returns fault.NotFound if there is no such session, and fault.Aborted while another holder has the
// lease.
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

// holdInterrupted is HoldUpload for a session that does not exist or has another holder.
func (s *Store) holdInterrupted(
	ctx context.Context, u registry.Upload, holder string, until time.Time,
) (_ registry.Upload, interrupted bool, _ error) {
	err := s.write(ctx, func(t Tx) error {
		var before string
		var lease int64
		err := t.Row(ctx, `SELECT t.algorithm, t.size, t.state, t.holder, t.lease_ms FROM uploads AS t WHERE t.id = $1
			AND t.grp = $2 AND t.repo = $3`+s.Engine.ForUpdate,
			[]any{u.ID, string(u.Group), u.Repo}, &u.Algorithm, &u.Size, &u.State, &before, &lease)
		if err != nil {
			return store.Missing(err, "upload", resource.UID(u.ID))
		}
		interrupted = before != "" && before != holder
		if interrupted && lease > store.MS(s.Time()) {
			return fault.New(fault.Aborted, "Aborted: another request is writing to this upload")
		}
		return t.Later(ctx, `UPDATE uploads SET holder = $2, lease_ms = $3, update_ms = $4 WHERE id = $1`, u.ID, holder,
			store.MS(until), store.MS(s.Time()))
	})
	return u, interrupted && err == nil, err
}

// RenewUpload extends the lease of holder. It returns fault.NotFound if holder has lost the session.
func (s *Store) RenewUpload(ctx context.Context, id, holder string, until time.Time) error {
	n, err := s.Exec(ctx, `UPDATE uploads SET lease_ms = $3, update_ms = $4 WHERE id = $1 AND holder = $2`,
		id, holder, store.MS(until), store.MS(s.Time()))
	if err == nil && n == 0 {
		return fault.Missing("upload", id)
	}
	return err
}

// SaveUpload records the progress of an upload session and ends the lease. It returns fault.NotFound if the
// session was canceled or has another holder, and fault.FailedPrecondition if a budget has no room for its
// bytes.
func (s *Store) SaveUpload(ctx context.Context, u registry.Upload, holder string) error {
	return s.write(ctx, func(t Tx) error {
		var before int64 // the row is locked, so that a concurrent deletion of the group, which deletes its uploads, waits
		err := t.Row(ctx, `SELECT t.size FROM uploads AS t WHERE t.id = $1 AND t.holder = $2 AND t.grp = $3
			AND EXISTS (SELECT 1 FROM `+store.GroupRows+` AS g WHERE g.uid = t.grp)`+s.Engine.ForUpdate,
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

// countUpload adds bytes of an upload to the counters of its group and of the groups above.
func (t Tx) countUpload(ctx context.Context, group resource.UID, by int64) error {
	if by == 0 {
		return nil
	}
	return t.Count(ctx, store.BytesCounter, group.NewChild(), int(by))
}

// takeUpload removes the upload session that a condition selects. It reports whether there was one. The caller
// subtracts its bytes from the counters.
func (t Tx) takeUpload(ctx context.Context, where string, args ...any) (u registry.Upload, taken bool, _ error) {
	err := t.Row(ctx, `DELETE FROM uploads WHERE `+where+` RETURNING grp, size`, args, &u.Group, &u.Size)
	if errors.Is(err, sql.ErrNoRows) {
		return u, false, nil
	}
	return u, err == nil, err
}

// deleteUpload removes the upload session that a condition selects and subtracts its bytes from the counters. It
// reports whether there was one.
func (t Tx) deleteUpload(ctx context.Context, where string, args ...any) (bool, error) {
	u, taken, err := t.takeUpload(ctx, where, args...)
	if err != nil || !taken || u.Size == 0 {
		return taken, err
	}
	err = t.RequireGroup(ctx, u.Group)
	if errors.Is(err, fault.NotFound) { // the group was deleted while the upload began
		return true, nil
	}
	if err != nil {
		return true, err
	}
	return true, t.countUpload(ctx, u.Group, -u.Size)
}

// ReleaseUpload ends the lease of a session that holder has not changed.
func (s *Store) ReleaseUpload(ctx context.Context, id, holder string) error {
	return s.write(ctx, func(t Tx) error {
		return t.Later(ctx, `UPDATE uploads SET holder = '', lease_ms = 0 WHERE id = $1 AND holder = $2`, id, holder)
	})
}

// DeleteUpload removes an upload session, or returns fault.NotFound.
func (s *Store) DeleteUpload(ctx context.Context, id string) error {
	return s.write(ctx, func(t Tx) error {
		gone, err := t.deleteUpload(ctx, `id = $1`, id)
		if err == nil && !gone {
			err = fault.Missing("upload", id)
		}
		return err
	})
}

// DropUpload removes an upload session that was last written to before a time, unless a holder has a lease on it. It
// reports whether it removed one.
func (s *Store) DropUpload(ctx context.Context, id string, before time.Time) (gone bool, _ error) {
	err := s.write(ctx, func(t Tx) (err error) {
		gone, err = t.deleteUpload(ctx, `id = $1 AND update_ms < $2 AND lease_ms < $3`, id, store.MS(before),
			store.MS(s.Time()))
		return err
	})
	return gone, err
}

// StaleUploads returns up to n IDs of upload sessions that were last written to before a time, in the order of IDs,
// starting after last.
func (s *Store) StaleUploads(ctx context.Context, last string, before time.Time, n int) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows,
		`SELECT id FROM uploads WHERE id > $1 AND update_ms < $2 ORDER BY id LIMIT $3`, last, store.MS(before), n)
}
