package iamdb

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// sameSignIn is how far apart the times can be that one sign-in writes.
const sameSignIn = time.Minute

// HeldRoles returns the roles that a person holds now and where they come from, at
// most HeldRolesShown, and how many there are. Those in organizations that the
// person has joined come first, the oldest first: anybody can give a role in
// their own organization to anybody, and must not crowd out what counts.
func (s *Store) HeldRoles(
	ctx context.Context, identity resource.UID,
) (all []resource.HeldRole, total int, err error) {
	now := s.now()
	if err = s.Row(ctx, `SELECT count(*) FROM role_bindings WHERE identity = $1 AND `+counts("$2"),
		[]any{string(identity), now}, &total); err != nil || total == 0 {
		return nil, total, err
	}
	all, err = store.ReadAll(ctx, s.Rows, scanHeldRole, heldRoles,
		string(identity), sameSignIn.Milliseconds(), resource.HeldRolesShown, now)
	return all, total, err
}

// heldRoles reads what HeldRoles returns. A mapping counts only if the person has
// signed in since it was made: before that it cannot be what gave the role.
var heldRoles = `
	SELECT b.uid, b.create_ms, r.uid, r.name, r.description, r.capabilities,
		CASE WHEN EXISTS (SELECT 1 FROM members AS m WHERE m.org = b.a1 AND m.identity = b.identity)
			THEN 1 ELSE 0 END AS joined,
		(SELECT count(*) FROM joins AS j WHERE j.grp = b.parent AND j.identity = b.identity AND j.role = r.uid
			AND j.at_ms >= b.create_ms AND j.at_ms < b.create_ms + $2),
		coalesce(mp.name, ''),
		coalesce((SELECT min(p.name) FROM arrivals AS a JOIN identity_providers AS p ON p.seg = a.provider
			WHERE a.identity = b.identity AND p.parent = b.parent AND p.default_role = b.role
			AND a.first_ms <= b.create_ms AND b.create_ms < a.first_ms + $2), ''),
		coalesce((SELECT CASE WHEN count(*) = 1 THEN min(g.external_group) END FROM external_group_role_mappings AS g
			WHERE g.parent = mb.provider AND g.role = b.role AND g.scope = bg.uid AND g.create_ms <=
			(SELECT max(a.last_ms) FROM arrivals AS a WHERE a.identity = b.identity AND a.provider = mb.provider)), '')
	FROM role_bindings AS b JOIN roles AS r ON r.seg = b.role JOIN groups AS bg ON bg.seg = b.parent
	LEFT JOIN mapped_bindings AS mb ON mb.binding = b.seg
	LEFT JOIN identity_providers AS mp ON mp.seg = mb.provider
	WHERE b.identity = $1 AND ` + counts("$4") + ` ORDER BY joined DESC, b.create_ms, b.uid LIMIT $3`

func scanHeldRole(row store.Scanner) (h resource.HeldRole, err error) {
	var created, joined, invites int64
	var caps []byte
	var mapping, newcomer string
	err = row.Scan(&h.UID, &created, &h.Role, &h.RoleInfo.Name, &h.RoleInfo.Description, &caps,
		&joined, &invites, &mapping, &newcomer, &h.ExternalGroup)
	if err != nil {
		return h, err
	}
	h.CreateTime, h.RoleInfo.UID = store.FromMS(created), h.Role
	h.Joined, h.ByInvite, h.Mapped, h.Provider = joined == 1, invites > 0, mapping != "", mapping
	if !h.Mapped && !h.ByInvite {
		h.Provider = newcomer
	}
	return h, json.Unmarshal(caps, &h.Capabilities)
}

// NamesOfGroups returns the names of groups, of those that exist.
func (s *Store) NamesOfGroups(ctx context.Context, uids []resource.UID) (map[resource.UID]string, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	q := store.Query{Engine: s.Engine}
	each := q.Engine.Unnest(&q, uids)
	return store.ReadMap[resource.UID, string](ctx, s.Rows,
		`SELECT g.uid, g.name FROM groups AS g WHERE g.uid IN (SELECT v FROM `+each+` AS s)`, q.Args...)
}
