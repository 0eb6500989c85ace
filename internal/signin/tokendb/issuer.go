package tokendb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// IssuerState returns the result of the last check of an issuer. Its times are
// zero if there was no check.
func (s *Store) IssuerState(ctx context.Context, issuer string) (resource.IssuerState, error) {
	state := resource.IssuerState{Issuer: issuer}
	var checked, succeeded int64
	var keys string
	err := s.Row(ctx, `SELECT check_ms, success_ms, problem, keys FROM issuers WHERE issuer = $1`, []any{issuer},
		&checked, &succeeded, &state.Problem, &keys)
	if errors.Is(err, sql.ErrNoRows) {
		return state, nil
	}
	if err != nil {
		return state, err
	}
	state.CheckTime = store.FromMS(checked)
	if succeeded > 0 {
		state.SuccessTime = store.FromMS(succeeded)
	}
	return state, json.Unmarshal([]byte(keys), &state.Keys)
}

// ClaimIssuer reports whether the last check of an issuer was before due. If so, it
// records a new check. If several replicas call it at the same time, it returns
// true to one of them.
func (s *Store) ClaimIssuer(ctx context.Context, issuer string, due time.Time) (bool, error) {
	n, err := s.Exec(ctx, `
		INSERT INTO issuers (issuer, check_ms, success_ms, problem, keys) VALUES ($1, $2, 0, 'is being looked at', '[]')
		ON CONFLICT (issuer) DO UPDATE SET check_ms = excluded.check_ms WHERE issuers.check_ms < $3`, issuer,
		store.MS(s.Time()), store.MS(due))
	return n == 1, err
}

// NoteIssuer records the result of a check of an issuer. A failed check keeps the
// time and the keys of the last successful one.
func (s *Store) NoteIssuer(ctx context.Context, state resource.IssuerState) error {
	if state.Problem != "" {
		_, err := s.Exec(ctx, `UPDATE issuers SET check_ms = $2, problem = $3 WHERE issuer = $1`,
			state.Issuer, store.MS(state.CheckTime), state.Problem)
		return err
	}
	keys, err := json.Marshal(state.Keys)
	if err != nil {
		return err
	}
	_, err = s.Exec(ctx, `UPDATE issuers SET check_ms = $2, success_ms = $2, problem = '', keys = $3 WHERE issuer = $1`,
		state.Issuer, store.MS(state.CheckTime), string(keys))
	return err
}

// DropIssuers deletes the states of issuers that no identity trusts.
func (s *Store) DropIssuers(ctx context.Context) error {
	_, err := s.Exec(ctx,
		`DELETE FROM issuers WHERE NOT EXISTS (SELECT 1 FROM identities AS i WHERE i.issuer = issuers.issuer)`)
	return err
}
