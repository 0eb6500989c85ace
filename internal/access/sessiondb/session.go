package sessiondb

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

// SessionHome returns the group whose provider or account a session was started with. It returns "" if there is no such
// session.
func (s *Store) SessionHome(ctx context.Context, id string) (home resource.UID, _ error) {
	err := s.Row(ctx, `SELECT home FROM sessions WHERE id = $1`, []any{id}, &home)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return home, err
}

// insertSession adds a session that s.admits admits, and deletes some sessions that expired long ago.
func (s *Store) insertSession(ctx context.Context, t Tx, n resource.Session, cookie []byte) error {
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
	if err := s.admits(ctx, t.Tx, n); err != nil {
		return err
	}
	if err := t.dropExpiredSessions(ctx); err != nil {
		return err
	}
	_, err = t.Exec(ctx, `
		INSERT INTO sessions (id, identity, act, email, agent, address, create_ms, used_ms, expire_ms, cookie, provider,
			epoch, home, narrowing)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, $9, $10, $11, $12, $13)`,
		n.ID, string(n.Identity), string(act), n.Email, n.Agent, n.Address, store.MS(n.CreateTime), store.MS(n.ExpireTime),
		cookie, string(n.Voucher.Provider()), n.Voucher.Epoch(), string(n.Home), string(narrowing))
	return err
}

// StartSession adds a session with its first refresh token, given by its digest and
// its expiry. It returns the error of the function that New got.
func (s *Store) StartSession(ctx context.Context, n resource.Session, digest []byte, expiry time.Time) error {
	return s.write(ctx, func(t Tx) error {
		if err := s.insertSession(ctx, t, n, nil); err != nil {
			return err
		}
		return t.addRefresh(ctx, n.ID, digest, expiry)
	})
}

func (t Tx) addRefresh(ctx context.Context, session string, digest []byte, expiry time.Time) error {
	_, err := t.Exec(ctx, `INSERT INTO refresh_tokens (digest, session, expire_ms, used) VALUES ($1, $2, $3, $4)`,
		digest, session, store.MS(expiry), false)
	return err
}

// sessionsKept is how long an expired session stays stored. It is longer than a refresh at the end of a session takes.
const sessionsKept = time.Minute

// dropExpiredSessions deletes up to 20 sessions that expired more than sessionsKept ago.
func (t Tx) dropExpiredSessions(ctx context.Context) error {
	const few = `SELECT id FROM sessions WHERE expire_ms < $1 ORDER BY expire_ms LIMIT 20`
	currentTime := store.MS(t.DB.Time().Add(-sessionsKept))
	if _, err := t.Exec(ctx, `DELETE FROM refresh_tokens WHERE session IN (`+few+`)`, currentTime); err != nil {
		return err
	}
	_, err := t.Exec(ctx, `DELETE FROM sessions WHERE id IN (`+few+`) AND NOT EXISTS
		(SELECT 1 FROM refresh_tokens AS r WHERE r.session = sessions.id)`, currentTime)
	return err
}

// UseRefresh replaces the refresh token that has the given digest by the token that has the digest next. The new token
// expires at expiry, or with the session if that is earlier; UseRefresh returns this time. It returns
// fault.Unauthenticated if the token is unknown, has expired or was used before. A token that is used twice has been
// copied, so UseRefresh also ends its session.
func (s *Store) UseRefresh(
	ctx context.Context, digest, next []byte, expiry time.Time,
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
		currentTime := s.Time()
		switch {
		case used:
			refusal = fault.New(fault.Unauthenticated,
				"Unauthenticated: the refresh token was used before; its session has been ended")
			_, err := t.endSession(ctx, id, resource.EndReplay)
			return err
		case store.MS(currentTime) >= ended:
			return fault.New(fault.Unauthenticated, "Unauthenticated: the refresh token has expired")
		}
		n, expires, err = t.renewSession(ctx, id, digest, next, expiry)
		return err
	})
	if err == nil {
		err = refusal
	}
	return n, expires, err
}

func errNoRefresh() error {
	return fault.New(fault.Unauthenticated, "Unauthenticated: the refresh token is unknown, or its session has ended")
}

// lockSessionOf locks the session of a refresh token and returns its id. Every transaction that changes the tokens of a
// session locks the session first, so that the session cannot end while it gets a new token.
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

// renewSession replaces the refresh token of a session, and returns the expiry of the new one.
func (t Tx) renewSession(
	ctx context.Context, id string, digest, next []byte, expiry time.Time,
) (n resource.Session, expires time.Time, err error) {
	if n, err = scanSession(t.QueryRow(ctx, selectSession+` WHERE t.id = $1`, id)); err != nil {
		return n, expires, err
	}
	n.UsedTime = t.DB.Time()
	if expiry.After(n.ExpireTime) {
		expiry = n.ExpireTime
	}
	if _, err := t.Exec(ctx, `UPDATE refresh_tokens SET used = $2 WHERE digest = $1`, digest, true); err != nil {
		return n, expires, err
	}
	if err := t.addRefresh(ctx, id, next, expiry); err != nil {
		return n, expires, err
	}
	_, err = t.Exec(ctx, `UPDATE sessions SET used_ms = $2 WHERE id = $1`, id, store.MS(n.UsedTime))
	return n, expiry, err
}

// Session returns a session, or fault.NotFound.
func (s *Store) Session(ctx context.Context, id string) (resource.Session, error) {
	n, err := scanSession(s.QueryRow(ctx, selectSession+` WHERE t.id = $1`, id))
	return n, store.Missing(err, "session", resource.UID(id))
}

// Sessions returns the unexpired sessions of an identity, newest first, at most 200.
func (s *Store) Sessions(ctx context.Context, identity resource.UID) ([]resource.Session, error) {
	return store.ReadAll(ctx, s.Rows, scanSession,
		selectSession+` WHERE t.identity = $1 AND t.expire_ms > $2 ORDER BY t.create_ms DESC LIMIT 200`, string(identity),
		store.MS(s.Time()))
}

// SessionsOf returns the unexpired sessions of identities and the unexpired sessions with these ids, keyed by id.
func (s *Store) SessionsOf(
	ctx context.Context, identities []resource.UID, ids []string,
) (map[string]resource.Session, error) {
	sessions := map[string]resource.Session{}
	currentTime := s.Time()
	for column, keys := range map[string][]string{"identity": resource.Distinct(identities), "id": ids} {
		if len(keys) == 0 {
			continue
		}
		q := store.Query{Engine: s.Engine}
		found, err := store.ReadAll(ctx, s.Rows, scanSession,
			selectSession+` WHERE t.`+column+` IN (SELECT v FROM `+s.Engine.Unnest(&q, keys)+` AS s)`, q.Args...)
		if err != nil {
			return nil, err
		}
		for _, n := range found {
			if currentTime.Before(n.ExpireTime) {
				sessions[n.ID] = n
			}
		}
	}
	return sessions, nil
}

// EndSession ends a session, which makes all its tokens void, and reports whether there was such a session. It emits
// the event only in the home group of the session.
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
	return true, t.Revoke(ctx, resource.SessionSubject(id))
}

// emitEnded emits the event of a session that was ended, in the home group of the
// session. There is no event for a session that had already expired.
func (t Tx) emitEnded(ctx context.Context, n resource.Session, why resource.EndReason) error {
	if !t.DB.Time().Before(n.ExpireTime) {
		return nil
	}
	return t.Emit(ctx, resource.SessionEnded, n.Identity, n.Home, resource.EndedSession{Session: n, Reason: why}, nil)
}

// EndSessionsWhere ends the sessions that a condition selects, and returns their number.
func (t Tx) EndSessionsWhere(ctx context.Context, why resource.EndReason, where string, args ...any) (int, error) {
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

// EndSessions ends all sessions of an identity except the one with the id except,
// and returns their number.
func (s *Store) EndSessions(ctx context.Context, identity resource.UID, except string) (n int, _ error) {
	err := s.write(ctx, func(t Tx) (err error) {
		n, err = t.EndSessions(ctx, identity, except, resource.EndRequest)
		return err
	})
	return n, err
}

// EndSessions is Store.EndSessions inside a transaction, with the given reason.
func (t Tx) EndSessions(
	ctx context.Context, identity resource.UID, except string, why resource.EndReason,
) (int, error) {
	return t.EndSessionsWhere(ctx, why, `t.identity = $1 AND t.id <> $2`, string(identity), except)
}

// StartBrowserSession adds the session of a browser with the digest of its cookie, calls each function in also in the
// same transaction, and emits the event of the sign-in. It returns the errors of StartSession.
func (s *Store) StartBrowserSession(
	ctx context.Context, n resource.Session, cookie []byte, how resource.Activity, also ...func(*store.Tx) error,
) error {
	return s.write(ctx, func(t Tx) error {
		if err := s.insertSession(ctx, t, n, cookie); err != nil {
			return err
		}
		if err := t.Do(also...); err != nil {
			return err
		}
		return t.Emit(ctx, resource.SignedIn, n.Identity, n.Home, nil, how)
	})
}

// sessionNoted is the shortest time between two records of the use of a browser's session.
const sessionNoted = time.Minute

// BrowserSession returns the session of the browser whose cookie has this digest,
// and records its use. It returns fault.NotFound if there is no such session, if it
// has expired, or if it was not used for the duration idle.
func (s *Store) BrowserSession(ctx context.Context, cookie []byte, idle time.Duration) (n resource.Session, err error) {
	if n, err = scanSession(s.QueryRow(ctx, selectSession+` WHERE t.cookie = $1`, cookie)); err != nil {
		return n, store.Missing(err, "session", "cookie")
	}
	currentTime := s.Time()
	if !currentTime.Before(n.ExpireTime) || currentTime.Sub(n.UsedTime) >= idle {
		return resource.Session{}, fault.Missing("session", "cookie")
	}
	if currentTime.Sub(n.UsedTime) < sessionNoted {
		return n, nil
	}
	_, err = s.Exec(ctx, `UPDATE sessions SET used_ms = $2 WHERE id = $1`, n.ID, store.MS(currentTime))
	return n, err
}

// DeleteSessions deletes the sessions of an identity that is about to be deleted,
// with their events. The deletion of the identity makes all its tokens void.
func (t Tx) DeleteSessions(ctx context.Context, identity resource.UID) error {
	sessions, err := store.ReadAll(ctx, t.Rows, scanSession,
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
	for _, n := range sessions {
		if err := t.emitEnded(ctx, n, resource.EndIdentityDeleted); err != nil {
			return err
		}
	}
	return nil
}
