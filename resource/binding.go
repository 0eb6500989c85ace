package resource

import "time"

// A RoleBinding gives one identity one role in one group and all below it. The
// group is the binding's parent.
type RoleBinding struct {
	UID        UID       `json:"uid"`
	Identity   UID       `json:"identityUid"`
	Role       UID       `json:"roleUid"`
	CreateTime time.Time `json:"createTime"`
}

// Group is the UID of the group the binding is in.
func (b RoleBinding) Group() UID { return b.UID.Parent() }

// A BoundRole is a binding with what it ties together. The identity of a
// person who has not signed in yet has nothing but its UID.
type BoundRole struct {
	RoleBinding
	IdentityInfo IdentityInfo
	GroupInfo    Info
	RoleInfo     Info
}

// Info is what a reference shows of a resource.
type Info struct {
	UID         UID
	Name        string
	Description string
}

// IdentityInfo is what a reference shows of an identity.
type IdentityInfo struct {
	Info
	Issuer, Subject, Email string
	Member                 bool // the person is known to the binding's organization by an act of their own
}

// MaxBatch is how many bindings one call may create.
const MaxBatch = 25
