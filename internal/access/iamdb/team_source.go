package iamdb

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// SetDirectoryRoles lets the mappings of a provider apply to the teams of its directory, or to the groups in claims.
// The bindings that people have got from claims are deleted when the mappings begin to apply to teams. It returns
// fault.FailedPrecondition if an organization would lose its last permanent owner by that.
func (t Tx) SetDirectoryRoles(ctx context.Context, provider resource.UID, on bool) error {
	before, err := store.Lock(ctx, t.Tx, &providers, provider, t.DB.Engine.ForUpdate)
	if err != nil || before.DirectoryRoles == on {
		return err
	}
	const fromClaims = `IN (SELECT mb.binding FROM mapped_bindings AS mb JOIN identity_providers AS mp
		ON mp.seg = mb.provider WHERE mp.uid = $1)`
	if on {
		ownerless, err := t.ownerlessWithout(ctx, `seg `+fromClaims, provider)
		if err == nil && len(ownerless) > 0 {
			err = lastOwner(ownerless[0], provider.Root())
		}
		if err != nil {
			return err
		}
		if err := t.deleteBindings(ctx, `t.seg `+fromClaims, string(provider)); err != nil {
			return err
		}
	}
	people, err := store.ReadColumn[resource.UID](ctx, t.Rows, `SELECT DISTINCT tm.identity FROM teams AS t
		CROSS JOIN external_group_role_mappings AS m CROSS JOIN team_members AS tm
		WHERE t.provider = $1 AND `+mapped+` AND tm.team = t.seg AND tm.identity <> ''`, store.Segment(provider))
	if err != nil {
		return err
	}
	t.IdentitiesChanged(people...)
	_, err = t.Exec(ctx, `UPDATE identity_providers SET directory_roles = $2 WHERE uid = $1`, string(provider), on)
	return err
}

// HasDirectoryRoles reports whether the mappings of a provider apply to the teams of its directory.
func (t Tx) HasDirectoryRoles(ctx context.Context, provider resource.UID) (on bool, err error) {
	err = t.Row(ctx, `SELECT directory_roles FROM identity_providers WHERE uid = $1`, []any{string(provider)}, &on)
	return on, store.Missing(err, "identity provider", provider)
}

func (s *Store) mappedRoles(
	ctx context.Context, from string, provider resource.UID, on bool, n int,
) (roles []resource.MappedRole, total int, err error) {
	args := []any{store.Segment(provider), on}
	if err := s.Row(ctx, `SELECT count(*) FROM (SELECT DISTINCT x.identity, x.grp, x.role FROM `+from+`) AS c`, args,
		&total); err != nil || total == 0 {
		return nil, total, err
	}
	roles, err = store.ReadAll(ctx, s.Rows, func(row store.Scanner) (m resource.MappedRole, err error) {
		err = row.Scan(&m.Identity, &m.Name, &m.Group, &m.GroupName, &m.Role, &m.RoleTitle)
		return m, err
	}, `SELECT d.identity, coalesce((SELECT i.name FROM identities AS i WHERE i.uid = d.identity), ''), d.grp, g.name,
		r.uid, r.name FROM (SELECT DISTINCT x.identity, x.grp, x.role FROM `+from+`) AS d JOIN groups AS g ON g.uid = d.grp
		JOIN roles AS r ON r.seg = d.role ORDER BY d.identity, d.grp, r.uid LIMIT $3`, append(args, n)...)
	return roles, total, err
}

// TeamRolesWithoutBinding returns up to n roles that mappings of a provider give, or would give, to people through
// teams, and that these people do not hold by a binding, and the number of all such roles. on is the current setting of
// the provider: with another setting there are none.
func (s *Store) TeamRolesWithoutBinding(
	ctx context.Context, provider resource.UID, on bool, n int,
) ([]resource.MappedRole, int, error) {
	return s.mappedRoles(ctx, `(SELECT tm.identity AS identity, m.scope AS grp, m.role AS role FROM teams AS t
		CROSS JOIN identity_providers AS p CROSS JOIN external_group_role_mappings AS m CROSS JOIN team_members AS tm
		WHERE t.provider = $1 AND p.seg = t.provider AND p.directory_roles = $2 AND `+mapped+` AND tm.team = t.seg
		AND tm.identity <> '' AND NOT EXISTS (SELECT 1 FROM role_bindings AS b JOIN groups AS bg ON bg.seg = b.parent
			WHERE b.identity = tm.identity AND b.role = m.role AND bg.uid = m.scope AND b.end_ms = 0)) AS x`,
		provider, on, n)
}

// MappedWithoutTeam returns up to n roles that people have got from claims, and that they would not hold through a
// team, and the number of all such roles.
func (s *Store) MappedWithoutTeam(
	ctx context.Context, provider resource.UID, n int,
) ([]resource.MappedRole, int, error) {
	return s.mappedRoles(ctx, `(SELECT b.identity AS identity, bg.uid AS grp, b.role AS role FROM mapped_bindings AS mb
		JOIN role_bindings AS b ON b.seg = mb.binding JOIN groups AS bg ON bg.seg = b.parent
		JOIN identity_providers AS p ON p.seg = mb.provider
		WHERE mb.provider = $1 AND p.directory_roles = $2 AND NOT EXISTS
			(SELECT 1 FROM team_members AS tm JOIN teams AS t ON t.seg = tm.team
			JOIN external_group_role_mappings AS m ON `+mapped+`
			WHERE tm.identity = b.identity AND t.provider = $1 AND m.role = b.role AND m.scope = bg.uid)) AS x`,
		provider, false, n)
}
