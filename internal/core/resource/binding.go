package resource

import "time"

// A RoleBinding gives an identity a role on a group and everything below it. The group is the
// parent of the binding.
type RoleBinding struct {
	UID        UID       `json:"uid"`
	Identity   UID       `json:"identityUid"`
	Role       UID       `json:"roleUid"`
	CreateTime time.Time `json:"createTime"`

	// The binding is valid from StartTime until ExpireTime, both in whole seconds. Zero means no limit.
	StartTime  time.Time `json:"startTime,omitzero"`
	ExpireTime time.Time `json:"expireTime,omitzero"`
	Reason     string    `json:"reason,omitempty"`
	EndTime    time.Time `json:"endTime,omitzero"` // when the service recorded that the binding has expired
}

// Group returns the UID of the binding's group.
func (b RoleBinding) Group() UID { return b.UID.Parent() }

// Timed reports whether the binding has a start or an end.
func (b RoleBinding) Timed() bool { return !b.StartTime.IsZero() || !b.ExpireTime.IsZero() }

// State returns the state of the binding at a time.
func (b RoleBinding) State(now time.Time) BindingState {
	switch {
	case !b.EndTime.IsZero(), !b.ExpireTime.IsZero() && !now.Before(b.ExpireTime):
		return BindingOver
	case now.Before(b.StartTime):
		return BindingUpcoming
	}
	return BindingActive
}

// A BindingState says whether a binding is valid.
type BindingState int

// These are the states of a binding. An ended binding cannot be extended.
const (
	BindingActive BindingState = iota + 1
	BindingUpcoming
	BindingOver
)

// These are the limits for the times and the reason of a binding.
const (
	MaxBindingAhead = 10 * 365 * 24 * time.Hour
	MaxReason       = 1000
)

// WholeSeconds returns the binding with its start rounded up to whole seconds, and its end rounded down.
func (b RoleBinding) WholeSeconds() RoleBinding {
	if up := b.StartTime.Truncate(time.Second); up.Before(b.StartTime) {
		b.StartTime = up.Add(time.Second)
	}
	b.ExpireTime = b.ExpireTime.Truncate(time.Second)
	return b
}

// ValidateTimes reports every mistake in the times and the reason of a binding. before is
// the stored binding, or the zero value for a new one. prefix is put before the names of
// fields.
func (b RoleBinding) ValidateTimes(before RoleBinding, now time.Time, prefix string) error {
	var p Problems
	if !b.StartTime.Equal(before.StartTime) {
		p.moment(prefix+"start_time", b.StartTime, now)
	}
	if !b.ExpireTime.Equal(before.ExpireTime) {
		p.moment(prefix+"expire_time", b.ExpireTime, now)
	}
	if !b.StartTime.IsZero() && !b.ExpireTime.IsZero() && !b.StartTime.Before(b.ExpireTime) {
		p.Add(prefix+"expire_time", "must be after start_time")
	}
	p.LongText(prefix+"reason", b.Reason, MaxReason)
	return p.Err()
}

// moment checks an optional time in a field.
func (p *Problems) moment(field string, t, now time.Time) {
	switch {
	case t.IsZero():
	case !t.After(now):
		p.Add(field, "must be in the future")
	case t.After(now.Add(MaxBindingAhead)):
		p.Add(field, "must be at most ten years ahead")
	}
}

// A BoundRole is a binding with its identity, group and role. If the identity is a person who
// has not signed in yet, only its UID is set.
type BoundRole struct {
	RoleBinding
	IdentityInfo IdentityInfo
	GroupInfo    Info
	RoleInfo     Info
	Team         *TeamRole // the team that gives the role; then there is no binding with the UID. Nil for a binding
	// when the binding was read, by the clock that decides whether it is valid; zero if not needed
	Now time.Time
	// whether a directory has deactivated the identity, so that the role has no effect now; not for times in the past
	Deactivated bool
}

// Info describes a resource that is referred to.
type Info struct {
	UID         UID
	Name        string
	DisplayName string // only for groups and identities
	Description string
}

// IdentityInfo describes an identity that is referred to.
type IdentityInfo struct {
	Info
	Issuer, Subject, Email string
	Member                 bool // the person joined the binding's organization without being added by somebody else
}

// MaxBatch is the largest number of bindings that one request can create.
const MaxBatch = 25

// A HeldRole is a binding as it is shown to the person who has it: with the
// capabilities of the role, and the origin of the binding.
type HeldRole struct {
	RoleBinding
	RoleInfo     Info
	Capabilities Capabilities
	Joined       bool   // the person joined the binding's organization without being added by somebody else
	ByInvite     bool   // the binding was created when the person redeemed an invite
	Provider     string // name of the provider that the binding was created for, or ""
	Mapped       bool   // the binding was created because of the person's group at the provider
	// ExternalGroup is the group at the provider if Mapped is true. It is "" if several
	// groups give the role, because the groups of the person are not recorded.
	ExternalGroup string
}

// HeldRolesShown is the largest number of roles in the list that a person sees of their own roles.
const HeldRolesShown = 100
