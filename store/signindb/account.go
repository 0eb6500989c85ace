package signindb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

var accounts = store.Kind[resource.Account]{
	Table: "accounts",
	Columns: `t.uid, t.name, t.display, t.identity, t.password, t.totp, t.totp_step, t.link, t.link_ms, t.link_factors, t.link_maker,
		t.used_ms, t.create_ms, t.update_ms, (SELECT count(*) FROM recovery_codes AS c WHERE c.account = t.seg)`,
	Orders: map[string]string{"uid": "uid", "email": "name", "create_time": "create_ms", "update_time": "update_ms"},
	Scan: func(row store.Scanner) (a resource.Account, err error) {
		var maker string
		var link, used, created, updated int64
		err = row.Scan(&a.UID, &a.Email, &a.Name, &a.Identity, &a.Password, &a.TOTP, &a.TOTPStep, &a.Link.Digest, &link, &a.Link.Factors, &maker,
			&used, &created, &updated, &a.RecoveryCodes)
		a.Link.Expires, a.UseTime = someTime(link), someTime(used)
		a.CreateTime, a.UpdateTime = store.FromMS(created), store.FromMS(updated)
		if err == nil && maker != "" {
			err = json.Unmarshal([]byte(maker), &a.Link.Maker)
		}
		return a, err
	},
	Cursor: func(a resource.Account, col string) page.Cursor {
		return store.CursorAt(col, a.UID, a.Email, a.CreateTime, a.UpdateTime)
	},
}

// someTime is a time that may never have come: 0.
func someTime(n int64) (at time.Time) {
	if n == 0 {
		return at
	}
	return store.FromMS(n)
}

func someMS(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return store.MS(at)
}

// makerText is who made a link, as it is kept.
func makerText(l resource.Link) (string, error) {
	if l.Maker == nil {
		return "", nil
	}
	b, err := json.Marshal(l.Maker)
	return string(b), err
}

// Account returns an account with its passkeys, or fault.NotFound.
func (s *Store) Account(ctx context.Context, uid resource.UID) (resource.Account, error) {
	return s.account(ctx, `t.uid = $1`, string(uid), string(uid))
}

// AccountOf returns the account of an identity, or fault.NotFound.
func (s *Store) AccountOf(ctx context.Context, identity resource.UID) (resource.Account, error) {
	return s.account(ctx, `t.identity = $1`, string(identity), string(identity))
}

// AccountIn returns the account of an e-mail address in an organization, or
// fault.NotFound.
func (s *Store) AccountIn(ctx context.Context, org resource.UID, email string) (resource.Account, error) {
	all, err := s.accountsWhere(ctx, `t.parent = $1 AND t.name = $2`, store.Segment(org), email)
	if err == nil && len(all) == 0 {
		err = fault.Missing("account", email)
	}
	if err != nil {
		return resource.Account{}, err
	}
	return s.Account(ctx, all[0].UID)
}

// AccountsToTry returns the accounts of an e-mail address that have a password,
// without their passkeys: first that of org, if org is not "", then the oldest of
// the others, at most most in all. It asks the database the same questions
// whether or not there are any.
func (s *Store) AccountsToTry(ctx context.Context, org resource.UID, email string, most int) ([]resource.Account, error) {
	first := int64(0) // of no organization
	if org != "" {
		first = store.Segment(org)
	}
	all, err := s.accountsWhere(ctx, `t.parent = $1 AND t.name = $2 AND t.password <> ''`, first, email)
	if err != nil {
		return nil, err
	}
	rest, err := s.accountsWhere(ctx, `t.name = $2 AND t.parent <> $1 AND t.password <> '' ORDER BY t.create_ms, t.seg LIMIT `+strconv.Itoa(most), first, email)
	all = append(all, rest...)
	return all[:min(len(all), most)], err
}

// AccountLinked returns the account whose one-time link has that digest, or
// fault.NotFound: it was used, replaced, or has expired.
func (s *Store) AccountLinked(ctx context.Context, digest []byte) (resource.Account, error) {
	a, err := s.account(ctx, `t.link = $1 AND t.link_ms > 0`, digest, "link")
	if err == nil && !s.Time().Before(a.Link.Expires) {
		return resource.Account{}, fault.Missing("account", "link")
	}
	return a, err
}

// AccountWithPasskey returns the account that has a passkey, or fault.NotFound.
func (s *Store) AccountWithPasskey(ctx context.Context, id []byte) (resource.Account, error) {
	return s.account(ctx, `t.seg = (SELECT p.account FROM passkeys AS p WHERE p.id = $1)`, id, "passkey")
}

// accounts returns the accounts that a condition selects, without their passkeys.
func (s *Store) accountsWhere(ctx context.Context, where string, args ...any) (all []resource.Account, _ error) {
	err := s.Rows(ctx, `SELECT `+accounts.Columns+` FROM accounts AS t WHERE `+where, args, func(row store.Scanner) (bool, error) {
		a, err := accounts.Scan(row)
		all = append(all, a)
		return false, err
	})
	return all, err
}

func (s *Store) account(ctx context.Context, where string, arg any, name string) (a resource.Account, err error) {
	err = sql.ErrNoRows
	if rerr := s.Rows(ctx, `SELECT `+accounts.Columns+` FROM accounts AS t WHERE `+where, []any{arg}, func(row store.Scanner) (bool, error) {
		a, err = accounts.Scan(row)
		return true, err
	}); rerr != nil {
		return a, rerr
	}
	if err != nil {
		return a, store.Missing(err, "account", resource.UID(name))
	}
	err = s.Rows(ctx, `SELECT id, name, detail, create_ms, used_ms FROM passkeys WHERE account = $1 ORDER BY create_ms, id`, []any{store.Segment(a.UID)}, func(row store.Scanner) (bool, error) {
		var p resource.Passkey
		var created, used int64
		err := row.Scan(&p.ID, &p.Name, &p.Detail, &created, &used)
		p.CreateTime, p.UsedTime = store.FromMS(created), store.FromMS(used)
		a.Passkeys = append(a.Passkeys, p)
		return false, err
	})
	return a, err
}

// UpdateAccount applies change to an account and returns the result, under the
// rules of UpdateGroup; its passkeys and recovery codes are not part of it. Where
// the change makes no difference that others can see, there is no event.
// Recovery codes go with the last factor that they stand in for.
func (s *Store) UpdateAccount(ctx context.Context, uid resource.UID, change func(*resource.Account) error) (a resource.Account, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &accounts, "account", uid, s.Engine.Lock)
		if err != nil {
			return err
		}
		a = before
		if err := change(&a); err != nil {
			return err
		}
		used := !a.UseTime.Equal(before.UseTime)
		if !used {
			a.UpdateTime = s.Time()
		}
		maker, err := makerText(a.Link)
		if err != nil {
			return err
		}
		if _, err := t.Exec(ctx, `UPDATE accounts SET display = $2, password = $3, totp = $4, totp_step = $5, link = $6, link_ms = $7,
			link_factors = $8, used_ms = $9, update_ms = $10, link_maker = $11 WHERE uid = $1`,
			string(uid), a.Name, a.Password, append([]byte{}, a.TOTP...), a.TOTPStep, append([]byte{}, a.Link.Digest...), someMS(a.Link.Expires),
			a.Link.Factors, someMS(a.UseTime), store.MS(a.UpdateTime), maker); err != nil {
			return err
		}
		if used {
			return nil
		}
		if err := t.dropIdleCodes(ctx, uid); err != nil {
			return err
		}
		keys, err := t.passkeys(ctx, uid)
		if err != nil {
			return err
		}
		return t.Emit(ctx, resource.AccountUpdated, uid, uid.Parent(), before.Record(keys), a.Record(keys))
	})
	return a, err
}

// passkeys counts the passkeys of an account.
func (t Tx) passkeys(ctx context.Context, uid resource.UID) (n int, err error) {
	err = t.Row(ctx, `SELECT count(*) FROM passkeys WHERE account = $1`, []any{store.Segment(uid)}, &n)
	return n, err
}

// UseTOTP notes the step of a one-time password, and tells whether it is newer
// than the last that was used: each is good once.
func (s *Store) UseTOTP(ctx context.Context, uid resource.UID, step int64) (fresh bool, _ error) {
	err := s.write(ctx, func(t Tx) error {
		n, err := t.Exec(ctx, `UPDATE accounts SET totp_step = $2 WHERE uid = $1 AND totp_step < $2`, string(uid), step)
		fresh = n == 1
		return err
	})
	return fresh, err
}

// DeleteAccountOf removes the account of an identity, if it has one.
func (t Tx) DeleteAccountOf(ctx context.Context, identity resource.UID) error {
	a, err := accounts.Scan(t.QueryRow(ctx, `SELECT `+accounts.Columns+` FROM accounts AS t WHERE t.identity = $1`+t.DB.Engine.LockKey, string(identity)))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	keys, err := t.Exec(ctx, `DELETE FROM passkeys WHERE account = $1`, store.Segment(a.UID))
	if err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM accounts WHERE uid = $1`, string(a.UID)); err != nil {
		return err
	}
	return t.Removed(ctx, "accounts", resource.AccountDeleted, a.UID, a.UID.Parent(), a.Record(int(keys)))
}

// Accounts returns one page of accounts, without their passkeys.
func (s *Store) Accounts(ctx context.Context, r store.Reach, f resource.Filter, p page.Request) (page.Page[resource.Account], error) {
	return store.List(ctx, s.DB, &accounts, r, f, p)
}

// PasskeyCounts returns how many passkeys accounts have, for those that have
// any.
func (s *Store) PasskeyCounts(ctx context.Context, uids []resource.UID) (map[resource.UID]int, error) {
	all := map[resource.UID]int{}
	for _, uid := range uids {
		var n int
		if err := s.Row(ctx, `SELECT count(*) FROM passkeys WHERE account = $1`, []any{store.Segment(uid)}, &n); err != nil {
			return nil, err
		}
		if n > 0 {
			all[uid] = n
		}
	}
	return all, nil
}

// AddPasskey gives an account a passkey. It returns fault.AlreadyExists if some
// account has it, fault.FailedPrecondition if the account has too many, and
// fault.NotFound if there is no such account.
func (s *Store) AddPasskey(ctx context.Context, uid resource.UID, p resource.Passkey) error {
	return s.write(ctx, func(t Tx) error {
		a, err := store.Lock(ctx, t.Tx, &accounts, "account", uid, s.Engine.Lock)
		if err != nil {
			return err
		}
		n, err := t.passkeys(ctx, uid)
		if err != nil {
			return err
		}
		if n >= resource.MaxPasskeys {
			return fault.Unmet("TOO_MANY_PASSKEYS", "an account has at most %d passkeys", resource.MaxPasskeys)
		}
		if _, err := t.Exec(ctx, `INSERT INTO passkeys (id, account, name, detail, create_ms, used_ms) VALUES ($1, $2, $3, $4, $5, $5)`,
			p.ID, store.Segment(uid), p.Name, string(p.Detail), store.MS(s.Time())); err != nil {
			return s.Inserted(err, "passkey", p.Name, uid)
		}
		return t.Emit(ctx, resource.AccountUpdated, uid, uid.Parent(), a.Record(n), a.Record(n+1))
	})
}

// UsePasskey keeps what the protocol has to remember of a passkey that was used.
func (s *Store) UsePasskey(ctx context.Context, id, detail []byte) error {
	return s.write(ctx, func(t Tx) error {
		_, err := t.Exec(ctx, `UPDATE passkeys SET detail = $2, used_ms = $3 WHERE id = $1`, id, string(detail), store.MS(s.Time()))
		return err
	})
}

// DropPasskey takes a passkey from an account, and the recovery codes with the
// last factor that they stand in for. A passkey that is not there is gone
// already.
func (s *Store) DropPasskey(ctx context.Context, uid resource.UID, id []byte) error {
	return s.write(ctx, func(t Tx) error {
		a, err := store.Lock(ctx, t.Tx, &accounts, "account", uid, s.Engine.Lock)
		if err != nil {
			return err
		}
		n, err := t.Exec(ctx, `DELETE FROM passkeys WHERE id = $1 AND account = $2`, id, store.Segment(uid))
		if err != nil || n == 0 {
			return err
		}
		if err := t.dropIdleCodes(ctx, uid); err != nil {
			return err
		}
		left, err := t.passkeys(ctx, uid)
		if err != nil {
			return err
		}
		return t.Emit(ctx, resource.AccountUpdated, uid, uid.Parent(), a.Record(left+1), a.Record(left))
	})
}

// InsertAccount adds an account. It returns fault.NotFound if its group is not
// there, and fault.AlreadyExists if its organization has an account of that e-mail
// address.
func (t Tx) InsertAccount(ctx context.Context, a resource.Account) error {
	if err := t.MustExist(ctx, a.UID.Parent()); err != nil {
		return err
	}
	maker, err := makerText(a.Link)
	if err != nil {
		return err
	}
	_, err = t.Exec(ctx, `
		INSERT INTO accounts (seg, uid, parent, a1, a2, a3, name, display, identity, password, totp, totp_step,
			link, link_ms, link_factors, used_ms, create_ms, update_ms, link_maker)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`,
		append(store.TreeColumns(a.UID), a.Email, a.Name, string(a.Identity), a.Password, append([]byte{}, a.TOTP...), a.TOTPStep,
			append([]byte{}, a.Link.Digest...), someMS(a.Link.Expires), a.Link.Factors, someMS(a.UseTime), store.MS(a.CreateTime), store.MS(a.UpdateTime), maker)...)
	if err != nil {
		return t.DB.Inserted(err, "account", a.Email, a.UID)
	}
	return t.Added(ctx, "accounts", resource.AccountCreated, a.UID, a.UID.Parent(), a.Record(0))
}

// FollowLink applies change to the account whose one-time link has that digest,
// and takes the link out of use, and with the link's word its other factors. It
// returns fault.NotFound for a link that is not good, or no longer.
func (t Tx) FollowLink(ctx context.Context, digest []byte, change func(*resource.Account) error) (a resource.Account, _ error) {
	before, err := accounts.Scan(t.QueryRow(ctx, `SELECT `+accounts.Columns+` FROM accounts AS t WHERE t.link = $1 AND t.link_ms > $2`+t.DB.Engine.Lock,
		digest, store.MS(t.DB.Time())))
	if err != nil {
		return a, store.Missing(err, "account", "link")
	}
	a = before
	if err := change(&a); err != nil {
		return a, err
	}
	keys, err := t.passkeys(ctx, a.UID)
	if err != nil {
		return a, err
	}
	was := before.Record(keys)
	if before.Link.Factors {
		a.TOTP, a.TOTPStep, a.RecoveryCodes, keys = nil, 0, 0, 0
		if _, err := t.Exec(ctx, `DELETE FROM passkeys WHERE account = $1`, store.Segment(a.UID)); err != nil {
			return a, err
		}
	}
	a.Link, a.UpdateTime = resource.Link{}, t.DB.Time()
	if _, err := t.Exec(ctx, `UPDATE accounts SET password = $2, totp = $3, totp_step = $4, link = $5, link_ms = 0, link_factors = $6, update_ms = $7
		WHERE uid = $1`, string(a.UID), a.Password, append([]byte{}, a.TOTP...), a.TOTPStep, []byte{}, false, store.MS(a.UpdateTime)); err != nil {
		return a, err
	}
	if err := t.dropIdleCodes(ctx, a.UID); err != nil {
		return a, err
	}
	return a, t.Emit(ctx, resource.AccountUpdated, a.UID, a.UID.Parent(), was, a.Record(keys))
}

// LockAccount reads an account that is about to go, or returns fault.NotFound.
func (t Tx) LockAccount(ctx context.Context, uid resource.UID) (resource.Account, error) {
	return store.Lock(ctx, t.Tx, &accounts, "account", uid, t.DB.Engine.LockKey)
}
