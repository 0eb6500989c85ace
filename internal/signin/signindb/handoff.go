package signindb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// dropExpired deletes up to 50 expired rows of a table.
func (t Tx) dropExpired(ctx context.Context, table string) error {
	_, err := t.Exec(ctx,
		`DELETE FROM `+table+` WHERE digest IN (SELECT digest FROM `+table+` WHERE expire_ms < $1
			ORDER BY expire_ms LIMIT 50)`, store.MS(t.DB.Time()))
	return err
}

// UseOnce records the use of a code until expires, and reports whether this was its
// first use. digest is the digest of the code.
func (s *Store) UseOnce(ctx context.Context, digest []byte, expires time.Time) (first bool, _ error) {
	err := s.write(ctx, func(t Tx) error {
		if err := t.dropExpired(ctx, "spent"); err != nil {
			return err
		}
		n, err := t.Exec(ctx, `INSERT INTO spent (digest, expire_ms) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING`,
			digest, store.MS(expires))
		first = n == 1
		return err
	})
	return first, err
}

// PutHandoff stores the result of one step of a sign-in for the next step, under the
// digest of a code, until expires. It returns fault.AlreadyExists if the digest is
// in use.
func (s *Store) PutHandoff(ctx context.Context, digest, detail []byte, expires time.Time) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.dropExpired(ctx, "handoffs"); err != nil {
			return err
		}
		_, err := t.Exec(ctx, `INSERT INTO handoffs (digest, detail, expire_ms) VALUES ($1, $2, $3)`, digest, detail,
			store.MS(expires))
		return s.ConstraintFault(err, "hand-off", "code", "")
	})
}

// Handoff returns the detail that PutHandoff stored under a digest, or
// fault.NotFound.
func (s *Store) Handoff(ctx context.Context, digest []byte) (detail []byte, err error) {
	err = s.Row(ctx, `SELECT detail FROM handoffs WHERE digest = $1 AND expire_ms > $2`,
		[]any{digest, store.MS(s.Time())}, &detail)
	return detail, store.Missing(err, "hand-off", "code")
}

// ConsumeHandoff returns the detail that PutHandoff stored under a digest, and deletes it. It returns fault.NotFound if
// nothing was stored under the digest, or if the detail was already consumed or has expired.
func (s *Store) ConsumeHandoff(ctx context.Context, digest []byte) (detail []byte, _ error) {
	err := s.write(ctx, func(t Tx) error {
		err := t.Row(ctx, `SELECT t.detail FROM handoffs AS t WHERE t.digest = $1 AND t.expire_ms > $2`+s.Engine.ForUpdate,
			[]any{digest, store.MS(s.Time())}, &detail)
		if err != nil {
			return store.Missing(err, "hand-off", "code")
		}
		_, err = t.Exec(ctx, `DELETE FROM handoffs WHERE digest = $1`, digest)
		return err
	})
	return detail, err
}

// maxDevices is the greatest number of devices that may wait at the same time.
const maxDevices = 10_000

// AddDevice stores a device that asks to be signed in. It returns
// fault.AlreadyExists if its user code is in use, and fault.ResourceExhausted if
// too many devices wait.
func (s *Store) AddDevice(ctx context.Context, digest []byte, d resource.Device) error {
	detail, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return s.write(ctx, func(t Tx) error {
		if err := t.dropExpired(ctx, "devices"); err != nil {
			return err
		}
		var n int
		if err := t.Row(ctx, `SELECT count(*) FROM devices`, nil, &n); err != nil {
			return err
		}
		if n >= maxDevices {
			f := fault.New(fault.ResourceExhausted, "Resource exhausted: too many devices are waiting to be signed in")
			f.RetryIn = time.Minute
			return f
		}
		_, err := t.Exec(ctx,
			`INSERT INTO devices (digest, user_code, detail, state, granted, poll_ms, expire_ms)
				VALUES ($1, $2, $3, 0, $4, 0, $5)`,
			digest, d.UserCode, string(detail), []byte{}, store.MS(d.ExpireTime))
		return s.ConstraintFault(err, "device", d.UserCode, "")
	})
}

const deviceColumns = `t.user_code, t.detail, t.state, t.granted, t.poll_ms, t.expire_ms`

func scanDevice(row store.Scanner) (d resource.Device, polled int64, err error) {
	var detail string
	var expires int64
	var state int64
	if err := row.Scan(&d.UserCode, &detail, &state, &d.Granted, &polled, &expires); err != nil {
		return d, 0, err
	}
	err = json.Unmarshal([]byte(detail), &d)
	d.State, d.ExpireTime = resource.DeviceState(state), store.FromMS(expires)
	return d, polled, err
}

// DeviceOf returns the waiting device with a user code, or fault.NotFound.
func (s *Store) DeviceOf(ctx context.Context, userCode string) (resource.Device, error) {
	d, _, err := scanDevice(s.QueryRow(ctx,
		`SELECT `+deviceColumns+` FROM devices AS t WHERE t.user_code = $1 AND t.state = 0 AND t.expire_ms > $2`, userCode,
		store.MS(s.Time())))
	return d, store.Missing(err, "device", resource.UID(userCode))
}

// DecideDevice stores the decision about the device with a user code. It returns
// fault.NotFound if no device with that code waits for a decision. Each device is
// decided once.
func (s *Store) DecideDevice(ctx context.Context, userCode string, state resource.DeviceState, granted []byte) error {
	n, err := s.Exec(ctx,
		`UPDATE devices SET state = $2, granted = $3 WHERE user_code = $1 AND state = 0 AND expire_ms > $4`,
		userCode, int64(state), append([]byte{}, granted...), store.MS(s.Time()))
	if err == nil && n == 0 {
		return fault.Missing("device", userCode)
	}
	return err
}

// PollDevice returns the device with the digest of a device code. hasty reports
// whether its previous poll was less than interval ago. PollDevice deletes a device
// that was decided. It returns fault.NotFound if there is no such device, or it has
// expired.
func (s *Store) PollDevice(
	ctx context.Context, digest []byte, interval time.Duration,
) (d resource.Device, hasty bool, _ error) {
	err := s.write(ctx, func(t Tx) error {
		var polled int64
		var err error
		asOf := s.Time()
		d, polled, err = scanDevice(t.QueryRow(ctx,
			`SELECT `+deviceColumns+` FROM devices AS t WHERE t.digest = $1`+s.Engine.ForUpdate, digest))
		if errors.Is(err, sql.ErrNoRows) || err == nil && !asOf.Before(d.ExpireTime) {
			return fault.Missing("device", "code")
		}
		if err != nil {
			return err
		}
		if hasty = d.State == resource.DevicePending &&
			store.MS(asOf)-polled < interval.Milliseconds(); d.State != resource.DevicePending {
			_, err = t.Exec(ctx, `DELETE FROM devices WHERE digest = $1`, digest)
			return err
		}
		_, err = t.Exec(ctx, `UPDATE devices SET poll_ms = $2 WHERE digest = $1`, digest, store.MS(asOf))
		return err
	})
	return d, hasty, err
}
