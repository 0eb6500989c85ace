package store

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// Arrive lets a person in who has proved who they are, all or nothing: it makes
// or updates the identity, gives a newcomer the provider's default role, gives
// and takes the roles that the provider's groups stand for, and redeems the
// invite they came with.
//
// It returns fault.NotFound for a person who is not known and not to be
// registered; fault.Aborted if the provider is gone, or what it believes has
// changed since it vouched; and fault.FailedPrecondition, with the reason, for an
// invite that is not good.
func (s *Store) Arrive(ctx context.Context, a resource.Arrival) (l resource.Landing, _ error) {
	err := s.write(ctx, func(t *tx) error {
		l = resource.Landing{}
		if err := t.stillVouched(ctx, a.Voucher); err != nil {
			return err
		}
		if err := t.land(ctx, a, &l); err != nil {
			return err
		}
		if a.SignIn && a.Voucher != "" {
			if err := t.arriveThrough(ctx, a, &l); err != nil {
				return err
			}
		}
		if a.Invite == nil {
			return nil
		}
		return t.redeem(ctx, a, &l)
	})
	return l, err
}

// land makes the identity of an arrival, or brings its e-mail address up to
// date.
func (t *tx) land(ctx context.Context, a resource.Arrival, l *resource.Landing) error {
	now := t.s.now()
	verified, claimed := "", a.Email
	if a.EmailVerified {
		verified, claimed = a.Email, ""
	}
	before, err := t.person(ctx, a)
	if errors.Is(err, fault.NotFound) {
		if a.Identity != "" || !a.Register && a.Invite == nil {
			return fault.New(fault.NotFound, "Not found: this person has not been registered; ask for an invite, or sign in with a provider of your organization")
		}
		uid, err := freeUID(ctx, t.row, a.Realm, a.Subject)
		if err != nil {
			return err
		}
		l.New = true
		l.Identity = resource.Identity{
			UID: uid, Name: resource.PersonName(a.Name, a.Email, a.Subject), Email: verified, EmailUnverified: claimed,
			LastSeenTime: now, CreateTime: now, UpdateTime: now, Realm: a.Realm, Provider: a.Voucher.Provider(),
			Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: a.Issuer, Subject: a.Subject}},
		}
		return t.insertIdentity(ctx, l.Identity)
	}
	if err != nil {
		return err
	}
	l.Identity = before
	if a.Identity != "" || a.Email == "" || before.Email == verified && before.EmailUnverified == claimed {
		return nil
	}
	l.Identity.Email, l.Identity.EmailUnverified, l.Identity.UpdateTime = verified, claimed, now
	return t.updateIdentity(ctx, resource.IdentityUpdated, before, l.Identity)
}

// person reads and locks the identity of an arrival.
func (t *tx) person(ctx context.Context, a resource.Arrival) (resource.Identity, error) {
	if a.Identity != "" {
		return take(ctx, t, &identities, "identity", a.Identity, t.s.engine.lock)
	}
	i, err := scanIdentity(t.on.QueryRowContext(ctx, personQuery+t.s.engine.lock, a.Realm, a.Subject))
	return i, missing(err, "identity", a.UID())
}

// arriveThrough does what a provider's word brings with it.
func (t *tx) arriveThrough(ctx context.Context, a resource.Arrival, l *resource.Landing) error {
	uid := a.Voucher.Provider()
	provider, now := segment(uid), ms(t.s.now())
	if err := t.join(ctx, uid.Root(), l.Identity.UID); err != nil {
		return err
	}
	first, err := t.exec(ctx, `INSERT INTO arrivals (identity, provider, first_ms, last_ms) VALUES ($1, $2, $3, $3)
		ON CONFLICT (identity, provider) DO NOTHING`, string(l.Identity.UID), provider, now)
	if err != nil {
		return err
	}
	if first == 0 {
		if _, err := t.exec(ctx, `UPDATE arrivals SET last_ms = $3 WHERE identity = $1 AND provider = $2`, string(l.Identity.UID), provider, now); err != nil {
			return err
		}
	}
	if _, err := t.exec(ctx, `UPDATE identities SET provider = $2 WHERE uid = $1 AND (provider IS NULL OR provider <> $2)`, string(l.Identity.UID), provider); err != nil {
		return err
	}
	if first == 1 {
		var role resource.UID
		err := t.row(ctx, `SELECT (SELECT r.uid FROM roles AS r WHERE r.seg = t.default_role) FROM identity_providers AS t WHERE t.uid = $1`, []any{string(uid)}, &role)
		if err != nil {
			return err
		}
		if _, err := t.ensure(ctx, uid.Parent(), l.Identity.UID, role); err != nil {
			return err
		}
	}
	return t.mapGroups(ctx, a, l)
}

// mapGroups gives the roles that the groups of an arrival stand for, and takes
// those away that were given for groups it is no longer in. A role that somebody
// gave by hand is left alone; so is what would leave an organization without an
// owner.
func (t *tx) mapGroups(ctx context.Context, a resource.Arrival, l *resource.Landing) error {
	type place struct{ scope, role resource.UID }
	wanted := map[place]bool{}
	var order []place
	provider := a.Voucher.Provider()
	mapped, err := t.mappingsOf(ctx, provider)
	if err != nil {
		return err
	}
	for _, m := range mapped {
		if p := (place{m.Scope, m.Role}); slices.Contains(a.Groups, m.ExternalGroup) && !wanted[p] {
			wanted[p] = true
			order = append(order, p)
		}
	}
	var lost []resource.RoleBinding
	err = t.rows(ctx, `SELECT `+plain.columns+` FROM role_bindings AS t WHERE t.seg IN
		(SELECT m.binding FROM mapped_bindings AS m WHERE m.identity = $1 AND m.provider = $2) ORDER BY t.uid`,
		[]any{string(l.Identity.UID), segment(provider)}, func(row scanner) error {
			b, err := plain.scan(row)
			if err == nil && !wanted[place{b.Group(), b.Role}] {
				lost = append(lost, b)
			}
			return err
		})
	if err != nil {
		return err
	}
	for _, p := range order {
		uid, err := t.ensure(ctx, p.scope, l.Identity.UID, p.role)
		if err != nil {
			return err
		}
		if uid == "" {
			continue
		}
		if _, err := t.exec(ctx, `INSERT INTO mapped_bindings (binding, identity, provider) VALUES ($1, $2, $3)`,
			segment(uid), string(l.Identity.UID), segment(provider)); err != nil {
			return err
		}
	}
	for _, b := range lost {
		err := t.keepOwners(ctx, `uid = $1`, b.UID)
		if errors.Is(err, fault.FailedPrecondition) {
			l.Kept = append(l.Kept, b.UID)
			continue
		}
		if err != nil {
			return err
		}
		if err := t.unbind(ctx, `t.uid = $1`, string(b.UID)); err != nil {
			return err
		}
	}
	return nil
}

// InviteFor returns an invite whose code somebody holds. It returns
// fault.FailedPrecondition, with the reason, for one that is not good or no
// longer: only who knows the secret learns it.
func (s *Store) InviteFor(ctx context.Context, p resource.Presented) (resource.GroupInvite, error) {
	i, err := s.Invite(ctx, p.UID)
	if errors.Is(err, fault.NotFound) {
		return i, ended(p, func(dest ...any) error {
			return s.row(ctx, `SELECT digest, reason FROM ended_invites WHERE uid = $1`, []any{string(p.UID)}, dest...)
		})
	}
	if err != nil {
		return i, err
	}
	return i, usable(i, p, s.now())
}

// ended says why an invite is gone.
func ended(p resource.Presented, read func(dest ...any) error) error {
	var digest []byte
	var reason string
	err := read(&digest, &reason)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	switch {
	case err != nil || subtle.ConstantTimeCompare(digest, p.Digest) != 1:
		return fault.Unmet("INVITE_UNKNOWN", "the invite is not known: check that its code is whole")
	case reason == inviteUsed:
		return fault.Unmet("INVITE_USED", "the invite has been used, and was good once; ask for another")
	}
	return fault.Unmet("INVITE_REVOKED", "the invite was taken back; ask whoever sent it")
}

// usable says what is wrong with an invite that is there.
func usable(i resource.GroupInvite, p resource.Presented, now time.Time) error {
	switch {
	case subtle.ConstantTimeCompare(i.Digest, p.Digest) != 1:
		return fault.Unmet("INVITE_UNKNOWN", "the invite is not known: check that its code is whole")
	case !now.Before(i.ExpirationTime):
		return fault.Unmet("INVITE_EXPIRED", "the invite expired on %s; ask for another", i.ExpirationTime.Format(time.RFC1123))
	case i.RoleInfo.UID == "":
		return fault.Unmet("INVITE_ROLE_GONE", "the role that the invite promises has been deleted; ask for another")
	}
	return nil
}

// redeem lets an arrival into the group of its invite.
func (t *tx) redeem(ctx context.Context, a resource.Arrival, l *resource.Landing) error {
	i, err := t.takeInvite(ctx, *a.Invite)
	if err != nil {
		return err
	}
	if err := addressed(i, a); err != nil {
		return err
	}
	group := i.UID.Parent()
	if _, err := t.ensure(ctx, group, l.Identity.UID, i.Role); err != nil {
		return err
	}
	l.Joined = group
	if err := t.join(ctx, group.Root(), l.Identity.UID); err != nil {
		return err
	}
	if _, err := t.exec(ctx, `INSERT INTO joins (grp, invite, identity, role, at_ms) VALUES ($1, $2, $3, $4, $5)`,
		segment(group), string(i.UID), string(l.Identity.UID), string(i.Role), ms(t.s.now())); err != nil {
		return err
	}
	if i.SingleUse {
		if err := t.noteEnded(ctx, i.UID, inviteUsed); err != nil {
			return err
		}
		if err := drop(ctx, t, &invites, "group invite", resource.InviteDeleted, i.UID, group); err != nil {
			return err
		}
	}
	return t.emit(ctx, resource.Registered, "", group, nil, map[string]resource.UID{"identity": l.Identity.UID, "group": group})
}

// takeInvite reads an invite that is about to be redeemed: of two who come at
// once with one that is good once, the second finds it gone.
func (t *tx) takeInvite(ctx context.Context, p resource.Presented) (resource.GroupInvite, error) {
	var one int
	err := t.row(ctx, `SELECT 1 FROM group_invites AS t WHERE t.uid = $1`+t.s.engine.lock, []any{string(p.UID)}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return resource.GroupInvite{}, ended(p, func(dest ...any) error {
			return t.row(ctx, `SELECT digest, reason FROM ended_invites WHERE uid = $1`, []any{string(p.UID)}, dest...)
		})
	}
	if err != nil {
		return resource.GroupInvite{}, err
	}
	i, err := take(ctx, t, &invites, "group invite", p.UID, "")
	if err != nil {
		return i, err
	}
	return i, usable(i, p, t.s.now())
}

// addressed checks that an invite with an address is redeemed by whoever has it.
// An address counts if a provider has verified it that the operator trusts, or
// that is in the invite's group or one above it; or if it is that of an account
// of the organization. Anybody can run an issuer that verifies whatever they like.
func addressed(i resource.GroupInvite, a resource.Arrival) error {
	if i.Email == "" {
		return nil
	}
	wrong := fault.Unmet("INVITE_WRONG_EMAIL", "the invite is for another e-mail address than the one signed in with")
	if !strings.EqualFold(i.Email, a.Email) {
		return wrong
	}
	if a.Organization != "" && a.Organization == i.UID.Root() {
		return nil
	}
	if !a.EmailVerified {
		return fault.Unmet("INVITE_UNVERIFIED_EMAIL", "the invite is for an e-mail address that has not been verified")
	}
	if !a.Trusted && !a.Voucher.Provider().Parent().Covers(i.UID) {
		return fault.Unmet("INVITE_UNVERIFIED_EMAIL", "the invite is for an e-mail address that no provider of its organization has verified")
	}
	return nil
}

// SetSignInRules keeps what an organization has decided. It returns
// fault.NotFound if there is no such organization, and
// fault.FailedPrecondition if accounts are switched off while no owner has come
// through a provider: then nobody could come back in to undo it.
func (s *Store) SetSignInRules(ctx context.Context, r resource.SignInRules) error {
	return s.write(ctx, func(t *tx) error {
		if err := t.mustExist(ctx, r.Organization); err != nil {
			return err
		}
		before := resource.SignInRules{Organization: r.Organization}
		err := t.row(ctx, `SELECT t.local_off FROM sign_in_rules AS t WHERE t.org = $1`+s.engine.lock, []any{segment(r.Organization)}, &before.LocalOff)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if r.LocalOff {
			n, err := ownersThrough(ctx, t.row, r.Organization)
			if err != nil {
				return err
			}
			if n == 0 {
				return fault.Unmet("NO_OWNER_WITH_PROVIDER", "no owner of the organization has signed in with one of its providers yet")
			}
		}
		if _, err := t.exec(ctx, `INSERT INTO sign_in_rules (org, local_off) VALUES ($1, $2)
			ON CONFLICT (org) DO UPDATE SET local_off = excluded.local_off`, segment(r.Organization), r.LocalOff); err != nil {
			return err
		}
		return t.emit(ctx, resource.SignInRulesUpdated, r.Organization, r.Organization, before, r)
	})
}

// LocalAllowed tells whether an account may sign in. Where its organization has
// switched accounts off, an owner still may as long as no owner could come back
// in through a provider.
func (s *Store) LocalAllowed(ctx context.Context, a resource.Account) (bool, error) {
	org := a.UID.Root()
	rules, err := s.SignInRules(ctx, org)
	if err != nil || !rules.LocalOff {
		return err == nil, err
	}
	var owns int
	if err := s.row(ctx, `SELECT count(*) FROM role_bindings WHERE parent = $1 AND role = $2 AND identity = $3`,
		[]any{segment(org), segment(resource.OwnerRole), string(a.Identity)}, &owns); err != nil || owns == 0 {
		return false, err
	}
	others, err := ownersThrough(ctx, s.row, org)
	return others == 0, err
}

// HomesOf returns the groups that answer for an identity: that it is in, that its
// account is in, or whose providers it came through. A person whom nobody answers
// for has none.
func (s *Store) HomesOf(ctx context.Context, identity resource.UID) (all []resource.UID, _ error) {
	if !identity.IsRoot() {
		return []resource.UID{identity.Parent()}, nil
	}
	err := s.rows(ctx, `SELECT t.uid FROM accounts AS t WHERE t.identity = $1
		UNION SELECT p.uid FROM identity_providers AS p JOIN arrivals AS a ON a.provider = p.seg WHERE a.identity = $1`,
		[]any{string(identity)}, func(row scanner) (bool, error) {
			var uid resource.UID
			err := row.Scan(&uid)
			all = append(all, uid.Parent())
			return false, err
		})
	return all, err
}

// InsertAccount adds an account with the identity it stands for, unless that is
// there already, and the bindings given. It returns fault.NotFound if its group
// or a role is not there, and fault.AlreadyExists if its organization has an
// account of that e-mail address. Accounts of other organizations make no
// difference, so that no organization learns of them.
func (s *Store) InsertAccount(ctx context.Context, a resource.Account, i resource.Identity, with ...resource.RoleBinding) error {
	return s.write(ctx, func(t *tx) error { return t.insertAccount(ctx, a, i, with) })
}

// Found adds an organization with the account of its first owner, all or
// nothing: there is no moment at which nobody can get in. Its errors are those of
// InsertGroup and InsertAccount.
func (s *Store) Found(ctx context.Context, g resource.Group, a resource.Account, i resource.Identity, with ...resource.RoleBinding) error {
	return s.write(ctx, func(t *tx) error {
		if err := t.insertGroup(ctx, &g); err != nil {
			return err
		}
		return t.insertAccount(ctx, a, i, with)
	})
}

func (t *tx) insertAccount(ctx context.Context, a resource.Account, i resource.Identity, with []resource.RoleBinding) error {
	if err := t.mustExist(ctx, a.UID.Parent()); err != nil {
		return err
	}
	maker, err := makerText(a.Link)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, `
		INSERT INTO accounts (seg, uid, parent, a1, a2, a3, name, display, identity, password, totp, totp_step,
			link, link_ms, link_factors, used_ms, create_ms, update_ms, link_maker)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`,
		append(place(a.UID), a.Email, a.Name, string(a.Identity), a.Password, append([]byte{}, a.TOTP...), a.TOTPStep,
			append([]byte{}, a.Link.Digest...), someMS(a.Link.Expires), a.Link.Factors, someMS(a.UseTime), ms(a.CreateTime), ms(a.UpdateTime), maker)...)
	if err != nil {
		return t.s.inserted(err, "account", a.Email, a.UID)
	}
	var one int
	err = t.row(ctx, `SELECT 1 FROM identities AS t WHERE t.uid = $1`+t.s.engine.hold, []any{string(i.UID)}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		err = t.insertIdentity(ctx, i)
	}
	if err != nil {
		return err
	}
	if err := t.join(ctx, a.UID.Root(), a.Identity); err != nil {
		return err
	}
	for _, b := range with {
		if err := t.grant(ctx, b); err != nil {
			return err
		}
	}
	return t.added(ctx, "accounts", resource.AccountCreated, a.UID, a.UID.Parent(), a.Record(0))
}

// FollowLink applies change to the account whose one-time link has that digest,
// and takes the link out of use. It ends the account's sessions, and with the
// link's word its other factors. It returns fault.NotFound for a link that is
// not good, or no longer.
func (s *Store) FollowLink(ctx context.Context, digest []byte, change func(*resource.Account) error) (a resource.Account, _ error) {
	err := s.write(ctx, func(t *tx) error {
		before, err := accounts.scan(t.on.QueryRowContext(ctx, `SELECT `+accounts.columns+` FROM accounts AS t WHERE t.link = $1 AND t.link_ms > $2`+s.engine.lock,
			digest, ms(s.now())))
		if err != nil {
			return missing(err, "account", "link")
		}
		a = before
		if err := change(&a); err != nil {
			return err
		}
		keys, err := t.passkeys(ctx, a.UID)
		if err != nil {
			return err
		}
		was := before.Record(keys)
		if before.Link.Factors {
			a.TOTP, a.TOTPStep, a.RecoveryCodes, keys = nil, 0, 0, 0
			if _, err := t.exec(ctx, `DELETE FROM passkeys WHERE account = $1`, segment(a.UID)); err != nil {
				return err
			}
		}
		a.Link, a.UpdateTime = resource.Link{}, s.now()
		if _, err := t.exec(ctx, `UPDATE accounts SET password = $2, totp = $3, totp_step = $4, link = $5, link_ms = 0, link_factors = $6, update_ms = $7
			WHERE uid = $1`, string(a.UID), a.Password, append([]byte{}, a.TOTP...), a.TOTPStep, []byte{}, false, ms(a.UpdateTime)); err != nil {
			return err
		}
		if err := t.dropIdleCodes(ctx, a.UID); err != nil {
			return err
		}
		if _, err := t.endAll(ctx, a.Identity, "", resource.EndPasswordReset); err != nil {
			return err
		}
		return t.emit(ctx, resource.AccountUpdated, a.UID, a.UID.Parent(), was, a.Record(keys))
	})
	return a, err
}

// DeleteAccount removes an account with its identity, under the rules of
// DeleteIdentity. It returns fault.NotFound if there is no such account.
func (s *Store) DeleteAccount(ctx context.Context, uid resource.UID) error {
	return s.removeIdentity(ctx, func(t *tx) ([]resource.UID, error) {
		a, err := take(ctx, t, &accounts, "account", uid, s.engine.lockKey)
		if err != nil {
			return nil, err
		}
		ownerless, err := t.deleteIdentity(ctx, a.Identity, uid.Root())
		if errors.Is(err, fault.NotFound) {
			err = t.dropAccount(ctx, a.Identity)
		}
		return ownerless, err
	})
}

// DeleteIdentity removes an identity with its bindings, sessions and account,
// and makes its tokens void. It returns fault.NotFound if there is no such identity, and
// fault.FailedPrecondition if its own organization would lose its last owner.
// Other organizations cannot keep a workload: one that loses its last owner so is
// told to the log. A person who deletes themselves leaves none without an owner.
func (s *Store) DeleteIdentity(ctx context.Context, uid resource.UID) error {
	home := uid.Root()
	if uid.IsRoot() {
		home = ""
	}
	return s.removeIdentity(ctx, func(t *tx) ([]resource.UID, error) { return t.deleteIdentity(ctx, uid, home) })
}

// removeIdentity runs a deletion and logs the organizations that have no owner
// after it.
func (s *Store) removeIdentity(ctx context.Context, remove func(*tx) ([]resource.UID, error)) error {
	var ownerless []resource.UID
	err := s.write(ctx, func(t *tx) (err error) {
		ownerless, err = remove(t)
		return err
	})
	if err == nil && len(ownerless) > 0 && !resource.Rehearsing(ctx) {
		s.Log.WarnContext(ctx, "an identity of another organization was deleted, and with it the last owner", "organizations", ownerless)
	}
	return err
}
