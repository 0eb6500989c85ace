package resource

import "time"

// A Role is a named set of capabilities. A managed role belongs to the service: its UID
// has no parent, and it cannot be changed.
type Role struct {
	UID          UID          `json:"uid"`
	Name         string       `json:"name"`
	Description  string       `json:"description,omitempty"`
	Capabilities Capabilities `json:"capabilities"`
	CreateTime   time.Time    `json:"createTime"`
	UpdateTime   time.Time    `json:"updateTime"`
}

// Validate reports every field that a caller must fix.
func (r Role) Validate() error {
	var p Problems
	p.Name(r.Name)
	p.Description(r.Description)
	switch {
	case r.Capabilities == Capabilities{}:
		p.Add("capabilities", "a role needs at least one capability")
	case r.Capabilities.Intersects(internalOnly) && !r.Capabilities.Has(Internal):
		p.Add("capabilities", "internal-only capabilities need the internal capability beside them")
	}
	return p.Err()
}

// ManagedRoleUID returns the UID of the managed role with that name.
func ManagedRoleUID(name string) UID { return DerivedUID("role", name) }

// OwnerRole is the managed role that at least one identity in an organization must always
// have.
var OwnerRole = ManagedRoleUID("owner")
