package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

var invites = listing[resource.GroupInvite]{
	kind: "group_invites",
	columns: `t.uid, t.email, t.single_use, t.key_id, t.digest, t.expire_ms, t.create_ms,
		r.uid, r.name, r.description, r.capabilities`,
	joins:  ` LEFT JOIN roles AS r ON r.seg = t.role`, // there always is one: see bindings
	orders: map[string]string{"uid": "uid", "create_time": "create_ms"},
	scan: func(row scanner) (i resource.GroupInvite, err error) {
		var expires, created int64
		var caps string
		r := &i.RoleInfo
		if err = row.Scan(&i.UID, &i.Email, &i.SingleUse, &i.KeyID, &i.Digest, &expires, &created, &r.UID, &r.Name, &r.Description, &caps); err != nil {
			return i, err
		}
		i.Role, i.ExpirationTime, i.CreateTime = r.UID, fromMS(expires), fromMS(created)
		return i, json.Unmarshal([]byte(caps), &r.Capabilities)
	},
	cursor: func(i resource.GroupInvite, col string) page.Cursor {
		return cursorAt(col, i.UID, "", i.CreateTime, i.CreateTime)
	},
}

// InsertInvite adds i and returns it with the role it promises. It returns
// fault.NotFound if its group or its role is not there.
func (s *Store) InsertInvite(ctx context.Context, i resource.GroupInvite) (out resource.GroupInvite, _ error) {
	err := s.write(ctx, func(t *tx) error {
		if err := t.mustExist(ctx, i.UID.Parent()); err != nil {
			return err
		}
		if err := t.mustHaveRole(ctx, i.Role); err != nil {
			return err
		}
		_, err := t.exec(ctx, `
			INSERT INTO group_invites (seg, uid, parent, a1, a2, a3, role, email, single_use, key_id, digest, expire_ms, create_ms)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
			append(place(i.UID), segment(i.Role), i.Email, i.SingleUse, i.KeyID, i.Digest, ms(i.ExpirationTime), ms(i.CreateTime))...)
		if err != nil {
			return s.inserted(err, "group invite", string(i.UID), i.UID)
		}
		if out, err = take(ctx, t, &invites, "group invite", i.UID, ""); err != nil {
			return err
		}
		return t.added(ctx, "group_invites", resource.InviteCreated, i.UID, i.UID.Parent(), i)
	})
	return out, err
}

// Invite returns an invite, or fault.NotFound.
func (s *Store) Invite(ctx context.Context, uid resource.UID) (resource.GroupInvite, error) {
	return get(ctx, s, &invites, "group invite", uid)
}

// DeleteInvite removes an invite. One that is not there is gone already. Whoever
// comes with its code later is told that it was taken back.
func (s *Store) DeleteInvite(ctx context.Context, uid resource.UID) error {
	return s.write(ctx, func(t *tx) error {
		if err := t.noteEnded(ctx, uid, inviteRevoked); err != nil {
			return err
		}
		return drop(ctx, t, &invites, "group invite", resource.InviteDeleted, uid, uid.Parent())
	})
}

// Invites returns one page of invites.
func (s *Store) Invites(ctx context.Context, r Reach, f resource.Filter, p page.Request) (page.Page[resource.GroupInvite], error) {
	return list(ctx, s, &invites, r, f, p)
}

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

// Why an invite is gone.
const (
	inviteUsed    = "used"
	inviteRevoked = "revoked"

	endedKept = 90 * 24 * time.Hour
)

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
