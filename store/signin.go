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

// ensure gives an identity a role in a group unless it has it, and returns the
// binding that was made, or "".
func (t *tx) ensure(ctx context.Context, group, identity, role resource.UID) (resource.UID, error) {
	var one int
	err := t.row(ctx, `SELECT 1 FROM role_bindings WHERE parent = $1 AND identity = $2 AND role = $3`,
		[]any{segment(group), string(identity), segment(role)}, &one)
	if err == nil || !errors.Is(err, sql.ErrNoRows) {
		return "", err
	}
	b := resource.RoleBinding{UID: group.NewChild(), Identity: identity, Role: role, CreateTime: t.s.now()}
	return b.UID, t.grant(ctx, b)
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

// Why an invite is gone.
const (
	inviteUsed    = "used"
	inviteRevoked = "revoked"

	endedKept = 90 * 24 * time.Hour
)

// noteEnded remembers why an invite is about to go.
func (t *tx) noteEnded(ctx context.Context, uid resource.UID, reason string) error {
	now := t.s.now()
	if _, err := t.exec(ctx, `DELETE FROM ended_invites WHERE end_ms < $1`, ms(now.Add(-endedKept))); err != nil {
		return err
	}
	_, err := t.exec(ctx, `INSERT INTO ended_invites (uid, digest, reason, end_ms)
		SELECT t.uid, t.digest, $2, $3 FROM group_invites AS t WHERE t.uid = $1 ON CONFLICT (uid) DO NOTHING`, string(uid), reason, ms(now))
	return err
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

// Joins returns who came into a group through invites, newest first.
func (s *Store) Joins(ctx context.Context, group resource.UID) ([]resource.Join, error) {
	var all []resource.Join
	err := s.rows(ctx, `SELECT j.invite, j.identity, j.role, j.at_ms, coalesce(i.name, ''), coalesce(i.email, ''), coalesce(i.email_unverified, '')
		FROM joins AS j LEFT JOIN identities AS i ON i.uid = j.identity WHERE j.grp = $1 ORDER BY j.at_ms DESC LIMIT $2`,
		[]any{segment(group), resource.JoinsListed}, func(row scanner) (bool, error) {
			j := resource.Join{Group: group}
			var at int64
			var claimed string
			err := row.Scan(&j.Invite, &j.Identity, &j.Role, &at, &j.Name, &j.Email, &claimed)
			if j.Time = fromMS(at); j.Email == "" {
				j.Email = claimed
			}
			all = append(all, j)
			return false, err
		})
	return all, err
}

// SignInRules returns what an organization has decided, or what goes for one
// that has not.
func (s *Store) SignInRules(ctx context.Context, org resource.UID) (resource.SignInRules, error) {
	r := resource.SignInRules{Organization: org}
	err := s.row(ctx, `SELECT local_off FROM sign_in_rules WHERE org = $1`, []any{segment(org)}, &r.LocalOff)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return r, err
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

// ownersThrough counts the owners of an organization who have come through one
// of its providers that is in use.
func ownersThrough(ctx context.Context, row func(context.Context, string, []any, ...any) error, org resource.UID) (n int, err error) {
	err = row(ctx, `SELECT count(*) FROM role_bindings AS b WHERE b.parent = $1 AND b.role = $2 AND EXISTS
		(SELECT 1 FROM arrivals AS a JOIN identity_providers AS p ON p.seg = a.provider JOIN identities AS i ON i.uid = a.identity
			WHERE a.identity = b.identity AND p.a1 = $1 AND p.disabled = $3 AND i.realm = p.realm)`, []any{segment(org), segment(resource.OwnerRole), false}, &n)
	return n, err
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

// ProvidersFor returns the providers that speak for a group and that people can
// sign in with: those of the group and of the groups above it, by name. A
// provider of a folder does not speak for its organization.
func (s *Store) ProvidersFor(ctx context.Context, group resource.UID) ([]resource.IdentityProvider, error) {
	var all []resource.IdentityProvider
	for _, g := range append(group.Ancestors(), group) {
		err := s.rows(ctx, `SELECT `+providers.columns+` FROM identity_providers AS t WHERE t.parent = $1 ORDER BY t.name, t.seg LIMIT 100`,
			[]any{segment(g)}, func(row scanner) (bool, error) {
				p, err := providers.scan(row)
				if err == nil && p.UID.Parent() == g && !p.Disabled {
					all = append(all, p)
				}
				return false, err
			})
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b resource.IdentityProvider) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// RolesFor returns the names of the roles that somebody gets who comes through a
// provider for the first time and is in those groups.
func (s *Store) RolesFor(ctx context.Context, p resource.IdentityProvider, groups []string) ([]string, error) {
	uids := []resource.UID{p.DefaultRole}
	err := s.rows(ctx, `SELECT `+mappings.columns+` FROM external_group_role_mappings AS t WHERE t.parent = $1 ORDER BY t.uid`, []any{segment(p.UID)}, func(row scanner) (bool, error) {
		m, err := mappings.scan(row)
		if err == nil && slices.Contains(groups, m.ExternalGroup) && !slices.Contains(uids, m.Role) {
			uids = append(uids, m.Role)
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, uid := range uids {
		r, err := s.Role(ctx, uid)
		if err != nil {
			return nil, err
		}
		names = append(names, r.Name)
	}
	return names, nil
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
