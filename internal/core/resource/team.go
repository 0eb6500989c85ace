package resource

import (
	"strconv"
	"time"
)

// A Team is a group of a company directory. Its parent is the provider of the directory.
type Team struct {
	UID        UID            `json:"uid"`
	Name       string         `json:"name"`                 // unique in the directory, whatever its capitals
	ExternalID string         `json:"externalId,omitempty"` // unique in the directory unless ""
	Members    int64          `json:"members"`
	Version    int64          `json:"version"` // increases with every change
	CreateTime time.Time      `json:"createTime"`
	UpdateTime time.Time      `json:"updateTime"`
	Attributes map[string]any `json:"-"` // all attributes except the members
}

// Provider returns the provider of the directory.
func (t Team) Provider() UID { return t.UID.Parent() }

// ID returns the id of the team in its directory.
func (t Team) ID() string { return string(t.UID[len(t.UID)-segmentDigits:]) }

// ETag returns a text that changes with every change of the team.
func (t Team) ETag() string { return strconv.FormatInt(t.Version, 36) }

// MaxTeamMembers is the greatest number of members of a team.
const MaxTeamMembers = 50_000

// TeamMembersShown is the greatest number of members that an event about a change names.
const TeamMembersShown = 100

// A TeamChange is the record of a change of a team. Added and Removed name up to TeamMembersShown members by their
// UIDs, or by the id in the directory if they are nobody's.
type TeamChange struct {
	Team
	AddedCount   int      `json:"addedCount,omitempty"`
	RemovedCount int      `json:"removedCount,omitempty"`
	Added        []string `json:"added,omitempty"`
	Removed      []string `json:"removed,omitempty"`
}

// A TeamRole says through which team an identity holds a role.
type TeamRole struct {
	Team, Provider         UID
	TeamName, ProviderName string
	Mapping                UID
}

// A MappedRole is a role that a mapping gives to a person.
type MappedRole struct {
	Identity             UID
	Name                 string // the identity's name
	Group, Role          UID
	GroupName, RoleTitle string
}
