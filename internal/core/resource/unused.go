package resource

import "time"

// An UnusedKind is what may be unused. Its values are those of the API.
type UnusedKind int32

// The kinds of what may be unused.
const (
	UnusedBindings UnusedKind = iota + 1
	UnusedIdentities
	UnusedInvites
	UnusedAssociations
)

// An UnusedReport says what of the access in a group and below it is not used.
type UnusedReport struct {
	Group         UID           `json:"group"`
	Since         time.Duration `json:"since"`         // for which it was not used
	RecordedSince time.Time     `json:"recordedSince"` // since when the use of role bindings is recorded
	Totals        []UnusedTotal `json:"totals"`
	First         []UnusedItem  `json:"first,omitempty"` // of all kinds
}

// An UnusedTotal is how much of a kind is unused.
type UnusedTotal struct {
	Kind       UnusedKind `json:"kind"`
	Looked     int64      `json:"looked"`               // at so many
	Unused     int64      `json:"unused"`               // of which so many were not used, or not entirely
	Incomplete bool       `json:"incomplete,omitempty"` // there are more, which were not looked at
}

// An UnusedItem is something that is unused. It names nobody.
type UnusedItem struct {
	Kind         UnusedKind `json:"kind"`
	UID          UID        `json:"uid"`
	CreateTime   time.Time  `json:"createTime"`
	LastUse      time.Time  `json:"lastUse,omitzero"`
	Capabilities int        `json:"capabilities,omitempty"` // of a role binding: how many were not used
	PullToken    bool       `json:"pullToken,omitempty"`
}
