package resource

import "time"

// A Group is a folder of the hierarchy. A root group is an organization.
type Group struct {
	UID         UID       `json:"uid"`
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	Verified    bool      `json:"verified,omitempty"`
	Kind        OrgKind   `json:"kind,omitempty"` // the organization's, in every group of it
	CreateTime  time.Time `json:"createTime"`
	UpdateTime  time.Time `json:"updateTime"`
}

// An OrgKind says what an organization is for. Its numbers are the wire's.
type OrgKind int32

// The kinds of organization this service gives out by itself.
const (
	OrgUnspecified OrgKind = 0
	OrgDev         OrgKind = 3

	orgKinds = 6 // numbers 0 to 5
)

// Validate reports every field a caller must fix.
func (g Group) Validate() error {
	var p problems
	p.name(g.Name)
	p.description(g.Description)
	if g.Kind < 0 || g.Kind >= orgKinds {
		p.add("kind", "is not a kind of organization")
	}
	return p.err()
}
