package iamdb

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// RecordExchanges keeps exchanges, of each identity the newest, and forgets those of long ago.
// Exchanges of identities that are gone are dropped.
func (s *Store) RecordExchanges(ctx context.Context, all []resource.Exchange) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.forget(ctx, "exchanges", s.Time()); err != nil {
			return err
		}
		for _, e := range all {
			if err := t.record(ctx, "exchanges", e.Identity, e.Time, e.RequestID, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// RecordDenials does the same with denials.
func (s *Store) RecordDenials(ctx context.Context, all []resource.Denial) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.forget(ctx, "denials", s.Time()); err != nil {
			return err
		}
		for _, d := range all {
			if err := t.record(ctx, "denials", d.Identity, d.Time, d.RequestID, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// forget deletes what was recorded in a table long ago.
func (t Tx) forget(ctx context.Context, table string, now time.Time) error {
	_, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE at_ms < $1`, store.MS(now.Add(-resource.ExchangeMemory)))
	return err
}

// record keeps something that happened to an identity, and of all that did the newest.
func (t Tx) record(
	ctx context.Context, table string, identity resource.UID, at time.Time, request string, what any,
) error {
	detail, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if found, err := t.HasIdentity(ctx, identity); err != nil || !found {
		return err
	}
	seg := store.Segment(identity)
	if _, err := t.Exec(ctx, `INSERT INTO `+table+` (identity, at_ms, request, detail) VALUES ($1, $2, $3, $4)`,
		seg, store.MS(at), request, string(detail)); err != nil {
		return err
	}
	_, err = t.Exec(ctx, `DELETE FROM `+table+` WHERE identity = $1 AND at_ms <
		(SELECT min(x.at_ms) FROM (SELECT at_ms FROM `+table+` WHERE identity = $1 ORDER BY at_ms DESC LIMIT $2) AS x)`,
		seg, resource.ExchangesKept)
	return err
}

// Exchanges returns the last exchanges of an identity, newest first.
func (s *Store) Exchanges(ctx context.Context, identity resource.UID) ([]resource.Exchange, error) {
	return recorded(ctx, s, "exchanges", identity, func(at time.Time, request, detail string) (e resource.Exchange, err error) {
		err = json.Unmarshal([]byte(detail), &e)
		e.Identity, e.Time, e.RequestID = identity, at, request
		return e, err
	})
}

// Denials returns what an identity was refused for lately, newest first.
func (s *Store) Denials(ctx context.Context, identity resource.UID) ([]resource.Denial, error) {
	return recorded(ctx, s, "denials", identity, func(at time.Time, request, detail string) (d resource.Denial, err error) {
		err = json.Unmarshal([]byte(detail), &d)
		d.Identity, d.Time, d.RequestID = identity, at, request
		return d, err
	})
}

func recorded[T any](
	ctx context.Context, s *Store, table string, identity resource.UID, read func(at time.Time, request, detail string) (T, error),
) ([]T, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (T, error) {
		var at int64
		var request, detail string
		if err := row.Scan(&at, &request, &detail); err != nil {
			return *new(T), err
		}
		return read(store.FromMS(at), request, detail)
	}, `SELECT at_ms, request, detail FROM `+table+` WHERE identity = $1 ORDER BY at_ms DESC LIMIT $2`,
		store.Segment(identity), resource.ExchangesKept)
}
