package resource

import "time"

// MaxIDs is how many UIDs a filter may have.
const MaxIDs = 1000

// A UIDFilter selects resources by their UIDs. All the fields that are set must match.
type UIDFilter struct {
	AncestorsOf   UID   `json:"ancestorsOf,omitempty"`
	DescendantsOf UID   `json:"descendantsOf,omitempty"`
	ChildrenOf    UID   `json:"childrenOf,omitempty"`
	InRoot        bool  `json:"inRoot,omitempty"` // without a parent
	IDs           []UID `json:"ids,omitempty"`
}

// Validate reports every field a caller must fix.
func (f UIDFilter) Validate() error {
	var p problems
	p.uid("uidp.ancestors_of", f.AncestorsOf)
	p.uid("uidp.descendants_of", f.DescendantsOf)
	p.uid("uidp.children_of", f.ChildrenOf)
	for _, id := range f.IDs {
		p.uid("uidp.ids", id)
	}
	p.atMost("uidp.ids", len(f.IDs), MaxIDs, "uids")
	return p.err()
}

// A Filter selects the resources of a list. Each kind uses the fields that apply to it.
type Filter struct {
	UIDs         UIDFilter        `json:"place,omitzero"`
	Name         string           `json:"name,omitempty"`
	Relationship RelationshipType `json:"relationship,omitempty"` // of identities
	Identity     UID              `json:"identity,omitempty"`     // of bindings and pulls
	Role         UID              `json:"role,omitempty"`         // of bindings
	Group        UID              `json:"group,omitempty"`        // of bindings; of mappings, the provider
	KeyID        string           `json:"keyId,omitempty"`        // of invites
	Digest       string           `json:"digest,omitempty"`       // of tags and pulls
	UpdatedSince time.Time        `json:"updatedSince,omitzero"`  // of tags
	Classes      []TagClass       `json:"classes,omitempty"`      // of tags, besides the plain ones
	Direction    Direction        `json:"direction,omitempty"`    // of pulls
	Deprecated   bool             `json:"deprecated,omitempty"`   // only deprecated tags
}

// Validate reports every field a caller must fix.
func (f Filter) Validate() error {
	if err := f.UIDs.Validate(); err != nil {
		return err
	}
	var p problems
	p.uid("identity", f.Identity)
	p.uid("role", f.Role)
	p.uid("group", f.Group)
	within(&p, "relationship_type", f.Relationship, RelationshipNone, RelationshipServicePrincipal,
		"is not a type of relationship")
	within(&p, "direction", f.Direction, AnyDirection, Pushed, "is not a direction")
	p.text("name", f.Name)
	p.text("key_id", f.KeyID)
	if f.Digest != "" {
		p.matches("digest", f.Digest, digestPattern)
	}
	return p.err()
}
