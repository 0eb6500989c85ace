package resource

import "time"

// A Group is a folder in the hierarchy. A root group is an organization.
type Group struct {
	UID         UID       `json:"uid"`
	Name        string    `json:"name"`
	DisplayName string    `json:"displayName,omitempty"` // the name as a person typed it; "" if it equals the name
	Description string    `json:"description,omitempty"`
	Verified    bool      `json:"verified,omitempty"`
	Kind        OrgKind   `json:"kind,omitempty"` // kind of the organization, the same in all its groups
	CreateTime  time.Time `json:"createTime"`
	UpdateTime  time.Time `json:"updateTime"`
}

// An OrgKind is the kind of an organization. Its values are the same as in the API.
type OrgKind int32

// These are the kinds of organizations that this service itself assigns.
const (
	OrgUnspecified OrgKind = 0
	OrgDev         OrgKind = 3

	maxOrgKind = 5
)

// Validate reports every field that a caller must fix.
func (g Group) Validate() error {
	var p Problems
	p.PathName(g.Name)
	p.displayName(g.DisplayName)
	p.Description(g.Description)
	Within(&p, "kind", g.Kind, 0, maxOrgKind, "is not a kind of organization")
	return p.Err()
}
