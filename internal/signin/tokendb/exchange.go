package tokendb

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// RecordExchanges stores exchanges. It keeps the newest resource.ExchangesKept exchanges of each identity, and deletes
// exchanges that are older than resource.ExchangeMemory. It drops exchanges of identities that do not exist.
func (s *Store) RecordExchanges(ctx context.Context, exchanges []resource.Exchange) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.deleteOldRecords(ctx, "exchanges", s.Time()); err != nil {
			return err
		}
		for _, e := range exchanges {
			if err := t.record(ctx, "exchanges", e.Identity, e.Time, e.RequestID, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// RecordDenials stores denials, under the rules of RecordExchanges.
func (s *Store) RecordDenials(ctx context.Context, denials []resource.Denial) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.deleteOldRecords(ctx, "denials", s.Time()); err != nil {
			return err
		}
		for _, d := range denials {
			if err := t.record(ctx, "denials", d.Identity, d.Time, d.RequestID, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// deleteOldRecords deletes the rows of a table that are older than resource.ExchangeMemory.
func (t Tx) deleteOldRecords(ctx context.Context, table string, currentTime time.Time) error {
	_, err := t.Exec(ctx, `DELETE FROM `+table+` WHERE at_ms < $1`, store.MS(currentTime.Add(-resource.ExchangeMemory)))
	return err
}

// record stores an exchange or a denial of an identity, and deletes all but the newest resource.ExchangesKept.
func (t Tx) record(
	ctx context.Context, table string, identity resource.UID, when time.Time, request string, v any,
) error {
	detail, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := t.Require(ctx, "identities", "identity", identity); err != nil {
		if errors.Is(err, fault.NotFound) {
			return nil
		}
		return err
	}
	seg := store.Segment(identity)
	if _, err := t.Exec(ctx, `INSERT INTO `+table+` (identity, at_ms, request, detail) VALUES ($1, $2, $3, $4)`,
		seg, store.MS(when), request, string(detail)); err != nil {
		return err
	}
	_, err = t.Exec(ctx, `DELETE FROM `+table+` WHERE identity = $1 AND at_ms <
		(SELECT min(x.at_ms) FROM (SELECT at_ms FROM `+table+` WHERE identity = $1 ORDER BY at_ms DESC LIMIT $2) AS x)`,
		seg, resource.ExchangesKept)
	return err
}

// Exchanges returns the last exchanges of an identity, newest first.
func (s *Store) Exchanges(ctx context.Context, identity resource.UID) ([]resource.Exchange, error) {
	parse := func(when time.Time, request, detail string) (e resource.Exchange, err error) {
		err = json.Unmarshal([]byte(detail), &e)
		e.Identity, e.Time, e.RequestID = identity, when, request
		return e, err
	}
	return readRecords(ctx, s, "exchanges", identity, parse)
}

// Denials returns the last denials of an identity, newest first.
func (s *Store) Denials(ctx context.Context, identity resource.UID) ([]resource.Denial, error) {
	parse := func(when time.Time, request, detail string) (d resource.Denial, err error) {
		err = json.Unmarshal([]byte(detail), &d)
		d.Identity, d.Time, d.RequestID = identity, when, request
		return d, err
	}
	return readRecords(ctx, s, "denials", identity, parse)
}

// readRecords reads the rows of an identity from the table of exchanges or of denials, newest first.
func readRecords[T any](
	ctx context.Context, s *Store, table string, identity resource.UID,
	parse func(when time.Time, request, detail string) (T, error),
) ([]T, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (T, error) {
		var ms int64
		var request, detail string
		if err := row.Scan(&ms, &request, &detail); err != nil {
			return *new(T), err
		}
		return parse(store.FromMS(ms), request, detail)
	}, `SELECT at_ms, request, detail FROM `+table+` WHERE identity = $1 ORDER BY at_ms DESC LIMIT $2`,
		store.Segment(identity), resource.ExchangesKept)
}
