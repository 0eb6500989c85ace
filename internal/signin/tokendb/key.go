package tokendb

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A SigningKey is an encrypted key of our token issuer.
type SigningKey struct {
	ID         string
	Algorithm  string
	Sealed     []byte // encrypted private key
	CreateTime time.Time
	Pair       *SigningKey // a key of another algorithm that is dropped together with this key; nil if there is none yet
}

// SigningKeys returns the issuer's keys with their pairs, newest first.
func (s *Store) SigningKeys(ctx context.Context) ([]SigningKey, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (k SigningKey, _ error) {
		var p SigningKey
		var created, paired int64
		err := row.Scan(&k.ID, &k.Algorithm, &k.Sealed, &created, &p.ID, &p.Algorithm, &p.Sealed, &paired)
		k.CreateTime = store.FromMS(created)
		if p.ID != "" {
			p.CreateTime = store.FromMS(paired)
			k.Pair = &p
		}
		return k, err
	}, `SELECT k.id, k.algorithm, k.sealed, k.create_ms,
			COALESCE(p.id, ''), COALESCE(p.algorithm, ''), p.sealed, COALESCE(p.create_ms, 0)
		FROM signing_keys AS k LEFT JOIN paired_keys AS p ON p.pair = k.id ORDER BY k.create_ms DESC, k.id`)
}

// PairSigningKey makes p the pair of the key with an id, unless that key has a pair
// or does not exist. If several replicas call it at the same time, one of them wins.
func (s *Store) PairSigningKey(ctx context.Context, id string, p SigningKey) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.LockRevision(ctx); err != nil {
			return err
		}
		n, err := t.Exec(ctx, `INSERT INTO paired_keys (id, pair, algorithm, sealed, create_ms)
			SELECT CAST($1 AS TEXT), k.id, CAST($2 AS TEXT), $3, $4 FROM signing_keys AS k WHERE k.id = $5
				AND NOT EXISTS (SELECT 1 FROM paired_keys AS p WHERE p.pair = k.id)`,
			p.ID, p.Algorithm, p.Sealed, store.MS(p.CreateTime), id)
		if n > 0 {
			t.IdentitiesChanged(resource.SigningKeysSubject)
		}
		return err
	})
}

func (t Tx) insertSigningKey(ctx context.Context, k SigningKey, createMS int64) error {
	_, err := t.Exec(ctx, `INSERT INTO signing_keys (id, algorithm, sealed, create_ms) VALUES ($1, $2, $3, $4)`,
		k.ID, k.Algorithm, k.Sealed, createMS)
	return err
}

// InsertFirstSigningKey adds k unless there already is a key. If several replicas
// start at the same time, one of them wins.
func (s *Store) InsertFirstSigningKey(ctx context.Context, k SigningKey) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.LockRevision(ctx); err != nil {
			return err
		}
		var n int
		if err := t.Row(ctx, `SELECT count(*) FROM signing_keys`, nil, &n); err != nil || n > 0 {
			return err
		}
		return t.insertSigningKey(ctx, k, store.MS(k.CreateTime))
	})
}

// AddSigningKey adds k if newest is still the id of the newest key, and reports whether it did. If several replicas
// rotate keys at the same time, one of them wins. k becomes the newest key even if the clock that set its creation time
// is behind.
func (s *Store) AddSigningKey(ctx context.Context, k SigningKey, newest string) (added bool, _ error) {
	err := s.write(ctx, func(t Tx) error {
		added = false
		if err := t.LockRevision(ctx); err != nil {
			return err
		}
		var id string
		var created int64
		if err := t.Row(ctx, `SELECT id, create_ms FROM signing_keys ORDER BY create_ms DESC, id LIMIT 1`, nil, &id,
			&created); err != nil || id != newest {
			return err
		}
		err := t.insertSigningKey(ctx, k, max(store.MS(k.CreateTime), created+1))
		added = err == nil
		t.IdentitiesChanged(resource.SigningKeysSubject)
		return err
	})
	return added, err
}

// DropSigningKey removes a key and its pair. The tokens that they have signed become
// void. It returns fault.NotFound if there is no key with that id.
func (s *Store) DropSigningKey(ctx context.Context, id string) error {
	return s.write(ctx, func(t Tx) error {
		n, err := t.Exec(ctx, `DELETE FROM signing_keys WHERE id = $1`, id)
		if err == nil && n == 0 {
			return fault.Missing("signing key", id)
		}
		t.IdentitiesChanged(resource.SigningKeysSubject)
		return err
	})
}

// ForgetSealed removes the signing keys that cannot be decrypted, and returns their number.
func (t Tx) ForgetSealed(ctx context.Context, opens func(sealed []byte) bool) (keys int, _ error) {
	stored, err := store.ReadMap[string, []byte](ctx, t.Rows, `SELECT id, sealed FROM signing_keys`)
	if err != nil {
		return 0, err
	}
	for id, sealed := range stored {
		if opens(sealed) {
			continue
		}
		if _, err := t.Exec(ctx, `DELETE FROM signing_keys WHERE id = $1`, id); err != nil {
			return 0, err
		}
		keys++
	}
	if keys > 0 {
		t.IdentitiesChanged(resource.SigningKeysSubject)
	}
	return keys, nil
}
