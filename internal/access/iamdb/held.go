package iamdb

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// sameSignIn is the longest time between two timestamps that belong to the same sign-in.
const sameSignIn = time.Minute

// HeldRoles returns up to resource.HeldRolesShown roles that a person currently holds, with their origin, and the total
// number of roles. Roles in organizations that the person has joined come first, because anybody can give anybody a
// role in their own organization, and such roles must not crowd out the relevant ones. Within both parts the oldest
// role comes first.
func (s *Store) HeldRoles(
	ctx context.Context, identity resource.UID,
) (held []resource.HeldRole, total int, err error) {
	currentTime := s.now()
	if err = s.Row(ctx, `SELECT count(*) FROM role_bindings WHERE identity = $1 AND `+activeAt("$2"),
		[]any{string(identity), currentTime}, &total); err != nil || total == 0 {
		return nil, total, err
	}
	held, err = store.ReadAll(ctx, s.Rows, scanHeldRole, heldRoles,
		string(identity), sameSignIn.Milliseconds(), resource.HeldRolesShown, currentTime)
	return held, total, err
}

// heldRoles is the query of HeldRoles. It considers a mapping only if the person has signed in since the mapping was
// created, because an earlier sign-in cannot have got the role from it.
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
	WHERE b.identity = $1 AND ` + activeAt("$4") + ` ORDER BY joined DESC, b.create_ms, b.uid LIMIT $3`

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

// NamesOfGroups returns the names of groups. It leaves out groups that do not exist.
func (s *Store) NamesOfGroups(ctx context.Context, uids []resource.UID) (map[resource.UID]string, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	q := store.Query{Engine: s.Engine}
	each := q.Engine.Unnest(&q, uids)
	return store.ReadMap[resource.UID, string](ctx, s.Rows,
		`SELECT g.uid, g.name FROM groups AS g WHERE g.uid IN (SELECT v FROM `+each+` AS s)`, q.Args...)
}
