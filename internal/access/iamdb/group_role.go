package iamdb

import (
	"context"
	"fmt"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A GroupRole is a role that an identity holds on a group.
type GroupRole struct {
	Group, Identity resource.UID
	Role            int64 // the segment of the role
}

// RolesOn returns up to n of the roles that are currently held on groups, also through teams, ordered by group and
// identity.
func (s *Store) RolesOn(ctx context.Context, groups []resource.UID, n int) ([]GroupRole, error) {
	q := store.Query{Engine: s.Engine}
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (h GroupRole, err error) {
		err = row.Scan(&h.Group, &h.Identity, &h.Role)
		return h, err
	}, fmt.Sprintf(`SELECT g.uid AS uid, b.identity AS identity, b.role AS role FROM %s AS s CROSS JOIN groups AS g
			CROSS JOIN role_bindings AS b WHERE g.uid = s.v AND b.parent = g.seg AND %s
		UNION ALL SELECT m.scope, tm.identity, m.role FROM %s AS s CROSS JOIN external_group_role_mappings AS m
			CROSS JOIN identity_providers AS p CROSS JOIN teams AS t CROSS JOIN team_members AS tm
			WHERE m.scope = s.v AND p.seg = m.parent AND p.directory_roles AND %s AND tm.team = t.seg AND tm.identity <> ''
		ORDER BY 1, 2, 3 LIMIT %s`,
		s.Engine.Unnest(&q, groups), activeAt(q.Arg(s.now())), s.Engine.Unnest(&q, groups), mapped, q.Arg(n)),
		q.Args...)
}
