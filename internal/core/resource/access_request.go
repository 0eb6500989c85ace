package resource

import "time"

// An AccessRule allows requests for a role on a group. The group is the parent of the rule.
type AccessRule struct {
	UID            UID           `json:"uid"`
	Role           UID           `json:"roleUid"`
	MaxDuration    time.Duration `json:"maxDuration"` // longest duration of a grant
	Approvers      int           `json:"approvers"`   // number of approvals needed; 0 if BreakGlass is set
	ReasonRequired bool          `json:"reasonRequired,omitempty"`
	BreakGlass     bool          `json:"breakGlass,omitempty"`   // the role can be taken without approval
	Requester      UID           `json:"requesterUid,omitempty"` // role that the requester must hold; "" means any role
	CreateTime     time.Time     `json:"createTime"`
	UpdateTime     time.Time     `json:"updateTime"`
}

// These are the limits for rules and requests.
const (
	MinAccess       = time.Minute
	MaxAccess       = 30 * 24 * time.Hour
	MaxAccessRules  = 100                // largest number per group
	MaxOpenRequests = 20                 // largest number per identity
	RequestWaits    = 7 * 24 * time.Hour // how long a request waits for approvals
)

// Validate reports every field that a caller must fix.
func (r AccessRule) Validate() error {
	var p Problems
	p.RequiredUID("role_uid", r.Role)
	p.accessLength("max_duration", r.MaxDuration)
	switch {
	case r.BreakGlass && r.Approvers != 0:
		p.Add("approvers", "must not be given together with break_glass")
	case !r.BreakGlass && (r.Approvers < 1 || r.Approvers > 2):
		p.Add("approvers", "must be 1 or 2")
	}
	return p.Err()
}

func (p *Problems) accessLength(field string, d time.Duration) {
	switch {
	case d < MinAccess || d > MaxAccess:
		p.Add(field, "must be between one minute and 30 days")
	case d%time.Second != 0:
		p.Add(field, "must be whole seconds")
	}
}

// An AccessRequest is a request for a role on a group for a limited time. The group is its parent.
type AccessRequest struct {
	UID        UID              `json:"uid"`
	Rule       UID              `json:"ruleUid"`
	Role       UID              `json:"roleUid"`
	Identity   UID              `json:"identityUid"`
	Via        []UID            `json:"via,omitempty"` // identities through which the requester assumed its identity
	Duration   time.Duration    `json:"duration"`
	Reason     string           `json:"reason,omitempty"`
	BreakGlass bool             `json:"breakGlass,omitempty"`
	State      AccessState      `json:"state"`
	Approvers  int              `json:"approvers"` // number of approvals needed
	Approvals  []AccessApproval `json:"approvals,omitempty"`
	Closer     UID              `json:"closerUid,omitempty"` // identity that denied the request or returned the role
	CloseTime  time.Time        `json:"closeTime,omitzero"`
	Binding    UID              `json:"bindingUid,omitempty"` // the binding that grants the role
	GrantTime  time.Time        `json:"grantTime,omitzero"`
	ExpireTime time.Time        `json:"expireTime,omitzero"` // end of the grant
	CreateTime time.Time        `json:"createTime"`
	UpdateTime time.Time        `json:"updateTime"`
}

// An AccessApproval is one identity's approval of a request.
type AccessApproval struct {
	Identity UID       `json:"identityUid"`
	Time     time.Time `json:"time"`
}

// An AccessState is the state of a request. AccessLapsed and AccessOver are never
// stored, because they follow from the time.
type AccessState int

// These are the states of a request.
const (
	AccessPending AccessState = iota + 1
	AccessGranted
	AccessDenied
	AccessHandedBack
	AccessClosed // the group of the request was deleted
	AccessLapsed
	AccessOver
)

// Group returns the UID of the group on which the role is asked for.
func (r AccessRequest) Group() UID { return r.UID.Parent() }

// StateAt returns the state of the request at a time.
func (r AccessRequest) StateAt(now time.Time) AccessState {
	switch {
	case r.State == AccessPending && !now.Before(r.CreateTime.Add(RequestWaits)):
		return AccessLapsed
	case r.State == AccessGranted && !now.Before(r.ExpireTime):
		return AccessOver
	}
	return r.State
}

// Validate reports every field that a caller must fix.
func (r AccessRequest) Validate() error {
	var p Problems
	p.RequiredUID("role_uid", r.Role)
	p.accessLength("duration", r.Duration)
	p.LongText("reason", r.Reason, MaxReason)
	return p.Err()
}
