package iamdb

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// mapped is the SQL condition that a mapping m applies to a team t. A mapping names a team by its external id or by its
// name.
const mapped = `m.parent = t.provider AND (m.external_group = t.external_id OR m.external_group = t.name)`

// fromTeams joins everything that gives roles to the members of teams. The roles are not bindings: they exist as long
// as the member, the mapping, and the setting directory_roles of the provider p exist.
const fromTeams = ` CROSS JOIN teams AS t CROSS JOIN identity_providers AS p
	CROSS JOIN external_group_role_mappings AS m
	WHERE t.seg = tm.team AND p.seg = t.provider AND p.directory_roles AND ` + mapped

// teamGrants calls f for every grant that identities have through teams.
func (s *Store) teamGrants(ctx context.Context, roles map[int64]resource.UID, f func(Grant)) error {
	return s.Rows(ctx, `SELECT tm.identity, m.scope, m.role FROM team_members AS tm`+fromTeams+`
		AND tm.identity <> ''`, nil, func(row store.Scanner) (bool, error) {
		var identity, scope string
		var role int64
		err := row.Scan(&identity, &scope, &role)
		f(Grant{Identity: resource.UID(identity), Group: resource.UID(scope), Role: roles[role]})
		return false, err
	})
}

const teamGrantsOf = `SELECT m.scope, r.uid FROM team_members AS tm` + `
	CROSS JOIN teams AS t CROSS JOIN identity_providers AS p
	CROSS JOIN external_group_role_mappings AS m CROSS JOIN roles AS r
	WHERE t.seg = tm.team AND p.seg = t.provider AND p.directory_roles AND ` + mapped + `
	AND r.seg = m.role AND tm.identity = $1 AND tm.identity <> ''`

// teamGrantsOf returns the grants that an identity has through teams.
func (s *Store) teamGrantsOf(ctx context.Context, identity resource.UID) ([]Grant, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (Grant, error) {
		g := Grant{Identity: identity}
		err := row.Scan(&g.Group, &g.Role)
		return g, err
	}, teamGrantsOf, string(identity))
}

// teamAffects makes every replica read the grants of members again, if a mapping applies to one of the states of their
// team. The provider must be held.
func (t Tx) teamAffects(ctx context.Context, states []resource.Team, members []TeamMember) error {
	if len(members) == 0 {
		return nil
	}
	for _, team := range states {
		found, err := store.ReadColumn[int](ctx, t.Rows, `SELECT 1 FROM external_group_role_mappings AS m
			CROSS JOIN identity_providers AS p WHERE m.parent = $1 AND m.external_group IN ($2, $3) AND p.seg = m.parent
			AND p.directory_roles LIMIT 1`, store.Segment(team.Provider()), team.Name, nonEmpty(team.ExternalID, team.Name))
		if err != nil {
			return err
		}
		if len(found) > 0 {
			for _, m := range members {
				t.membersAffected(m.Identity)
			}
			return nil
		}
	}
	return nil
}

func nonEmpty(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// mappingAffects makes every replica read the grants of those people again to whom a mapping of an external group
// applies through a team. It locks the provider, so that no team changes at the same time.
func (t Tx) mappingAffects(ctx context.Context, provider resource.UID, groups ...string) error {
	p, err := store.Lock(ctx, t.Tx, &providers, provider, t.DB.Engine.ForUpdate)
	if err != nil || !p.DirectoryRoles {
		return err
	}
	for _, group := range groups {
		people, err := store.ReadColumn[resource.UID](ctx, t.Rows, `SELECT tm.identity FROM teams AS t
			CROSS JOIN team_members AS tm WHERE t.provider = $1 AND (t.name = $2 OR t.external_id = $2) AND tm.team = t.seg
			AND tm.identity <> ''`, store.Segment(provider), group)
		if err != nil {
			return err
		}
		t.IdentitiesChanged(people...)
	}
	return nil
}

// A teamSource is a mapping that gives a role to a team.
type teamSource struct {
	mapping, team int64
	members       int
	bound         resource.BoundRole // the role, the group and the team
}

// teamSources returns the mappings that give one of the roles of h to a team on one of its groups, in a fixed order,
// with the number of the members who are people.
func (s *Store) teamSources(ctx context.Context, h HolderQuery) ([]teamSource, error) {
	q := store.Query{Engine: s.Engine}
	var roles []int64
	for _, uid := range h.Roles {
		roles = append(roles, store.Segment(uid))
	}
	text := fmt.Sprintf(`SELECT `+teamRoleColumns+`,
		(SELECT count(*) FROM team_members AS c WHERE c.team = t.seg AND c.identity <> '')
		FROM external_group_role_mappings AS m CROSS JOIN identity_providers AS p CROSS JOIN teams AS t
		CROSS JOIN groups AS g CROSS JOIN roles AS r
		WHERE m.role IN (SELECT v FROM %s AS s) AND m.scope IN (SELECT v FROM %s AS s) AND p.seg = m.parent
		AND p.directory_roles AND %s AND g.uid = m.scope AND r.seg = m.role ORDER BY m.seg, t.seg`,
		s.Engine.Unnest(&q, roles), s.Engine.Unnest(&q, resource.Distinct(h.Groups)), mapped)
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (t teamSource, _ error) {
		var members int
		t, err := scanTeamRole(row, &members)
		t.members = members
		return t, err
	}, text, q.Args...)
}

// teamRoleColumns are the columns that scanTeamRole reads.
const teamRoleColumns = `m.seg, t.seg, m.uid, m.create_ms, t.name, p.uid, p.name,
	g.uid, g.name, g.display_name, g.description, r.uid, r.name, r.description`

// scanTeamRole scans a role that a team gives, and then further columns.
func scanTeamRole(row store.Scanner, further ...any) (t teamSource, _ error) {
	b, through := &t.bound, &resource.TeamRole{}
	var created int64
	err := row.Scan(append([]any{&t.mapping, &t.team, &through.Mapping, &created, &through.TeamName, &through.Provider,
		&through.ProviderName, &b.GroupInfo.UID, &b.GroupInfo.Name, &b.GroupInfo.DisplayName,
		&b.GroupInfo.Description, &b.RoleInfo.UID, &b.RoleInfo.Name, &b.RoleInfo.Description}, further...)...)
	through.Team = teamUID(through.Provider, t.team)
	b.Team, b.Role, b.CreateTime = through, b.RoleInfo.UID, store.FromMS(created)
	if through.Mapping != "" {
		b.UID = b.GroupInfo.UID + through.Mapping[len(through.Mapping)-17:] // so that Group returns the group
	}
	// The directory has added the person to the organization of the provider.
	b.IdentityInfo.Member = through.Provider.Root() == b.GroupInfo.UID.Root()
	return t, err
}

// teamCursor is the key of a cursor behind a member of a team.
const teamCursor = "team"

// teamHolders appends people who hold a role of h through a team to a page of holders, and completes its total. They
// come after all bindings. The cursor of such a person has the key teamCursor.
func (s *Store) teamHolders(
	ctx context.Context, h HolderQuery, p page.Request, out page.Page[resource.BoundRole],
) (page.Page[resource.BoundRole], error) {
	sources, err := s.teamSources(ctx, h)
	if err != nil || len(sources) == 0 {
		return out, err
	}
	skip := max(p.Skip-int(out.Total), 0)
	if p.After != nil {
		skip = 0
	}
	for _, t := range sources {
		out.Total += int64(t.members)
	}
	if out.Last != nil { // there are more bindings
		return out, nil
	}
	var start string // position of the first source of the page, and its last member on the page before
	if p.After != nil && p.After.Key == teamCursor {
		start, skip = p.After.UID, 0
	}
	for _, t := range sources {
		position := fmt.Sprintf("%016x/%016x/", uint64(t.mapping), uint64(t.team))
		after := ""
		if start != "" {
			rest, here := strings.CutPrefix(start, position)
			if !here {
				continue
			}
			after, start = rest, ""
		} else if skip >= t.members {
			skip -= t.members
			continue
		}
		people, err := s.boundMembers(ctx, t, after, p.Size+1-len(out.Items), skip)
		if err != nil {
			return out, err
		}
		skip = 0
		for _, b := range people {
			if len(out.Items) == p.Size && out.Last == nil { // the page ends with the last binding
				out.Last = &page.Cursor{Key: teamCursor}
			}
			if len(out.Items) == p.Size {
				return out, nil
			}
			out.Items = append(out.Items, b.BoundRole)
			out.Last = &page.Cursor{Key: teamCursor, UID: position + b.member}
		}
	}
	out.Last = nil
	return out, nil
}

// A boundMember is a member of a team as a holder of a role.
type boundMember struct {
	resource.BoundRole
	member string
}

// boundMembers returns up to n people of a source whose ids in the directory are greater than after.
func (s *Store) boundMembers(ctx context.Context, t teamSource, after string, n, skip int) ([]boundMember, error) {
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (boundMember, error) {
		b := boundMember{BoundRole: t.bound}
		i := &b.IdentityInfo
		var name, display, description, issuer, subject, email *string // null without an identity
		err := row.Scan(&b.member, &b.Identity, &name, &display, &description, &issuer, &subject, &email)
		for into, text := range map[*string]*string{
			&i.Name: name, &i.DisplayName: display, &i.Description: description, &i.Issuer: issuer, &i.Subject: subject,
			&i.Email: email,
		} {
			if text != nil {
				*into = *text
			}
		}
		i.UID = b.Identity
		return b, err
	}, `SELECT tm.member, tm.identity, i.name, i.display_name, i.description, i.issuer, i.subject, i.email
		FROM team_members AS tm LEFT JOIN identities AS i ON i.uid = tm.identity
		WHERE tm.team = $1 AND tm.identity <> '' AND tm.member > $2 ORDER BY tm.member LIMIT $3 OFFSET $4`,
		t.team, after, n, skip)
}

// teamHeld returns all roles that an identity holds through teams on groups.
func (s *Store) teamHeld(
	ctx context.Context, identity resource.UID, groups []resource.UID,
) (held []resource.BoundRole, _ error) {
	q := store.Query{Engine: s.Engine}
	text := `SELECT ` + teamRoleColumns + ` FROM team_members AS tm
		CROSS JOIN teams AS t CROSS JOIN identity_providers AS p
		CROSS JOIN external_group_role_mappings AS m CROSS JOIN groups AS g CROSS JOIN roles AS r
		WHERE tm.identity = ` + q.Arg(string(identity)) + ` AND tm.identity <> '' AND t.seg = tm.team AND p.seg = t.provider
		AND p.directory_roles AND ` + mapped + `
		AND m.scope IN (SELECT v FROM ` + s.Engine.Unnest(&q, resource.Distinct(groups)) + ` AS s)
		AND g.uid = m.scope AND r.seg = m.role ORDER BY m.seg, t.seg`
	return store.ReadAll(ctx, s.Rows, func(row store.Scanner) (resource.BoundRole, error) {
		t, err := scanTeamRole(row)
		t.bound.Identity, t.bound.IdentityInfo.UID = identity, identity
		return t.bound, err
	}, text, q.Args...)
}
