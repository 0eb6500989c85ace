package iamdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const selectSession = `SELECT t.id, t.identity, t.act, t.email, t.agent, t.address, t.create_ms, t.used_ms, t.expire_ms,
	t.cookie IS NOT NULL, t.provider, t.epoch, t.home, t.narrowing FROM sessions AS t`

func scanSession(row store.Scanner) (s resource.Session, err error) {
	var act, narrowing string
	var provider resource.UID
	var created, used, expires, epoch int64
	if err := row.Scan(&s.ID, &s.Identity, &act, &s.Email, &s.Agent, &s.Address, &created, &used, &expires, &s.Browser,
		&provider, &epoch, &s.Home, &narrowing); err != nil {
		return s, err
	}
	s.CreateTime, s.UsedTime, s.ExpireTime = store.FromMS(created), store.FromMS(used), store.FromMS(expires)
	s.Voucher = resource.NewVoucher(provider, epoch)
	if narrowing != "" {
		if err := json.Unmarshal([]byte(narrowing), &s.Narrowing); err != nil {
			return s, fmt.Errorf("narrowing of session %s: %w", s.ID, err)
		}
	}
	return s, json.Unmarshal([]byte(act), &s.Act)
}

// insertSession adds a session, and deletes some that ended long ago. It returns
// fault.NotFound if the identity does not exist, and fault.Aborted if the provider
// that vouched for it has changed since.
func (t Tx) insertSession(ctx context.Context, n resource.Session, cookie []byte) error {
	act, err := json.Marshal(n.Act)
	if err != nil {
		return err
	}
	narrowing := []byte{}
	if !n.Narrowing.IsZero() {
		if narrowing, err = json.Marshal(n.Narrowing); err != nil {
			return err
		}
	}
	if err := t.Require(ctx, "identities", "identity", n.Identity); err != nil {
		return err
	}
	if err := t.StillVouched(ctx, n.Voucher); err != nil {
		return err
	}
	if err := t.dropExpiredSessions(ctx); err != nil {
		return err
	}
	_, err = t.Exec(ctx, `
		INSERT INTO sessions (id, identity, act, email, agent, address, create_ms, used_ms, expire_ms, cookie, provider, epoch, home, narrowing)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9, $10, $11, $12, $13)`,
		n.ID, string(n.Identity), string(act), n.Email, n.Agent, n.Address, store.MS(n.CreateTime), store.MS(n.ExpireTime),
		cookie,
		string(n.Voucher.Provider()), n.Voucher.Epoch(), string(n.Home), string(narrowing))
	return err
}

// StillVouched holds the provider of a voucher until the commit. It returns
// fault.Aborted if what the provider believes has changed since: whoever it
// vouched for is no longer known to be who they were.
func (t Tx) StillVouched(ctx context.Context, v resource.Voucher) error {
	if v == "" {
		return nil
	}
	var one int
	err := t.Row(ctx, `SELECT 1 FROM identity_providers AS t WHERE t.uid = $1 AND t.epoch = $2`+t.DB.Engine.ForShare,
		[]any{string(v.Provider()), v.Epoch()}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return fault.New(fault.Aborted, "Aborted: the identity provider has changed; sign in again")
	}
	return err
}

// StartSession adds a session with its first refresh token, of which it has the
// digest and the end. Its errors are those of insertSession.
func (s *Store) StartSession(ctx context.Context, n resource.Session, digest []byte, ends time.Time) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.insertSession(ctx, n, nil); err != nil {
			return err
		}
		return t.addRefresh(ctx, n.ID, digest, ends)
	})
}

func (t Tx) addRefresh(ctx context.Context, session string, digest []byte, ends time.Time) error {
	_, err := t.Exec(ctx, `INSERT INTO refresh_tokens (digest, session, expire_ms, used) VALUES ($1, $2, $3, $4)`,
		digest, session, store.MS(ends), false)
	return err
}

// sessionsKept is longer than a refresh at the end of a session can take.
const sessionsKept = time.Minute

// dropExpiredSessions deletes a few sessions that expired a while ago.
func (t Tx) dropExpiredSessions(ctx context.Context) error {
	const few = `SELECT id FROM sessions WHERE expire_ms < $1 ORDER BY expire_ms LIMIT 20`
	now := store.MS(t.DB.Time().Add(-sessionsKept))
	if _, err := t.Exec(ctx, `DELETE FROM refresh_tokens WHERE session IN (`+few+`)`, now); err != nil {
		return err
	}
	_, err := t.Exec(ctx, `DELETE FROM sessions WHERE id IN (`+few+`) AND NOT EXISTS
		(SELECT 1 FROM refresh_tokens AS r WHERE r.session = sessions.id)`, now)
	return err
}

// UseRefresh takes the refresh token of that digest out of use and puts another
// in its place, which ends then or with the session. It returns
// fault.Unauthenticated for a token that is unknown or past its time, and for
// one that was used before: that one has been copied, and its session is ended
// for everybody.
func (s *Store) UseRefresh(
	ctx context.Context, digest, next []byte, ends time.Time,
) (n resource.Session, expires time.Time, _ error) {
	var refusal error
	err := s.write(ctx, func(t Tx) error {
		refusal = nil
		id, err := t.lockSessionOf(ctx, digest)
		if err != nil {
			return err
		}
		var ended int64
		var used bool
		err = t.Row(ctx, `SELECT expire_ms, used FROM refresh_tokens WHERE digest = $1`, []any{digest}, &ended, &used)
		if errors.Is(err, sql.ErrNoRows) {
			return errNoRefresh()
		}
		if err != nil {
			return err
		}
		now := s.Time()
		switch {
		case used:
			refusal = fault.New(fault.Unauthenticated,
				"Unauthenticated: the refresh token was used before; its session has been ended")
			_, err := t.endSession(ctx, id, resource.EndReplay)
			return err
		case store.MS(now) >= ended:
			return fault.New(fault.Unauthenticated, "Unauthenticated: the refresh token has expired")
		}
		n, expires, err = t.renewSession(ctx, id, digest, next, ends)
		return err
	})
	if err == nil {
		err = refusal
	}
	return n, expires, err
}

func errNoRefresh() error {
	return fault.New(fault.Unauthenticated, "Unauthenticated: the refresh token is not known, or its session has ended")
}

// lockSessionOf locks the session of a refresh token and returns its id. Whoever
// changes the tokens of a session locks it first: it cannot be ended while it
// gets another.
func (t Tx) lockSessionOf(ctx context.Context, digest []byte) (id string, _ error) {
	err := t.Row(ctx, `SELECT session FROM refresh_tokens WHERE digest = $1`, []any{digest}, &id)
	if err == nil {
		err = t.Row(ctx, `SELECT t.id FROM sessions AS t WHERE t.id = $1`+t.DB.Engine.ForUpdate, []any{id}, &id)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return "", errNoRefresh()
	}
	return id, err
}

// renewSession replaces the refresh token of a session.
func (t Tx) renewSession(
	ctx context.Context, id string, digest, next []byte, ends time.Time,
) (n resource.Session, expires time.Time, err error) {
	if n, err = scanSession(t.QueryRow(ctx, selectSession+` WHERE t.id = $1`, id)); err != nil {
		return n, expires, err
	}
	n.UsedTime = t.DB.Time()
	if ends.After(n.ExpireTime) {
		ends = n.ExpireTime
	}
	if _, err := t.Exec(ctx, `UPDATE refresh_tokens SET used = $2 WHERE digest = $1`, digest, true); err != nil {
		return n, expires, err
	}
	if err := t.addRefresh(ctx, id, next, ends); err != nil {
		return n, expires, err
	}
	_, err = t.Exec(ctx, `UPDATE sessions SET used_ms = $2 WHERE id = $1`, id, store.MS(n.UsedTime))
	return n, ends, err
}

// Session returns a session, or fault.NotFound.
func (s *Store) Session(ctx context.Context, id string) (resource.Session, error) {
	n, err := scanSession(s.QueryRow(ctx, selectSession+` WHERE t.id = $1`, id))
	return n, store.Missing(err, "session", resource.UID(id))
}

// Sessions returns the sessions of an identity that are not over, newest first.
func (s *Store) Sessions(ctx context.Context, identity resource.UID) ([]resource.Session, error) {
	return store.ReadAll(ctx, s.Rows, scanSession,
		selectSession+` WHERE t.identity = $1 AND t.expire_ms > $2 ORDER BY t.create_ms DESC LIMIT 200`, string(identity),
		store.MS(s.Time()))
}

// EndSession ends a session: its tokens are void from then on, refresh tokens
// and others. It reports whether there was one. The event is in the group that
// answers for the session, and in no other.
func (s *Store) EndSession(ctx context.Context, id string) (ended bool, _ error) {
	err := s.write(ctx, func(t Tx) (err error) {
		ended, err = t.endSession(ctx, id, resource.EndRequest)
		return err
	})
	return ended, err
}

func (t Tx) endSession(ctx context.Context, id string, why resource.EndReason) (bool, error) {
	n, err := scanSession(t.QueryRow(ctx, selectSession+` WHERE t.id = $1`+t.DB.Engine.ForDelete, id))
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if _, err := t.Exec(ctx, `DELETE FROM refresh_tokens WHERE session = $1`, id); err != nil {
		return false, err
	}
	if _, err := t.Exec(ctx, `DELETE FROM sessions WHERE id = $1`, id); err != nil {
		return false, err
	}
	if err := t.emitEnded(ctx, n, why); err != nil {
		return false, err
	}
	return true, t.revoke(ctx, resource.SessionSubject(id))
}

// emitEnded adds the event of a session that was ended, in the group that answers
// for it. A session that had expired has none: it had ended by itself.
func (t Tx) emitEnded(ctx context.Context, n resource.Session, why resource.EndReason) error {
	if !t.DB.Time().Before(n.ExpireTime) {
		return nil
	}
	return t.Emit(ctx, resource.SessionEnded, n.Identity, n.Home, resource.EndedSession{Session: n, Reason: why}, nil)
}

// endSelected ends the sessions that a condition selects, for a reason, and returns
// how many there were.
func (t Tx) endSelected(ctx context.Context, why resource.EndReason, where string, args ...any) (int, error) {
	ids, err := store.ReadColumn[string](ctx, t.Rows,
		`SELECT t.id FROM sessions AS t WHERE `+where+` ORDER BY t.id`+t.DB.Engine.ForDelete, args...)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		if _, err := t.endSession(ctx, id, why); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// EndSessions ends the sessions of an identity, but for one, and returns how
// many there were.
func (s *Store) EndSessions(ctx context.Context, identity resource.UID, but string) (n int, _ error) {
	err := s.write(ctx, func(t Tx) (err error) {
		n, err = t.EndSessions(ctx, identity, but, resource.EndRequest)
		return err
	})
	return n, err
}

// EndSessions ends the sessions of an identity, but for one, for a reason, and
// returns how many there were.
func (t Tx) EndSessions(ctx context.Context, identity resource.UID, but string, why resource.EndReason) (int, error) {
	return t.endSelected(ctx, why, `t.identity = $1 AND t.id <> $2`, string(identity), but)
}

// StartBrowserSession adds the session of a browser, whose cookie has the digest
// given, and the event of the sign-in. Its errors are those of insertSession.
func (s *Store) StartBrowserSession(
	ctx context.Context, n resource.Session, cookie []byte, how resource.Activity, also ...func(*store.Tx) error,
) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.insertSession(ctx, n, cookie); err != nil {
			return err
		}
		if err := t.Do(also...); err != nil {
			return err
		}
		return t.Emit(ctx, resource.SignedIn, n.Identity, n.Home, nil, how)
	})
}

// sessionNoted is how often the use of a browser's session is noted.
const sessionNoted = time.Minute

// BrowserSession returns the session of the browser whose cookie has the digest
// given, and records its use. It returns fault.NotFound if there is none, if it has
// expired, or if it was not used for idle.
func (s *Store) BrowserSession(ctx context.Context, cookie []byte, idle time.Duration) (n resource.Session, err error) {
	if n, err = scanSession(s.QueryRow(ctx, selectSession+` WHERE t.cookie = $1`, cookie)); err != nil {
		return n, store.Missing(err, "session", "cookie")
	}
	now := s.Time()
	if !now.Before(n.ExpireTime) || now.Sub(n.UsedTime) >= idle {
		return resource.Session{}, fault.Missing("session", "cookie")
	}
	if now.Sub(n.UsedTime) < sessionNoted {
		return n, nil
	}
	_, err = s.Exec(ctx, `UPDATE sessions SET used_ms = $2 WHERE id = $1`, n.ID, store.MS(now))
	return n, err
}

// endSessions ends the sessions of an identity that is about to go, whose tokens
// are void already.
func (t Tx) endSessions(ctx context.Context, identity resource.UID) error {
	all, err := store.ReadAll(ctx, t.Rows, scanSession,
		selectSession+` WHERE t.identity = $1 ORDER BY t.id`+t.DB.Engine.ForDelete, string(identity))
	if err != nil {
		return err
	}
	if _, err := t.Exec(ctx,
		`DELETE FROM refresh_tokens WHERE session IN (SELECT id FROM sessions WHERE identity = $1)`,
		string(identity)); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM sessions WHERE identity = $1`, string(identity)); err != nil {
		return err
	}
	for _, n := range all {
		if err := t.emitEnded(ctx, n, resource.EndIdentityDeleted); err != nil {
			return err
		}
	}
	return nil
}
