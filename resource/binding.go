package resource

import "time"

// A RoleBinding gives an identity a role on a group and everything below it. The group is the
// parent of the binding.
type RoleBinding struct {
	UID        UID       `json:"uid"`
	Identity   UID       `json:"identityUid"`
	Role       UID       `json:"roleUid"`
	CreateTime time.Time `json:"createTime"`
}

// Group returns the UID of the binding's group.
func (b RoleBinding) Group() UID { return b.UID.Parent() }

// A BoundRole is a binding with its identity, group and role. The identity of a person who has
// not signed in yet only has a UID.
type BoundRole struct {
	RoleBinding
	IdentityInfo IdentityInfo
	GroupInfo    Info
	RoleInfo     Info
}

// Info describes a resource that is referred to.
type Info struct {
	UID         UID
	Name        string
	DisplayName string // of groups and identities
	Description string
}

// IdentityInfo describes an identity that is referred to.
type IdentityInfo struct {
	Info
	Issuer, Subject, Email string
	Member                 bool // the person has joined the binding's organization themselves
}

// MaxBatch is how many bindings one call may create.
const MaxBatch = 25

// A HeldRole is a binding as its own person sees it: what the role allows, and where it comes
// from.
type HeldRole struct {
	RoleBinding
	RoleInfo     Info
	Capabilities Capabilities
	Joined       bool   // the person has joined the binding's organization themselves
	ByInvite     bool   // it was made for an invite that they have redeemed
	Provider     string // name of the provider that it was made for, or ""
	Mapped       bool   // it was made for a group that they have at the provider
	// ExternalGroup is that group at the provider. It is "" if several would give the role:
	// which of them the person is in is not recorded.
	ExternalGroup string
}

// HeldRolesShown is how many roles a person is shown of their own.
const HeldRolesShown = 100
