package iamdb

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

var invites = store.Kind[resource.GroupInvite]{
	Table: "group_invites", Label: "group invite",
	Joins:   ` LEFT JOIN roles AS r ON r.seg = t.role`, // an outer join for the same reason as in bindings
	Created: resource.InviteCreated, Updated: resource.InviteUpdated, Deleted: resource.InviteDeleted,
	Columns: func(i *resource.GroupInvite) []store.Column {
		return []store.Column{
			store.Key(&i.UID),
			store.Text("email", &i.Email),
			store.Flag("single_use", &i.SingleUse).Fixed(),
			store.Text("key_id", &i.KeyID).Fixed(),
			store.Bytes("digest", &i.Digest).Fixed(),
			store.Time("expire_ms", &i.ExpirationTime),
			store.OptionalTime("role_start_ms", &i.StartTime),
			store.OptionalTime("role_expire_ms", &i.ExpireTime),
			store.Text("reason", &i.Reason),
			store.Time("create_ms", &i.CreateTime).Order("create_time").Fixed(),
			store.Time("update_ms", &i.UpdateTime),
			store.Ref("role", "roles", &i.Role),
			store.Text("", &i.RoleInfo.UID).From("r.uid"),
			store.Text("", &i.RoleInfo.Name).From("r.name"),
			store.Text("", &i.RoleInfo.Description).From("r.description"),
			store.JSON("", &i.RoleInfo.Capabilities).From("r.capabilities"),
		}
	},
}

// InsertInvite adds i, calls each function in also in the same transaction, and returns i with its role. It returns
// fault.NotFound if its group or its role does not exist.
func (s *Store) InsertInvite(
	ctx context.Context, i resource.GroupInvite, also ...func(*store.Tx) error,
) (out resource.GroupInvite, _ error) {
	err := s.write(ctx, func(t Tx) error {
		if err := t.RequireGroup(ctx, i.UID.Parent()); err != nil {
			return err
		}
		if err := t.RequireRole(ctx, i.Role); err != nil {
			return err
		}
		if err := store.Insert(ctx, t.Tx, &invites, i); err != nil {
			return err
		}
		var err error
		if out, err = store.Lock(ctx, t.Tx, &invites, i.UID, ""); err != nil {
			return err
		}
		return t.Do(also...)
	})
	return out, err
}

// Invite returns an invite, or fault.NotFound.
func (s *Store) Invite(ctx context.Context, uid resource.UID) (resource.GroupInvite, error) {
	return store.Get(ctx, s.DB, &invites, uid)
}

// EndInvites emits the events for up to n expired invites, and returns their number. Every replica may call it. There
// is one event for each invite, and another one if its expiry was postponed after the event. An invite cannot be used
// from its expiry on, whether or not there was an event.
func (s *Store) EndInvites(ctx context.Context, n int) (ended int, _ error) {
	due, err := store.ReadColumn[int](ctx, s.Rows, `SELECT 1 FROM group_invites
		WHERE told_ms <> expire_ms AND expire_ms <= $1 LIMIT 1`, s.now())
	if err != nil || len(due) == 0 { // the usual case needs no transaction
		return 0, err
	}
	err = s.write(ctx, func(t Tx) error {
		currentTime, lock, err := t.skipLocked(ctx)
		if err != nil {
			return err
		}
		due, err := invites.All(ctx, t.Rows,
			` WHERE t.told_ms <> t.expire_ms AND t.expire_ms <= $1 ORDER BY t.expire_ms LIMIT $2`+lock,
			store.MS(currentTime), n)
		if err != nil {
			return err
		}
		ended = len(due)
		for _, i := range due {
			_, err := t.Exec(ctx, `UPDATE group_invites SET told_ms = expire_ms WHERE uid = $1`, string(i.UID))
			if err != nil {
				return err
			}
			if err := t.Emit(ctx, resource.InviteExpired, i.UID, i.UID.Parent(), i, i); err != nil {
				return err
			}
		}
		return nil
	})
	return ended, err
}

// UpdateInvite replaces before by after, under the rules of UpdateGroup, and
// returns it with its role. It returns fault.NotFound if its role does not exist,
// and fault.FailedPrecondition if somebody has used the invite.
func (s *Store) UpdateInvite(
	ctx context.Context, before, after resource.GroupInvite,
) (out resource.GroupInvite, _ error) {
	err := s.write(ctx, func(t Tx) error {
		if _, err := t.LockInvite(ctx, before.UID); err != nil { // the lock prevents a use of the invite until the commit
			return err
		}
		var joined int
		if err := t.Row(ctx, `SELECT count(*) FROM joins WHERE grp = $1 AND invite = $2`,
			[]any{store.Segment(before.UID.Parent()), string(before.UID)}, &joined); err != nil {
			return err
		}
		if joined > 0 {
			return fault.Unmet("INVITE_USED", "somebody has joined with this invite: delete it and create a new one")
		}
		if err := t.RequireRole(ctx, after.Role); err != nil {
			return err
		}
		err := store.Update(ctx, t.Tx, &invites, before, &after)
		if err == nil {
			out, err = store.Lock(ctx, t.Tx, &invites, after.UID, "")
		}
		return err
	})
	return out, err
}

// DeleteInvite removes an invite. It returns nil if there is no such invite. It
// records the deletion, so that the error for its code can say that the invite
// was revoked.
func (s *Store) DeleteInvite(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t Tx) error {
		if err := t.recordEnded(ctx, uid, InviteRevoked); err != nil {
			return err
		}
		return store.Delete(ctx, t.Tx, &invites, uid)
	})
}

// Invites returns one page of invites.
func (s *Store) Invites(
	ctx context.Context, r store.Reach, f resource.Filter, p page.Request,
) (page.Page[resource.GroupInvite], error) {
	return store.List(ctx, s.DB, &invites, r, f, p)
}

// recordEnded records why an invite is about to be deleted, and deletes records that are older than endedKept.
func (t Tx) recordEnded(ctx context.Context, uid resource.UID, reason string) error {
	currentTime := t.DB.Time()
	oldest := currentTime.Add(-endedKept)
	if _, err := t.Exec(ctx, `DELETE FROM ended_invites WHERE end_ms < $1`, store.MS(oldest)); err != nil {
		return err
	}
	_, err := t.Exec(ctx, `INSERT INTO ended_invites (uid, digest, reason, end_ms)
		SELECT t.uid, t.digest, $2, $3 FROM group_invites AS t WHERE t.uid = $1 ON CONFLICT (uid) DO NOTHING`, string(uid),
		reason, store.MS(currentTime))
	return err
}

// The reasons why an invite was deleted.
const (
	InviteUsed    = "used"
	InviteRevoked = "revoked"
)

// endedKept is how long the reason for a deletion is stored.
const endedKept = 90 * 24 * time.Hour

// Joins returns the uses of invites to a group and to groups below it, newest first, at most resource.JoinsListed.
func (s *Store) Joins(ctx context.Context, group resource.UID) ([]resource.Join, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (resource.Join, error) {
		var j resource.Join
		var ms int64
		var unverified string
		err := row.Scan(&j.Invite, &j.Identity, &j.Role, &ms, &j.Name, &j.Email, &unverified)
		j.Group = j.Invite.Parent()
		if j.Time = store.FromMS(ms); j.Email == "" {
			j.Email = unverified
		}
		return j, err
	}, `SELECT j.invite, j.identity, j.role, j.at_ms,
			coalesce(i.name, ''), coalesce(i.email, ''), coalesce(i.email_unverified, '')
		FROM joins AS j LEFT JOIN identities AS i ON i.uid = j.identity
		WHERE j.grp IN (SELECT g.seg FROM groups AS g WHERE g.uid >= $1 AND g.uid < $2)
		ORDER BY j.at_ms DESC LIMIT $3`, string(group), string(group)+"0", resource.JoinsListed)
}

// EndedInvite returns the digest of the code of a deleted invite, and the reason for its deletion, or fault.NotFound.
func (s *Store) EndedInvite(ctx context.Context, uid resource.UID) (digest []byte, reason string, err error) {
	err = s.Row(ctx, endedInvite, []any{string(uid)}, &digest, &reason)
	return digest, reason, store.Missing(err, "group invite", uid)
}

const endedInvite = `SELECT digest, reason FROM ended_invites WHERE uid = $1`

// EndedInvite is Store.EndedInvite inside a transaction.
func (t Tx) EndedInvite(ctx context.Context, uid resource.UID) (digest []byte, reason string, err error) {
	err = t.Row(ctx, endedInvite, []any{string(uid)}, &digest, &reason)
	return digest, reason, store.Missing(err, "group invite", uid)
}

// LockInvite reads and locks an invite, or returns fault.NotFound. If two callers
// use a single-use invite at the same time, the second gets fault.NotFound.
func (t Tx) LockInvite(ctx context.Context, uid resource.UID) (resource.GroupInvite, error) {
	return store.Lock(ctx, t.Tx, &invites, uid, t.DB.Engine.ForUpdate)
}

// bindInvited creates the binding of an invite for an identity, unless the identity already has an equal binding.
func (t Tx) bindInvited(ctx context.Context, i resource.GroupInvite, identity resource.UID) error {
	group := i.UID.Parent()
	b := i.Binding(group.NewChild(), identity, t.DB.Time())
	if !b.Timed() {
		_, err := t.EnsureBinding(ctx, group, identity, i.Role)
		return err
	}
	held, err := bareBindings.All(ctx, t.Rows, ` WHERE t.parent = $1 AND t.identity = $2 AND t.role = $3`,
		store.Segment(group), string(identity), store.Segment(i.Role))
	if err != nil || slices.ContainsFunc(held, func(h resource.RoleBinding) bool {
		return h.StartTime.Equal(b.StartTime) && h.ExpireTime.Equal(b.ExpireTime)
	}) {
		return err
	}
	return t.Grant(ctx, b)
}

// UseInvite gives an identity the role of an invite, records the use, and deletes a
// single-use invite.
func (t Tx) UseInvite(ctx context.Context, i resource.GroupInvite, identity resource.UID) error {
	group := i.UID.Parent()
	if err := t.bindInvited(ctx, i, identity); err != nil {
		return err
	}
	if err := t.AddMember(ctx, group.Root(), identity); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `INSERT INTO joins (grp, invite, identity, role, at_ms) VALUES ($1, $2, $3, $4, $5)`,
		store.Segment(group), string(i.UID), string(identity), string(i.Role), store.MS(t.DB.Time())); err != nil {
		return err
	}
	if i.SingleUse {
		if err := t.recordEnded(ctx, i.UID, InviteUsed); err != nil {
			return err
		}
		if err := store.Delete(ctx, t.Tx, &invites, i.UID); err != nil {
			return err
		}
	}
	return t.Emit(ctx, resource.Registered, "", group, nil,
		map[string]resource.UID{"identity": identity, "group": group})
}

// InvitesUsed returns the time of the last use of each of these invites. It leaves out unused invites.
func (s *Store) InvitesUsed(ctx context.Context, invites []resource.UID) (map[resource.UID]time.Time, error) {
	used := map[resource.UID]time.Time{}
	if len(invites) == 0 {
		return used, nil
	}
	byGroup := map[resource.UID][]resource.UID{}
	for _, uid := range invites {
		byGroup[uid.Parent()] = append(byGroup[uid.Parent()], uid)
	}
	for group, uids := range byGroup {
		q := store.Query{Engine: s.Engine}
		text := `SELECT invite, max(at_ms) FROM joins WHERE grp = ` + q.Arg(store.Segment(group)) + `
			AND invite IN (SELECT v FROM ` + s.Engine.Unnest(&q, resource.Distinct(uids)) + ` AS s) GROUP BY invite`
		times, err := store.ReadMap[resource.UID, int64](ctx, s.Rows, text, q.Args...)
		if err != nil {
			return nil, err
		}
		for uid, ms := range times {
			used[uid] = store.FromMS(ms)
		}
	}
	return used, nil
}
