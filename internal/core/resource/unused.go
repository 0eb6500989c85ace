package resource

import "time"

// An UnusedKind is a kind of access that may be unused. Its values are the same as in the
// API.
type UnusedKind int32

// These are the kinds of access that may be unused.
const (
	UnusedBindings UnusedKind = iota + 1
	UnusedIdentities
	UnusedInvites
	UnusedAssociations
)

// An UnusedReport lists the unused access in a group and below it.
type UnusedReport struct {
	Group         UID           `json:"group"`
	Since         time.Duration `json:"since"`         // length of the period without use
	RecordedSince time.Time     `json:"recordedSince"` // time since which the use of role bindings is recorded
	Totals        []UnusedTotal `json:"totals"`
	First         []UnusedItem  `json:"first,omitempty"` // the first unused items, of any kind
}

// An UnusedTotal counts the unused access of one kind.
type UnusedTotal struct {
	Kind       UnusedKind `json:"kind"`
	Looked     int64      `json:"looked"`               // number of items that were examined
	Unused     int64      `json:"unused"`               // number of items that were not used, or not entirely
	Incomplete bool       `json:"incomplete,omitempty"` // there are more items, which were not examined
}

// An UnusedItem is one unused access. It does not name a person.
type UnusedItem struct {
	Kind         UnusedKind `json:"kind"`
	UID          UID        `json:"uid"`
	CreateTime   time.Time  `json:"createTime"`
	LastUse      time.Time  `json:"lastUse,omitzero"`
	Capabilities int        `json:"capabilities,omitempty"` // for a role binding: number of its unused capabilities
	PullToken    bool       `json:"pullToken,omitempty"`
}
