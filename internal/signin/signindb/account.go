package signindb

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var accounts = store.Kind[resource.Account]{
	Table: "accounts", Label: "account",
	Orders: map[string]string{"email": "name"},
	Columns: func(a *resource.Account) []store.Column {
		return []store.Column{
			store.Key(&a.UID),
			store.Text("name", &a.Email).Fixed(),
			store.Text("display", &a.Name),
			store.Text("identity", &a.Identity).Fixed(),
			store.Text("password", &a.Password),
			store.Bytes("totp", &a.TOTP),
			store.Number("totp_step", &a.TOTPStep),
			store.Bytes("link", &a.Link.Digest),
			store.OptionalTime("link_ms", &a.Link.Expires),
			store.Flag("link_factors", &a.Link.Factors),
			store.JSON("link_maker", &a.Link.Maker).Empty(a.Link.Maker == nil),
			store.Flag("password_alone", &a.PasswordAlone),
			store.OptionalTime("used_ms", &a.UseTime).Fixed(),
			store.Time("create_ms", &a.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &a.UpdateTime).Order("update_time"),
			store.Number("", &a.RecoveryCodes).From("(SELECT count(*) FROM recovery_codes AS c WHERE c.account = t.seg)"),
		}
	},
}

// Account returns an account with its passkeys, or fault.NotFound.
func (s *Store) Account(ctx context.Context, uid resource.UID) (resource.Account, error) {
	return s.account(ctx, uid, `t.uid = $1`, string(uid))
}

// AccountOf returns the account of an identity, or fault.NotFound.
func (s *Store) AccountOf(ctx context.Context, identity resource.UID) (resource.Account, error) {
	return s.account(ctx, identity, `t.identity = $1`, string(identity))
}

// EmailOf returns the e-mail address of the account of an identity, or "" if the identity has no account.
func (t Tx) EmailOf(ctx context.Context, identity resource.UID) (string, error) {
	emails, err := store.ReadColumn[string](ctx, t.Rows, `SELECT name FROM accounts WHERE identity = $1`, string(identity))
	if err != nil || len(emails) == 0 {
		return "", err
	}
	return emails[0], nil
}

// AccountIn returns the account with an e-mail address in an organization, or
// fault.NotFound.
func (s *Store) AccountIn(ctx context.Context, org resource.UID, email string) (resource.Account, error) {
	return s.account(ctx, resource.UID(email), `t.parent = $1 AND t.name = $2`, store.Segment(org), email)
}

// AccountsToTry returns at most limit accounts that have the e-mail address and a password, without their passkeys. If
// org is not "", the account in org comes first. The other accounts follow, oldest first. AccountsToTry always runs the
// same queries, so that its duration does not reveal whether there are accounts.
func (s *Store) AccountsToTry(
	ctx context.Context, org resource.UID, email string, limit int,
) ([]resource.Account, error) {
	parent := int64(0) // 0 matches no organization
	if org != "" {
		parent = store.Segment(org)
	}
	found, err := accounts.All(ctx, s.Rows, ` WHERE t.parent = $1 AND t.name = $2 AND t.password <> ''`, parent, email)
	if err != nil {
		return nil, err
	}
	rest, err := accounts.All(ctx, s.Rows,
		` WHERE t.name = $2 AND t.parent <> $1 AND t.password <> '' ORDER BY t.create_ms, t.seg LIMIT `+strconv.Itoa(limit),
		parent, email)
	found = append(found, rest...)
	return found[:min(len(found), limit)], err
}

// AccountLinked returns the account whose one-time link has that digest. It
// returns fault.NotFound if the link was used or replaced, or has expired.
func (s *Store) AccountLinked(ctx context.Context, digest []byte) (resource.Account, error) {
	a, err := s.account(ctx, "link", `t.link = $1 AND t.link_ms > 0`, digest)
	if err == nil && !s.Time().Before(a.Link.Expires) {
		return resource.Account{}, fault.Missing("account", "link")
	}
	return a, err
}

// AccountWithPasskey returns the account that has the passkey id, or fault.NotFound.
func (s *Store) AccountWithPasskey(ctx context.Context, id []byte) (resource.Account, error) {
	return s.account(ctx, "passkey", `t.seg = (SELECT p.account FROM passkeys AS p WHERE p.id = $1)`, id)
}

// account returns the account that a condition selects, with its passkeys.
func (s *Store) account(
	ctx context.Context, name resource.UID, where string, args ...any,
) (a resource.Account, err error) {
	if a, err = store.One(ctx, s.Rows, &accounts, name, ` WHERE `+where, args...); err != nil {
		return a, err
	}
	a.Passkeys, err = store.ReadAll(ctx, s.Rows, func(row store.Scanner) (p resource.Passkey, _ error) {
		var created, used int64
		err := row.Scan(&p.ID, &p.Name, &p.Detail, &created, &used)
		p.CreateTime, p.UsedTime = store.FromMS(created), store.FromMS(used)
		return p, err
	}, `SELECT id, name, detail, create_ms, used_ms FROM passkeys WHERE account = $1 ORDER BY create_ms, id`,
		store.Segment(a.UID))
	return a, err
}

// UpdateAccount applies change to an account and returns the result, without passkeys and recovery codes. The account
// is locked during the change. If the account has no second factor afterwards, its recovery codes are deleted. Besides
// AccountUpdated, UpdateAccount emits the activity events in did, which describe the meaning of the change.
func (s *Store) UpdateAccount(
	ctx context.Context, uid resource.UID, change func(*resource.Account) error, did ...resource.EventType,
) (resource.Account, error) {
	return s.UpdateAccountAnd(ctx, uid, change, nil, did...)
}

// UpdateAccountAnd does what UpdateAccount does. After change, it calls each function in also, in the same transaction.
func (s *Store) UpdateAccountAnd(
	ctx context.Context, uid resource.UID, change func(*resource.Account) error, also []func(*store.Tx) error,
	did ...resource.EventType,
) (a resource.Account, _ error) {
	err := s.write(ctx, func(t Tx) error {
		before, err := store.Lock(ctx, t.Tx, &accounts, uid, s.Engine.ForUpdate)
		if err != nil {
			return err
		}
		a = before
		if err := change(&a); err != nil {
			return err
		}
		keys, err := t.passkeys(ctx, uid)
		if err != nil {
			return err
		}
		for _, event := range did {
			if err := t.emitActivity(ctx, event, a, resource.Activity{}); err != nil {
				return err
			}
		}
		if err := t.Do(also...); err != nil {
			return err
		}
		return t.update(ctx, before, &a, keys, keys)
	})
	return a, err
}

// emitActivity emits an event about the credentials of an account.
func (t Tx) emitActivity(
	ctx context.Context, event resource.EventType, a resource.Account, v resource.Activity,
) error {
	v.Account, v.Identity, v.Address = a.UID, a.Identity, resource.ActorFrom(ctx).Remote
	return t.Emit(ctx, event, a.UID, a.UID.Parent(), nil, v)
}

// update writes an account that is locked, and emits its event. had and has are
// the numbers of passkeys before and after the change.
func (t Tx) update(ctx context.Context, before resource.Account, a *resource.Account, had, has int) error {
	if err := store.UpdateRow(ctx, t.Tx, &accounts, before, a); err != nil {
		return err
	}
	if err := t.dropUselessCodes(ctx, a.UID); err != nil {
		return err
	}
	return t.Emit(ctx, resource.AccountUpdated, a.UID, a.UID.Parent(), before.Record(had), a.Record(has))
}

// RequireCredentials returns a function for the transaction in which a person signs in to an account. The function
// locks the account until the commit. It returns fault.Aborted if the account has lost a credential or got another
// password since it was read, because the sign-in may have relied on the previous credentials.
func (s *Store) RequireCredentials(ctx context.Context, read resource.Account) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		current, err := store.Lock(ctx, tx, &accounts, read.UID, s.Engine.ForUpdate)
		if err != nil {
			return err
		}
		passkeys, err := In(tx).passkeys(ctx, read.UID)
		if err != nil {
			return err
		}
		if current.Password != read.Password || !bytes.Equal(current.TOTP, read.TOTP) || passkeys < len(read.Passkeys) {
			return fault.New(fault.Aborted, "Aborted: the credentials of the account were changed; sign in again")
		}
		return nil
	}
}

// NoteUse records that somebody signed in to an account at the time used.
func (s *Store) NoteUse(ctx context.Context, uid resource.UID, used time.Time) error {
	_, err := s.Exec(ctx, `UPDATE accounts SET used_ms = $2 WHERE uid = $1`, string(uid), store.MS(used))
	return err
}

// passkeys counts the passkeys of an account.
func (t Tx) passkeys(ctx context.Context, uid resource.UID) (n int, err error) {
	err = t.Row(ctx, `SELECT count(*) FROM passkeys WHERE account = $1`, []any{store.Segment(uid)}, &n)
	return n, err
}

// UseTOTP records the time step of a one-time password, and reports whether the step is newer than the last step that
// was used. Each step can be used once.
func (s *Store) UseTOTP(ctx context.Context, uid resource.UID, step int64) (fresh bool, _ error) {
	n, err := s.Exec(ctx, `UPDATE accounts SET totp_step = $2 WHERE uid = $1 AND totp_step < $2`, string(uid), step)
	return n == 1, err
}

// DeleteAccountOf removes the account of an identity, if there is one.
func (t Tx) DeleteAccountOf(ctx context.Context, identity resource.UID) error {
	a, err := store.One(ctx, t.Rows, &accounts, identity, ` WHERE t.identity = $1`+t.DB.Engine.ForDelete, string(identity))
	if errors.Is(err, fault.NotFound) {
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
func (s *Store) Accounts(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.Account], error) {
	return store.List(ctx, s.DB, &accounts, r, f, p)
}

// AccountHolders returns the e-mail addresses of the accounts of the organizations, by the identities of their holders.
func (s *Store) AccountHolders(ctx context.Context, orgs []resource.UID) (map[resource.UID]string, error) {
	holders := map[resource.UID]string{}
	for _, org := range orgs {
		err := s.Rows(ctx, `SELECT identity, name FROM accounts WHERE parent = $1`, []any{store.Segment(org)},
			func(row store.Scanner) (bool, error) {
				var uid resource.UID
				var email string
				err := row.Scan(&uid, &email)
				holders[uid] = email
				return false, err
			})
		if err != nil {
			return nil, err
		}
	}
	return holders, nil
}

// PasskeyCounts returns the number of passkeys per account. Accounts without
// passkeys are not in the map.
func (s *Store) PasskeyCounts(ctx context.Context, uids []resource.UID) (map[resource.UID]int, error) {
	counts := map[resource.UID]int{}
	for _, uid := range uids {
		var n int
		if err := s.Row(ctx, `SELECT count(*) FROM passkeys WHERE account = $1`, []any{store.Segment(uid)}, &n); err != nil {
			return nil, err
		}
		if n > 0 {
			counts[uid] = n
		}
	}
	return counts, nil
}

// AddPasskey adds a passkey to an account. It returns fault.AlreadyExists if any
// account has this passkey, fault.FailedPrecondition if the account has too many
// passkeys, and fault.NotFound if there is no such account.
func (s *Store) AddPasskey(ctx context.Context, uid resource.UID, p resource.Passkey) error {
	return s.write(ctx, func(t Tx) error {
		a, err := store.Lock(ctx, t.Tx, &accounts, uid, s.Engine.ForUpdate)
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
		if _, err := t.Exec(ctx,
			`INSERT INTO passkeys (id, account, name, detail, create_ms, used_ms) VALUES ($1, $2, $3, $4, $5, $5)`,
			p.ID, store.Segment(uid), p.Name, string(p.Detail), store.MS(s.Time())); err != nil {
			return s.ConstraintFault(err, "passkey", p.Name, uid)
		}
		if err := t.emitActivity(ctx, resource.PasskeyAdded, a, resource.Activity{Program: p.Name}); err != nil {
			return err
		}
		return t.Emit(ctx, resource.AccountUpdated, uid, uid.Parent(), a.Record(n), a.Record(n+1))
	})
}

// UsePasskey stores the state of a passkey after its use.
func (s *Store) UsePasskey(ctx context.Context, id, detail []byte) error {
	_, err := s.Exec(ctx, `UPDATE passkeys SET detail = $2, used_ms = $3 WHERE id = $1`, id, string(detail),
		store.MS(s.Time()))
	return err
}

// DropPasskey deletes a passkey of an account. If the account has no second factor
// afterwards, its recovery codes are deleted too. DropPasskey returns nil if there
// is no such passkey.
func (s *Store) DropPasskey(ctx context.Context, uid resource.UID, id []byte) error {
	return s.write(ctx, func(t Tx) error {
		a, err := store.Lock(ctx, t.Tx, &accounts, uid, s.Engine.ForUpdate)
		if err != nil {
			return err
		}
		names, err := store.ReadColumn[string](ctx, t.Rows,
			`SELECT name FROM passkeys WHERE id = $1 AND account = $2`, id, store.Segment(uid))
		if err != nil || len(names) == 0 {
			return err
		}
		if _, err := t.Exec(ctx, `DELETE FROM passkeys WHERE id = $1 AND account = $2`, id, store.Segment(uid)); err != nil {
			return err
		}
		if err := t.emitActivity(ctx, resource.PasskeyRemoved, a, resource.Activity{Program: names[0]}); err != nil {
			return err
		}
		if err := t.dropUselessCodes(ctx, uid); err != nil {
			return err
		}
		left, err := t.passkeys(ctx, uid)
		if err != nil {
			return err
		}
		return t.Emit(ctx, resource.AccountUpdated, uid, uid.Parent(), a.Record(left+1), a.Record(left))
	})
}

// InsertAccount adds an account. It returns fault.NotFound if its organization does
// not exist, and fault.AlreadyExists if the organization has an account with the
// same e-mail address.
func (t Tx) InsertAccount(ctx context.Context, a resource.Account) error {
	if err := t.RequireGroup(ctx, a.UID.Parent()); err != nil {
		return err
	}
	if err := store.InsertRow(ctx, t.Tx, &accounts, a); err != nil {
		return err
	}
	if len(a.Link.Digest) > 0 {
		if err := t.emitActivity(ctx, resource.LinkCreated, a, resource.Activity{}); err != nil {
			return err
		}
	}
	return t.Added(ctx, "accounts", resource.AccountCreated, a.UID, a.UID.Parent(), a.Record(0))
}

// FollowLink applies change to the account whose one-time link has that digest, and
// removes the link. If the link resets factors, it also removes the passkeys, the
// authenticator app and the recovery codes of the account. FollowLink returns
// fault.NotFound if the link is unknown, used or expired.
func (t Tx) FollowLink(
	ctx context.Context, digest []byte, change func(*resource.Account) error,
) (a resource.Account, _ error) {
	before, err := store.One(ctx, t.Rows, &accounts, "link", ` WHERE t.link = $1 AND t.link_ms > $2`+t.DB.Engine.ForUpdate,
		digest, store.MS(t.DB.Time()))
	if err != nil {
		return a, err
	}
	a = before
	if err := change(&a); err != nil {
		return a, err
	}
	keys, err := t.passkeys(ctx, a.UID)
	if err != nil {
		return a, err
	}
	had := keys
	if before.Link.Factors {
		a.TOTP, a.TOTPStep, a.RecoveryCodes, keys = nil, 0, 0, 0
		if _, err := t.Exec(ctx, `DELETE FROM passkeys WHERE account = $1`, store.Segment(a.UID)); err != nil {
			return a, err
		}
	}
	a.Link = resource.Link{}
	if err := t.emitActivity(ctx, resource.LinkUsed, a, resource.Activity{}); err != nil {
		return a, err
	}
	err = t.update(ctx, before, &a, had, keys)
	return a, err
}

// LockAccount locks an account that is about to be deleted, and returns it, or
// fault.NotFound.
func (t Tx) LockAccount(ctx context.Context, uid resource.UID) (resource.Account, error) {
	return store.Lock(ctx, t.Tx, &accounts, uid, t.DB.Engine.ForDelete)
}

// TOTPSecrets returns the sealed secrets of one-time passwords of all accounts.
func (s *Store) TOTPSecrets(ctx context.Context) ([][]byte, error) {
	return store.ReadColumn[[]byte](ctx, s.Rows, `SELECT totp FROM accounts WHERE length(totp) > 0`)
}

// ForgetSealed removes the authenticator apps whose secrets opens cannot open. It
// also removes the passwords of their accounts, because otherwise the password
// alone would be enough to sign in. If an app was removed or codesToo is true,
// ForgetSealed deletes all recovery codes, which depend on the same key. It returns
// the changed accounts and the number of deleted codes.
func (t Tx) ForgetSealed(
	ctx context.Context, opens func(sealed []byte) bool, codesToo bool,
) (lost []resource.Account, codes int, _ error) {
	withApp, err := accounts.All(ctx, t.Rows, ` WHERE length(t.totp) > 0 ORDER BY t.uid`+t.DB.Engine.ForUpdate)
	if err != nil {
		return nil, 0, err
	}
	for _, before := range withApp {
		if opens(before.TOTP) {
			continue
		}
		a := before
		a.TOTP, a.TOTPStep, a.Password = nil, 0, ""
		keys, err := t.passkeys(ctx, a.UID)
		if err != nil {
			return nil, 0, err
		}
		if err := t.update(ctx, before, &a, keys, keys); err != nil {
			return nil, 0, err
		}
		if err := t.emitActivity(ctx, resource.AppRemoved, a, resource.Activity{}); err != nil {
			return nil, 0, err
		}
		lost = append(lost, a)
	}
	if len(lost) == 0 && !codesToo {
		return nil, 0, nil
	}
	n, err := t.Exec(ctx, `DELETE FROM recovery_codes`)
	if err == nil {
		_, err = t.Exec(ctx, `DELETE FROM handoffs`) // handoffs are sealed with the same key, and are valid only for minutes
	}
	return lost, int(n), err
}
