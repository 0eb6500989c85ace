package signindb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// SetRecoveryCodes replaces the recovery codes of an account by codes with these
// digests. It returns fault.NotFound if there is no such account.
func (s *Store) SetRecoveryCodes(ctx context.Context, uid resource.UID, digests [][]byte) error {
	return s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &accounts, uid, s.Engine.ForUpdate)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `DELETE FROM recovery_codes WHERE account = $1`, store.Segment(uid)); err != nil {
			return err
		}
		for _, d := range digests {
			if _, err := t.Exec(ctx, `INSERT INTO recovery_codes (account, digest) VALUES ($1, $2)`, store.Segment(uid),
				d); err != nil {
				return err
			}
		}
		if err := t.emitActivity(ctx, resource.RecoveryCodesCreated, before, resource.Activity{}); err != nil {
			return err
		}
		return t.Emit(ctx, resource.AccountUpdated, uid, uid.Parent(), before, before)
	})
}

// UseRecoveryCode deletes the recovery code with that digest, and reports whether
// the account had it. Each code is valid once. It returns fault.NotFound if there
// is no such account.
func (s *Store) UseRecoveryCode(ctx context.Context, uid resource.UID, digest []byte) (good bool, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &accounts, uid, s.Engine.ForUpdate)
		if err != nil {
			return err
		}
		n, err := t.Exec(ctx, `DELETE FROM recovery_codes WHERE account = $1 AND digest = $2`, store.Segment(uid), digest)
		if good = n == 1; err != nil || !good {
			return err
		}
		return t.Emit(ctx, resource.AccountUpdated, uid, uid.Parent(), before, before)
	})
	return good, err
}

// dropUselessCodes deletes the recovery codes of an account without a second
// factor, so that old codes are not valid for a factor that is added later.
func (t Tx) dropUselessCodes(ctx context.Context, uid resource.UID) error {
	_, err := t.Exec(ctx, `
		DELETE FROM recovery_codes WHERE account = $1 AND NOT EXISTS (SELECT 1 FROM passkeys WHERE account = $1)
			AND NOT EXISTS (SELECT 1 FROM accounts WHERE seg = $1 AND length(totp) > 0)`, store.Segment(uid))
	return err
}
