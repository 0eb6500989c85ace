package resource

import "time"

// MaxIDs is the largest number of UIDs in a filter.
const MaxIDs = 1000

// A UIDFilter selects resources by their UIDs. A resource must match all fields that are set.
type UIDFilter struct {
	AncestorsOf   UID   `json:"ancestorsOf,omitempty"`
	DescendantsOf UID   `json:"descendantsOf,omitempty"`
	ChildrenOf    UID   `json:"childrenOf,omitempty"`
	InRoot        bool  `json:"inRoot,omitempty"` // only resources without a parent
	IDs           []UID `json:"ids,omitempty"`
}

// Validate reports every field that a caller must fix.
func (f UIDFilter) Validate() error {
	var p Problems
	p.UID("uidp.ancestors_of", f.AncestorsOf)
	p.UID("uidp.descendants_of", f.DescendantsOf)
	p.UID("uidp.children_of", f.ChildrenOf)
	for _, id := range f.IDs {
		p.UID("uidp.ids", id)
	}
	p.AtMost("uidp.ids", len(f.IDs), MaxIDs, "uids")
	return p.Err()
}

// A Filter selects the resources in a list. Each kind uses the fields that apply to it.
type Filter struct {
	UIDs         UIDFilter        `json:"place,omitzero"`
	Name         string           `json:"name,omitempty"`
	Relationship RelationshipType `json:"relationship,omitempty"` // for identities
	Identity     UID              `json:"identity,omitempty"`     // for bindings and pulls
	Role         UID              `json:"role,omitempty"`         // for bindings
	Group        UID              `json:"group,omitempty"`        // for bindings; for mappings it is the provider
	KeyID        string           `json:"keyId,omitempty"`        // for invites
	Digest       string           `json:"digest,omitempty"`       // for tags and pulls
	UpdatedSince time.Time        `json:"updatedSince,omitzero"`  // for tags
	Classes      []TagClass       `json:"classes,omitempty"`      // for tags, in addition to plain tags
	Direction    Direction        `json:"direction,omitempty"`    // for pulls
	Deprecated   bool             `json:"deprecated,omitempty"`   // only deprecated tags
}

// Validate reports every field that a caller must fix.
func (f Filter) Validate() error {
	if err := f.UIDs.Validate(); err != nil {
		return err
	}
	var p Problems
	p.UID("identity", f.Identity)
	p.UID("role", f.Role)
	p.UID("group", f.Group)
	Within(&p, "relationship_type", f.Relationship, RelationshipNone, RelationshipServicePrincipal,
		"is not a type of relationship")
	Within(&p, "direction", f.Direction, AnyDirection, Pushed, "is not a direction")
	p.Text("name", f.Name)
	p.Text("key_id", f.KeyID)
	if f.Digest != "" {
		p.Matches("digest", f.Digest, DigestPattern)
	}
	return p.Err()
}

// A Direction selects pulls or pushes. Its values are the same as in the API.
type Direction int32

// These are the directions.
const (
	AnyDirection Direction = iota
	Pulled
	Pushed
)
