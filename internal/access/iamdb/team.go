package iamdb

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const selectTeam = `SELECT t.seg, t.name, t.external_id, t.members, t.version, t.create_ms, t.update_ms, t.attributes
	FROM teams AS t WHERE t.provider = $1`

// teamScanner returns a function that scans a row of selectTeam for a provider.
func teamScanner(provider resource.UID) func(store.Scanner) (resource.Team, error) {
	return func(row store.Scanner) (t resource.Team, _ error) {
		var seg, created, updated int64
		var attributes string
		if err := row.Scan(&seg, &t.Name, &t.ExternalID, &t.Members, &t.Version, &created, &updated,
			&attributes); err != nil {
			return t, err
		}
		t.UID = teamUID(provider, seg)
		t.CreateTime, t.UpdateTime = store.FromMS(created), store.FromMS(updated)
		dec := json.NewDecoder(strings.NewReader(attributes))
		dec.UseNumber()
		if err := dec.Decode(&t.Attributes); err != nil {
			return t, fmt.Errorf("attributes of team %s: %w", t.UID, err)
		}
		return t, nil
	}
}

func teamUID(provider resource.UID, seg int64) resource.UID {
	return provider + resource.UID(fmt.Sprintf("/%016x", uint64(seg^math.MinInt64))) // the inverse of store.Segment
}

// Team returns a team, or fault.NotFound.
func (s *Store) Team(ctx context.Context, uid resource.UID) (resource.Team, error) {
	t, err := teamScanner(uid.Parent())(s.QueryRow(ctx, selectTeam+` AND t.seg = $2`, store.Segment(uid.Parent()),
		store.Segment(uid)))
	return t, store.Missing(err, "team", uid)
}

// LockTeam is Store.Team inside a transaction. It locks the team against other changes.
func (t Tx) LockTeam(ctx context.Context, uid resource.UID) (resource.Team, error) {
	team, err := teamScanner(uid.Parent())(t.QueryRow(ctx, selectTeam+` AND t.seg = $2`+t.DB.Engine.ForUpdate,
		store.Segment(uid.Parent()), store.Segment(uid)))
	return team, store.Missing(err, "team", uid)
}

// TeamCount returns the number of teams of a provider's directory.
func (s *Store) TeamCount(ctx context.Context, provider resource.UID) (n int, err error) {
	err = s.Row(ctx, `SELECT count(*) FROM teams WHERE provider = $1`, []any{store.Segment(provider)}, &n)
	return n, err
}

// Teams returns up to n teams of a directory in the order of their creation, after the first skip ones.
func (s *Store) Teams(ctx context.Context, provider resource.UID, skip, n int) ([]resource.Team, error) {
	return store.ReadAll(ctx, s.Rows, teamScanner(provider), selectTeam+` ORDER BY t.create_ms, t.seg LIMIT $2 OFFSET $3`,
		store.Segment(provider), n, skip)
}

// TeamsNamed returns the team of a directory with a name, if there is one. Capitals do not matter.
func (s *Store) TeamsNamed(ctx context.Context, provider resource.UID, name string) ([]resource.Team, error) {
	return store.ReadAll(ctx, s.Rows, teamScanner(provider), selectTeam+` AND t.name_key = $2`, store.Segment(provider),
		strings.ToLower(name))
}

// TeamsWithExternalID returns the team of a directory with an external id, if there is one.
func (s *Store) TeamsWithExternalID(ctx context.Context, provider resource.UID, id string) ([]resource.Team, error) {
	if id == "" { // is not unique
		return nil, nil
	}
	return store.ReadAll(ctx, s.Rows, teamScanner(provider), selectTeam+` AND t.external_id = $2 AND t.external_id <> ''`,
		store.Segment(provider), id)
}

// TeamsOfMember returns up to n teams of a directory that have a member, in the order of their segments.
func (s *Store) TeamsOfMember(
	ctx context.Context, provider resource.UID, member string, n int,
) ([]resource.Team, error) {
	return store.ReadAll(ctx, s.Rows, teamScanner(provider), selectTeam+` AND t.seg IN
		(SELECT m.team FROM team_members AS m WHERE m.member = $2) ORDER BY t.seg LIMIT $3`, store.Segment(provider), member,
		n)
}

// TeamMembers returns up to n ids of members of a team that are greater than after, in their order.
func (s *Store) TeamMembers(ctx context.Context, team resource.UID, after string, n int) ([]string, error) {
	return store.ReadColumn[string](ctx, s.Rows, selectMembers, store.Segment(team), after, n)
}

const selectMembers = `SELECT m.member FROM team_members AS m
	WHERE m.team = $1 AND m.member > $2 ORDER BY m.member LIMIT $3`

// A TeamMember is a member of a team.
type TeamMember struct {
	Member   string       // id of the user in the directory
	Identity resource.UID // the person of that user, or "" if there is none
}

// MembersOf returns all members of a team.
func (t Tx) MembersOf(ctx context.Context, team resource.UID) ([]TeamMember, error) {
	return store.ReadAll(ctx, t.Rows, scanMember,
		`SELECT m.member, m.identity FROM team_members AS m WHERE m.team = $1 ORDER BY m.member`, store.Segment(team))
}

// MembersAmong returns the given members that a team has.
func (t Tx) MembersAmong(ctx context.Context, team resource.UID, members []string) ([]TeamMember, error) {
	if len(members) == 0 {
		return nil, nil
	}
	q := store.Query{Engine: t.DB.Engine}
	each := t.DB.Engine.Unnest(&q, members)
	return store.ReadAll(ctx, t.Rows, scanMember, `SELECT m.member, m.identity FROM `+each+` AS s
		CROSS JOIN team_members AS m WHERE m.team = `+q.Arg(store.Segment(team))+` AND m.member = s.v`, q.Args...)
}

func scanMember(row store.Scanner) (m TeamMember, err error) {
	return m, row.Scan(&m.Member, &m.Identity)
}

// IsTeam reports whether one of the ids belongs to a team of a provider.
func (t Tx) IsTeam(ctx context.Context, provider resource.UID, ids []string) (bool, error) {
	var segments []int64
	for _, id := range ids {
		if uid := provider + "/" + resource.UID(id); resource.WellFormed(string(uid)) {
			segments = append(segments, store.Segment(uid))
		}
	}
	if len(segments) == 0 {
		return false, nil
	}
	q := store.Query{Engine: t.DB.Engine}
	each := t.DB.Engine.Unnest(&q, segments)
	found, err := store.ReadColumn[int](ctx, t.Rows, `SELECT 1 FROM `+each+` AS s CROSS JOIN teams AS t
		WHERE t.seg = s.v AND t.provider = `+q.Arg(store.Segment(provider))+` LIMIT 1`, q.Args...)
	return len(found) > 0, err
}

// InsertTeam adds a team with its members. The provider must be held. It returns fault.AlreadyExists if the directory
// has a team with the name or the external id.
func (t Tx) InsertTeam(ctx context.Context, team resource.Team, members []TeamMember) error {
	attributes, err := json.Marshal(team.Attributes)
	if err != nil {
		return err
	}
	team.Members = int64(len(members))
	if _, err := t.Exec(ctx, `INSERT INTO teams (seg, provider, name, name_key, external_id, members, version, create_ms,
		update_ms, attributes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9)`,
		store.Segment(team.UID), store.Segment(team.Provider()), team.Name, strings.ToLower(team.Name), team.ExternalID,
		team.Members, team.Version, store.MS(team.CreateTime), string(attributes)); err != nil {
		return t.DB.ConstraintFault(err, "team", team.Name, team.Provider())
	}
	if err := t.addMembers(ctx, team.UID, members); err != nil {
		return err
	}
	if err := t.teamAffects(ctx, []resource.Team{team}, members); err != nil {
		return err
	}
	return t.Emit(ctx, resource.TeamCreated, team.UID, team.Provider().Parent(), nil, changeOf(team, members, nil))
}

// UpdateTeam changes a team that LockTeam has returned, and adds and removes members. It returns the error of
// InsertTeam. Its cost depends on the number of added and removed members, unless the names of the team change.
func (t Tx) UpdateTeam(ctx context.Context, before, after resource.Team, added, removed []TeamMember) error {
	attributes, err := json.Marshal(after.Attributes)
	if err != nil {
		return err
	}
	affected := append(append([]TeamMember{}, added...), removed...)
	if before.Name != after.Name || before.ExternalID != after.ExternalID { // other mappings may apply
		all, err := t.MembersOf(ctx, before.UID)
		if err != nil {
			return err
		}
		affected = append(affected, all...)
	}
	after.Members = before.Members + int64(len(added)) - int64(len(removed))
	if _, err := t.Exec(ctx, `UPDATE teams SET name = $2, name_key = $3, external_id = $4, members = $5, version = $6,
		update_ms = $7, attributes = $8 WHERE seg = $1`,
		store.Segment(after.UID), after.Name, strings.ToLower(after.Name), after.ExternalID, after.Members, after.Version,
		store.MS(after.UpdateTime), string(attributes)); err != nil {
		return t.DB.ConstraintFault(err, "team", after.Name, after.Provider())
	}
	if err := t.addMembers(ctx, after.UID, added); err != nil {
		return err
	}
	if err := t.removeMembers(ctx, after.UID, removed); err != nil {
		return err
	}
	if err := t.teamAffects(ctx, []resource.Team{before, after}, affected); err != nil {
		return err
	}
	return t.Emit(ctx, resource.TeamUpdated, after.UID, after.Provider().Parent(), resource.TeamChange{Team: before},
		changeOf(after, added, removed))
}

// DeleteTeam removes a team that LockTeam has returned.
func (t Tx) DeleteTeam(ctx context.Context, team resource.Team) error {
	members, err := t.MembersOf(ctx, team.UID)
	if err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `DELETE FROM teams WHERE seg = $1`, store.Segment(team.UID)); err != nil {
		return err
	}
	if err := t.teamAffects(ctx, []resource.Team{team}, members); err != nil {
		return err
	}
	return t.Emit(ctx, resource.TeamDeleted, team.UID, team.Provider().Parent(), changeOf(team, nil, members), nil)
}

func (t Tx) addMembers(ctx context.Context, team resource.UID, members []TeamMember) error {
	rows := make([][]any, len(members))
	for i, m := range members {
		rows[i] = []any{store.Segment(team), m.Member, string(m.Identity)}
	}
	return t.InsertRows(ctx, `INSERT INTO team_members (team, member, identity)`, rows, ``)
}

func (t Tx) removeMembers(ctx context.Context, team resource.UID, members []TeamMember) error {
	if len(members) == 0 {
		return nil
	}
	texts := make([]string, len(members))
	for i, m := range members {
		texts[i] = m.Member
	}
	q := store.Query{Engine: t.DB.Engine}
	seg := q.Arg(store.Segment(team))
	return t.Later(ctx, `DELETE FROM team_members WHERE team = `+seg+` AND member IN
		(SELECT s.v FROM `+t.DB.Engine.Unnest(&q, texts)+` AS s)`, q.Args...)
}

// changeOf returns the record of a change of a team's members.
func changeOf(team resource.Team, added, removed []TeamMember) resource.TeamChange {
	names := func(members []TeamMember) (texts []string) {
		for _, m := range members[:min(len(members), resource.TeamMembersShown)] {
			if m.Identity != "" {
				m.Member = string(m.Identity)
			}
			texts = append(texts, m.Member)
		}
		return texts
	}
	return resource.TeamChange{
		Team: team, AddedCount: len(added), RemovedCount: len(removed), Added: names(added), Removed: names(removed),
	}
}

// RelinkMember records the person of a directory's user in all teams of the user. before is the previous person, and
// either may be "". adopted is a text by which teams may have referred to the user before the user existed, or "": such
// members become the user.
func (t Tx) RelinkMember(
	ctx context.Context, provider resource.UID, member, adopted string, before, identity resource.UID,
) error {
	seg := store.Segment(provider)
	const ofProvider = ` AND team IN (SELECT p.seg FROM teams AS p WHERE p.provider = $2)`
	if adopted != "" && adopted != member {
		if _, err := t.Exec(ctx, `UPDATE team_members SET member = $3 WHERE member = $1`+ofProvider+` AND NOT EXISTS
			(SELECT 1 FROM team_members AS o WHERE o.team = team_members.team AND o.member = $3)`,
			adopted, seg, member); err != nil {
			return err
		}
	}
	n, err := t.Exec(ctx, `UPDATE team_members SET identity = $3 WHERE member = $1`+ofProvider+` AND identity <> $3`,
		member, seg, string(identity))
	if err != nil || n == 0 {
		return err
	}
	t.membersAffected(before, identity)
	return nil
}

// DropMember removes a user of a directory from all teams. identity is the person of the user, or "".
func (t Tx) DropMember(ctx context.Context, provider resource.UID, member string, identity resource.UID) error {
	const teams = ` IN (SELECT m.team FROM team_members AS m WHERE m.member = $1)`
	if _, err := t.Exec(ctx, `UPDATE teams SET members = members - 1, version = version + 1, update_ms = $2
		WHERE provider = $3 AND seg`+teams, member, store.MS(t.DB.Time()), store.Segment(provider)); err != nil {
		return err
	}
	n, err := t.Exec(ctx, `DELETE FROM team_members WHERE member = $1 AND team IN
		(SELECT p.seg FROM teams AS p WHERE p.provider = $2)`, member, store.Segment(provider))
	if err != nil || n == 0 {
		return err
	}
	t.membersAffected(identity)
	return nil
}

func (t Tx) membersAffected(identities ...resource.UID) {
	for _, i := range identities {
		if i != "" {
			t.IdentitiesChanged(i)
		}
	}
}
