package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// How many changes to grants are kept for checkers that fell behind, and how
// often older ones are dropped.
const changesKept, changesPruned = 10_000, 1_000

// A Grant is a binding reduced to what authorization needs.
type Grant struct{ Identity, Group, Role resource.UID }

// A GrantChange says what to read again: the grants of an identity, or the
// capabilities of a role.
type GrantChange struct {
	Revision       int64
	Identity, Role resource.UID
}

// Grants calls f for every grant there is, and returns a revision they include:
// of the changes after it they may have some.
func (s *Store) Grants(ctx context.Context, f func(Grant)) (revision int64, _ error) {
	revision, err := s.Revision(ctx)
	if err != nil {
		return 0, err
	}
	roles, err := s.roleNames(ctx)
	if err != nil {
		return 0, err
	}
	err = s.rows(ctx, `SELECT identity, uid, role FROM role_bindings`, nil, func(row scanner) (bool, error) {
		var identity, uid string // database/sql is slow with types of our own, and these are many
		var role int64
		err := row.Scan(&identity, &uid, &role)
		f(Grant{resource.UID(identity), resource.UID(uid).Parent(), roles[role]})
		return false, err
	})
	return revision, err
}

// roleNames returns the UIDs of roles by segment.
func (s *Store) roleNames(ctx context.Context) (map[int64]resource.UID, error) {
	roles := map[int64]resource.UID{}
	err := s.rows(ctx, `SELECT seg, uid FROM roles`, nil, func(row scanner) (bool, error) {
		var seg int64
		var uid resource.UID
		err := row.Scan(&seg, &uid)
		roles[seg] = uid
		return false, err
	})
	return roles, err
}

// GrantsOf returns the grants of one identity.
func (s *Store) GrantsOf(ctx context.Context, identity resource.UID) ([]Grant, error) {
	var all []Grant
	err := s.rows(ctx, `SELECT b.uid, (SELECT r.uid FROM roles AS r WHERE r.seg = b.role) FROM role_bindings AS b WHERE b.identity = $1`,
		[]any{string(identity)}, func(row scanner) (bool, error) {
			var uid, role resource.UID
			err := row.Scan(&uid, &role)
			all = append(all, Grant{identity, uid.Parent(), role})
			return false, err
		})
	return all, err
}

// RoleCapabilities returns what every role allows.
func (s *Store) RoleCapabilities(ctx context.Context) (map[resource.UID]resource.Capabilities, error) {
	all := map[resource.UID]resource.Capabilities{}
	err := s.rows(ctx, `SELECT uid, capabilities FROM roles`, nil, func(row scanner) (bool, error) {
		var uid resource.UID
		var text string
		if err := row.Scan(&uid, &text); err != nil {
			return false, err
		}
		var caps resource.Capabilities
		err := json.Unmarshal([]byte(text), &caps)
		all[uid] = caps
		return false, err
	})
	return all, err
}

// Revision returns the number of the newest change to grants.
func (s *Store) Revision(ctx context.Context) (rev int64, err error) {
	err = s.row(ctx, revisionQuery, nil, &rev)
	return rev, err
}

const revisionQuery = `SELECT rev FROM revision WHERE id = 1`

// GrantChanges returns the changes after since, in order. complete is false if
// some of them are no longer kept.
func (s *Store) GrantChanges(ctx context.Context, since int64) (changes []GrantChange, complete bool, err error) {
	err = s.rows(ctx, `SELECT rev, identity, role FROM grant_changes WHERE rev > $1 ORDER BY rev`, []any{since}, func(row scanner) (bool, error) {
		var c GrantChange
		err := row.Scan(&c.Revision, &c.Identity, &c.Role)
		changes = append(changes, c)
		return false, err
	})
	return changes, len(changes) == 0 || changes[0].Revision == since+1, err
}

// Revocations returns the identities that were deleted after since, and the
// subjects of sessions that were ended, and when: tokens issued until then are
// void.
func (s *Store) Revocations(ctx context.Context, since time.Time) (map[resource.UID]time.Time, error) {
	all := map[resource.UID]time.Time{}
	err := s.rows(ctx, `SELECT identity, at_ms FROM revocations WHERE at_ms > $1`, []any{ms(since)}, func(row scanner) (bool, error) {
		var uid resource.UID
		var at int64
		err := row.Scan(&uid, &at)
		all[uid] = fromMS(at)
		return false, err
	})
	return all, err
}

// revoke makes the tokens of an identity or of a session void, and forgets
// revocations that are older than any token can be.
func (t *tx) revoke(ctx context.Context, identity resource.UID) error {
	now := t.s.now()
	if _, err := t.exec(ctx, `DELETE FROM revocations WHERE at_ms < $1`, ms(now.Add(-revocationsKept))); err != nil {
		return err
	}
	_, err := t.exec(ctx, `INSERT INTO revocations (identity, at_ms) VALUES ($1, $2)
		ON CONFLICT (identity) DO UPDATE SET at_ms = excluded.at_ms`, string(identity), ms(now))
	t.reread(identity)
	return err
}

// reread has every checker read again what it knows of an identity.
func (t *tx) reread(identity resource.UID) { t.granted = append(t.granted, change{identity: identity}) }

// repathed has every replica clear its cache of repos, because a path may lead to
// another repo than before, or to none.
func (t *tx) repathed() { t.granted = append(t.granted, change{}) }

// revocationsKept is longer than the life of any token this service signs.
const revocationsKept = 48 * time.Hour

// A SigningKey is a key of the issuer, sealed.
type SigningKey struct {
	ID         string
	Algorithm  string
	Sealed     []byte
	CreateTime time.Time
}

// SigningKeys returns the issuer's keys, newest first.
func (s *Store) SigningKeys(ctx context.Context) ([]SigningKey, error) {
	var all []SigningKey
	err := s.rows(ctx, `SELECT id, algorithm, sealed, create_ms FROM signing_keys ORDER BY create_ms DESC, id`, nil, func(row scanner) (bool, error) {
		var k SigningKey
		var at int64
		err := row.Scan(&k.ID, &k.Algorithm, &k.Sealed, &at)
		k.CreateTime = fromMS(at)
		all = append(all, k)
		return false, err
	})
	return all, err
}

// InsertFirstSigningKey adds k unless there is a key already: of replicas that
// start together, one wins.
func (s *Store) InsertFirstSigningKey(ctx context.Context, k SigningKey) error {
	return s.write(ctx, func(t *tx) error {
		var one int // whoever comes second waits here
		if err := t.row(ctx, `SELECT 1 FROM revision AS t WHERE t.id = 1`+s.engine.lock, nil, &one); err != nil {
			return err
		}
		var n int
		if err := t.row(ctx, `SELECT count(*) FROM signing_keys`, nil, &n); err != nil || n > 0 {
			return err
		}
		_, err := t.exec(ctx, `INSERT INTO signing_keys (id, algorithm, sealed, create_ms) VALUES ($1, $2, $3, $4)`,
			k.ID, k.Algorithm, k.Sealed, ms(k.CreateTime))
		return err
	})
}

// AddSigningKey adds k if the newest key is still the one of that id, and tells
// whether it did: of replicas that rotate together, one wins. It is then the
// newest, even if the clock that dated it is behind.
func (s *Store) AddSigningKey(ctx context.Context, k SigningKey, newest string) (added bool, _ error) {
	err := s.write(ctx, func(t *tx) error {
		added = false
		var one int // whoever comes second waits here
		if err := t.row(ctx, `SELECT 1 FROM revision AS t WHERE t.id = 1`+s.engine.lock, nil, &one); err != nil {
			return err
		}
		var id string
		var at int64
		if err := t.row(ctx, `SELECT id, create_ms FROM signing_keys ORDER BY create_ms DESC, id LIMIT 1`, nil, &id, &at); err != nil || id != newest {
			return err
		}
		_, err := t.exec(ctx, `INSERT INTO signing_keys (id, algorithm, sealed, create_ms) VALUES ($1, $2, $3, $4)`,
			k.ID, k.Algorithm, k.Sealed, max(ms(k.CreateTime), at+1))
		added = err == nil
		t.reread(resource.SigningKeysSubject)
		return err
	})
	return added, err
}

// DropSigningKey removes a key: what it has signed is void. It returns
// fault.NotFound if there is none of that id.
func (s *Store) DropSigningKey(ctx context.Context, id string) error {
	return s.write(ctx, func(t *tx) error {
		n, err := t.exec(ctx, `DELETE FROM signing_keys WHERE id = $1`, id)
		if err == nil && n == 0 {
			return fault.Missing("signing key", id)
		}
		t.reread(resource.SigningKeysSubject)
		return err
	})
}

// Setting returns the value kept under a name. It returns fault.NotFound if
// there is none.
func (s *Store) Setting(ctx context.Context, name string) (value []byte, err error) {
	err = s.row(ctx, `SELECT value FROM settings WHERE name = $1`, []any{name}, &value)
	return value, missing(err, "setting", resource.UID(name))
}

// SetSetting keeps a value under a name; nil forgets it.
func (s *Store) SetSetting(ctx context.Context, name string, value []byte) error {
	return s.write(ctx, func(t *tx) error {
		if value == nil {
			_, err := t.exec(ctx, `DELETE FROM settings WHERE name = $1`, name)
			return err
		}
		_, err := t.exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
		return err
	})
}

// FirstSetting keeps a value under a name unless there is one already, and
// returns the one that is kept: of replicas that start together, one wins.
func (s *Store) FirstSetting(ctx context.Context, name string, value []byte) (kept []byte, err error) {
	err = s.write(ctx, func(t *tx) error {
		if _, err := t.exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, name, value); err != nil {
			return err
		}
		return t.row(ctx, `SELECT value FROM settings WHERE name = $1`, []any{name}, &kept)
	})
	return kept, err
}

// TakeSetting forgets the value under a name if it is still this one, and tells
// whether it was: of two who come at once, one takes it.
func (s *Store) TakeSetting(ctx context.Context, name string, value []byte) (taken bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		n, err := t.exec(ctx, `DELETE FROM settings WHERE name = $1 AND value = $2`, name, value)
		taken = n == 1
		return err
	})
	return taken, err
}

// HasOrganizations tells whether there is any root group.
func (s *Store) HasOrganizations(ctx context.Context) (bool, error) {
	var one int
	err := s.row(ctx, `SELECT 1 FROM groups WHERE parent IS NULL LIMIT 1`, nil, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for organizations: %w", err)
	}
	return true, nil
}
