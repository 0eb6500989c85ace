package resource

import "time"

// An ExternalGroupRoleMapping gives a role to the members of a group at an identity provider.
// The provider is its parent. A mapping cannot be changed.
type ExternalGroupRoleMapping struct {
	UID           UID       `json:"uid"`
	ExternalGroup string    `json:"externalGroupId"`
	Role          UID       `json:"roleUid"`
	Scope         UID       `json:"scope"` // the group on which the role is given: the organization
	CreateTime    time.Time `json:"createTime"`
}

// Provider returns the UID of the mapping's provider.
func (m ExternalGroupRoleMapping) Provider() UID { return m.UID.Parent() }

// MaxBatchDelete is the largest number of mappings that one request can delete.
const MaxBatchDelete = 100

// Validate reports every field that a caller must fix.
func (m ExternalGroupRoleMapping) Validate() error {
	var p Problems
	p.Text("external_group_id", m.ExternalGroup)
	p.Required("external_group_id", m.ExternalGroup)
	p.RequiredUID("role_uid", m.Role)
	p.UID("scope", m.Scope)
	if m.UID != "" && m.Scope != m.UID.Root() {
		p.Add("scope", "must be the organization "+string(m.UID.Root()))
	}
	return p.Err()
}
