package scim

import (
	"context"
	"errors"
	"net/http"
	"reflect"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/patch"
)

// maxTeamName is the greatest length of the name of a group in bytes. Mappings have the same limit.
const maxTeamName = 256

// setTeam replaces the attributes of a team by o, which has no members. Without externalId in o, its value stays.
func setTeam(team *resource.Team, o document.Object) error {
	n, err := readNames(o, namedBy{"displayName", maxTeamName, maxTeamName}, team.ExternalID)
	if err != nil {
		return err
	}
	team.Name, team.ExternalID, team.Attributes = n.name, n.externalID, n.attributes
	return nil
}

// takeMembers removes the attribute members from o. present reports whether o has it.
func takeMembers(o document.Object) (members []string, present bool, _ error) {
	key, v, present := document.Get(o, membersAttribute)
	if !present {
		return nil, false, nil
	}
	delete(o, key)
	members, err := readMembers(v)
	return members, true, err
}

// createGroup adds a team with the attributes o.
func (s *Service) createGroup(ctx context.Context, c client, o document.Object) (team resource.Team, _ error) {
	members, _, err := takeMembers(o)
	if err != nil {
		return team, err
	}
	team = resource.Team{UID: c.provider.UID.NewChild(), Version: 1, CreateTime: s.now()}
	team.UpdateTime = team.CreateTime
	if err := setTeam(&team, o); err != nil {
		return team, err
	}
	m := memberChange{cleared: true}
	m.put(members, true)
	err = s.changeAlone(ctx, c, func(t *change) error {
		added, _, err := t.difference(ctx, team.UID, m)
		if err != nil {
			return err
		}
		return t.iam.InsertTeam(ctx, team, added)
	})
	return team, takenTeam(err)
}

// takenTeam turns the error for a name that is in use into an error of the protocol.
func takenTeam(err error) error {
	if errors.Is(err, fault.AlreadyExists) {
		return &document.Error{Status: http.StatusConflict, Type: document.Uniqueness,
			Detail: "The directory has a group with this displayName or externalId."}
	}
	return err
}

// replaceGroup replaces the attributes of a team by o. Without members in o, the members stay, because a request that
// forgets them must not take access away.
func (s *Service) replaceGroup(
	ctx context.Context, c client, uid resource.UID, match matcher, o document.Object,
) (resource.Team, error) {
	members, present, err := takeMembers(o)
	if err != nil {
		return resource.Team{}, err
	}
	var m memberChange
	if present {
		m.clear()
		m.put(members, true)
	}
	return s.editGroup(ctx, c, uid, match, m, func(resource.Team) (document.Object, error) { return o, nil })
}

// patchGroup applies operations to a team.
func (s *Service) patchGroup(
	ctx context.Context, c client, uid resource.UID, match matcher, operations []patch.Operation,
) (resource.Team, error) {
	others, m, err := splitMembers(operations)
	if err != nil {
		return resource.Team{}, err
	}
	return s.editGroup(ctx, c, uid, match, m, func(team resource.Team) (document.Object, error) {
		o, err := patch.Apply(team.Attributes, others)
		if err != nil {
			return nil, err
		}
		delete(o, membersAttribute)
		if _, ok := o["externalId"]; !ok {
			o["externalId"] = ""
		}
		return o, nil
	})
}

// editGroup changes the members of a team, and replaces its attributes by what edit returns. It writes nothing if both
// stay the same.
func (s *Service) editGroup(
	ctx context.Context, c client, uid resource.UID, match matcher, m memberChange,
	edit func(resource.Team) (document.Object, error),
) (after resource.Team, _ error) {
	err := s.changeAlone(ctx, c, func(t *change) error {
		before, err := t.iam.LockTeam(ctx, uid)
		if err != nil {
			return err
		}
		if err := match.check(before.Version); err != nil {
			return err
		}
		o, err := edit(before)
		if err != nil {
			return err
		}
		after = before
		if err := setTeam(&after, o); err != nil {
			return err
		}
		added, removed, err := t.difference(ctx, uid, m)
		if err != nil {
			return err
		}
		if before.Members+int64(len(added))-int64(len(removed)) > resource.MaxTeamMembers {
			return document.Bad(document.TooMany, "A group can have at most %d members.", resource.MaxTeamMembers)
		}
		if len(added)+len(removed) == 0 && reflect.DeepEqual(before.Attributes, after.Attributes) {
			return nil
		}
		after.Version, after.UpdateTime = before.Version+1, s.now()
		if after.UpdateTime.Before(before.UpdateTime) {
			after.UpdateTime = before.UpdateTime
		}
		return t.iam.UpdateTeam(ctx, before, after, added, removed)
	})
	return after, takenTeam(err)
}

// deleteGroup removes a team, and the access that its members have through it.
func (s *Service) deleteGroup(ctx context.Context, c client, uid resource.UID, match matcher) error {
	return s.changeAlone(ctx, c, func(t *change) error {
		team, err := t.iam.LockTeam(ctx, uid)
		if err != nil {
			return err
		}
		if err := match.check(team.Version); err != nil {
			return err
		}
		return t.iam.DeleteTeam(ctx, team)
	})
}

// difference returns the members that a change adds to a team and removes from it. A member that the directory does not
// have gets no person.
func (t *change) difference(
	ctx context.Context, team resource.UID, m memberChange,
) (added, removed []iamdb.TeamMember, _ error) {
	if m.empty() {
		return nil, nil, nil
	}
	m, err := t.byUserID(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	current, err := t.currentMembers(ctx, team, m)
	if err != nil {
		return nil, nil, err
	}
	had := make(map[string]bool, len(current))
	for _, member := range current {
		had[member.Member] = true
		if in, named := m.set[member.Member]; named && !in || !named && m.cleared {
			removed = append(removed, member)
		}
	}
	var wanted []string
	for _, member := range m.named() {
		if m.set[member] && !had[member] {
			wanted = append(wanted, member)
		}
	}
	if nested, err := t.iam.IsTeam(ctx, t.provider.UID, wanted); err != nil || nested {
		if err == nil {
			err = errNested()
		}
		return nil, nil, err
	}
	people, err := t.users.IdentitiesOf(ctx, t.provider.UID, wanted)
	if err != nil {
		return nil, nil, err
	}
	for _, member := range wanted {
		added = append(added, iamdb.TeamMember{Member: member, Identity: people[member]})
	}
	return added, removed, nil
}

// byUserID returns a change in which users that are named by their externalId are named by their id.
func (t *change) byUserID(ctx context.Context, m memberChange) (memberChange, error) {
	var others []string
	for _, member := range m.named() {
		if !isUserID(member) {
			others = append(others, member)
		}
	}
	ids, err := t.users.IDsOf(ctx, t.provider.UID, others)
	for externalID, id := range ids {
		if _, named := m.set[id]; !named {
			m.set[id] = m.set[externalID]
		}
		if m.set[externalID] { // an old row with the external id can still be removed
			delete(m.set, externalID)
		}
	}
	return m, err
}

// currentMembers returns the members of a team that a change can concern.
func (t *change) currentMembers(
	ctx context.Context, team resource.UID, m memberChange,
) ([]iamdb.TeamMember, error) {
	if m.cleared {
		return t.iam.MembersOf(ctx, team)
	}
	return t.iam.MembersAmong(ctx, team, m.named())
}
