// Package maildb stores messages to people until they have been sent.
package maildb

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Remembered is how long the record of a sent message is kept, without its text.
const Remembered = 24 * time.Hour

// A Mail is a message to a person.
type Mail struct {
	ID           string
	Organization resource.UID // organization that sends the message
	Address      []byte       // digest of the recipient's address
	Sealed       []byte       // the encrypted text and recipient
	Attempts     int64
	CreateTime   time.Time
	ExpireTime   time.Time // the message is not sent after this time
}

// A Store stores messages in a database. It is safe for concurrent use.
type Store struct{ *store.DB }

// New returns the Store for a database.
func New(db *store.DB) *Store { return &Store{db} }

// A Tx is a running transaction, with methods that change messages.
type Tx struct{ *store.Tx }

// In returns t with methods that change messages.
func In(t *store.Tx) Tx { return Tx{t} }

// Insert adds a message that is due immediately.
func (t Tx) Insert(ctx context.Context, m Mail) error {
	_, err := t.Exec(ctx, `INSERT INTO mails (id, organization, address, sealed, create_ms, expire_ms, next_ms)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, m.ID, string(m.Organization), m.Address, m.Sealed,
		store.MS(m.CreateTime), store.MS(m.ExpireTime), store.MS(m.CreateTime))
	return err
}

// Counts contains numbers of messages since a time.
type Counts struct {
	ByOrganization int // messages from the organization, to any address
	ToAddress      int // messages to the address, from any organization
	Both           int // messages from the organization to the address
}

// Counts counts the messages from an organization and to an address since a time, which
// must be at most Remembered ago. Until this transaction ends, no other one can count
// messages from the organization or to the address.
func (t Tx) Counts(ctx context.Context, org resource.UID, address []byte, since time.Time) (c Counts, err error) {
	if err := t.LockNames(ctx, "mails by "+string(org), "mails to "+hex.EncodeToString(address)); err != nil {
		return c, err
	}
	err = t.Row(ctx, `SELECT
		(SELECT count(*) FROM mails WHERE organization = $1 AND create_ms > $3),
		(SELECT count(*) FROM mails WHERE address = $2 AND create_ms > $3),
		(SELECT count(*) FROM mails WHERE address = $2 AND organization = $1 AND create_ms > $3)`,
		[]any{string(org), address, store.MS(since)}, &c.ByOrganization, &c.ToAddress, &c.Both)
	return c, err
}

// Claim returns a message that is due, and whether there is one. No other replica gets the
// message during the lease. After the lease it is due again. The attempt is counted
// immediately, whatever its result.
func (s *Store) Claim(ctx context.Context, lease time.Duration) (m Mail, ok bool, _ error) {
	claimed := s.Time()
	var org string
	var next, create, expire int64
	err := s.Row(ctx, `SELECT id, organization, address, sealed, attempts, create_ms, expire_ms, next_ms FROM mails
		WHERE sealed IS NOT NULL AND next_ms <= $1 ORDER BY next_ms, id LIMIT 1`, []any{store.MS(claimed)},
		&m.ID, &org, &m.Address, &m.Sealed, &m.Attempts, &create, &expire, &next)
	if errors.Is(err, sql.ErrNoRows) {
		return Mail{}, false, nil
	}
	if err != nil {
		return Mail{}, false, err
	}
	m.Organization = resource.UID(org)
	m.CreateTime, m.ExpireTime = time.UnixMilli(create).UTC(), time.UnixMilli(expire).UTC()
	m.Attempts++
	// Two replicas may have read the same row. The condition makes the second update change
	// nothing.
	n, err := s.Exec(ctx, `UPDATE mails SET attempts = attempts + 1, next_ms = $1
		WHERE id = $2 AND next_ms = $3 AND sealed IS NOT NULL`, store.MS(claimed.Add(lease)), m.ID, next)
	return m, n == 1 && err == nil, err
}

// Retry makes a message due again at a time, unless it was sent.
func (s *Store) Retry(ctx context.Context, id string, at time.Time) error {
	_, err := s.Exec(ctx, `UPDATE mails SET next_ms = $1 WHERE id = $2`, store.MS(at), id)
	return err
}

// Finish removes the text of a message that was sent or never will be.
func (s *Store) Finish(ctx context.Context, id string) error {
	_, err := s.Exec(ctx, `UPDATE mails SET sealed = NULL WHERE id = $1`, id)
	return err
}

// Sweep removes the texts of expired messages, and the records that are older than
// Remembered. It returns how many messages expired before they were sent.
func (s *Store) Sweep(ctx context.Context) (expired int64, _ error) {
	err := s.Write(ctx, func(t *store.Tx) (err error) {
		swept := s.Time()
		if expired, err = t.Exec(ctx, `UPDATE mails SET sealed = NULL WHERE sealed IS NOT NULL AND expire_ms <= $1`,
			store.MS(swept)); err != nil {
			return err
		}
		_, err = t.Exec(ctx, `DELETE FROM mails WHERE create_ms <= $1 AND sealed IS NULL`,
			store.MS(swept.Add(-Remembered)))
		return err
	})
	return expired, err
}

// Waiting returns the number of messages to be sent, and when the oldest was added.
func (s *Store) Waiting(ctx context.Context) (n int, oldest time.Time, _ error) {
	var ms sql.NullInt64
	err := s.Row(ctx, `SELECT count(*), min(create_ms) FROM mails WHERE sealed IS NOT NULL`, nil, &n, &ms)
	if ms.Valid {
		oldest = time.UnixMilli(ms.Int64).UTC()
	}
	return n, oldest, err
}
