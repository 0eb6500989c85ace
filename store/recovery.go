package store

import (
	"context"

	"github.com/holdfast-dev/holdfast/resource"
)

// SetRecoveryCodes gives an account recovery codes of these digests, in place of
// those it had. It returns fault.NotFound if there is no such account.
func (s *Store) SetRecoveryCodes(ctx context.Context, uid resource.UID, digests [][]byte) error {
	return s.write(ctx, func(t *tx) error {
		before, err := take(ctx, t, &accounts, "account", uid, s.engine.lock)
		if err != nil {
			return err
		}
		if _, err := t.exec(ctx, `DELETE FROM recovery_codes WHERE account = $1`, segment(uid)); err != nil {
			return err
		}
		for _, d := range digests {
			if _, err := t.exec(ctx, `INSERT INTO recovery_codes (account, digest) VALUES ($1, $2)`, segment(uid), d); err != nil {
				return err
			}
		}
		return t.emit(ctx, resource.AccountUpdated, uid, uid.Parent(), before, before)
	})
}

// UseRecoveryCode takes the recovery code of a digest from an account, and tells
// whether it had it: each is good once. It returns fault.NotFound if there is no
// such account.
func (s *Store) UseRecoveryCode(ctx context.Context, uid resource.UID, digest []byte) (good bool, _ error) {
	err := s.write(ctx, func(t *tx) error {
		before, err := take(ctx, t, &accounts, "account", uid, s.engine.lock)
		if err != nil {
			return err
		}
		n, err := t.exec(ctx, `DELETE FROM recovery_codes WHERE account = $1 AND digest = $2`, segment(uid), digest)
		if good = n == 1; err != nil || !good {
			return err
		}
		return t.emit(ctx, resource.AccountUpdated, uid, uid.Parent(), before, before)
	})
	return good, err
}

// dropIdleCodes takes the recovery codes from an account that has nothing left
// that they would stand in for: codes that were forgotten shall not open what is
// added years later.
func (t *tx) dropIdleCodes(ctx context.Context, uid resource.UID) error {
	_, err := t.exec(ctx, `
		DELETE FROM recovery_codes WHERE account = $1 AND NOT EXISTS (SELECT 1 FROM passkeys WHERE account = $1)
			AND NOT EXISTS (SELECT 1 FROM accounts WHERE seg = $1 AND length(totp) > 0)`, segment(uid))
	return err
}
