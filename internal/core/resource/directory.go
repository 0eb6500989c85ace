package resource

import (
	"strconv"
	"time"
)

// A Directory manages the people of an identity provider with SCIM.
type Directory struct {
	Provider           UID       `json:"provider"`
	Enabled            bool      `json:"enabled,omitempty"`
	Version            int64     `json:"version"`
	Digest             []byte    `json:"-"` // digest of the token; nil without a token
	CreateTime         time.Time `json:"createTime,omitzero"`
	ExpireTime         time.Time `json:"expireTime,omitzero"` // expiry of the token; zero if it does not expire
	PreviousDigest     []byte    `json:"-"`                   // digest of the token before it; nil if there is none
	PreviousExpireTime time.Time `json:"previousExpireTime,omitzero"`
	RevokeTime         time.Time `json:"revokeTime,omitzero"` // when the tokens were revoked; zero if they were not
	UsedTime           time.Time `json:"-"`                   // time of the last request of the directory
	Users              int64     `json:"-"`
	Required           bool      `json:"required,omitempty"`    // only active users of the directory may sign in
	HoldPercent        int64     `json:"holdPercent,omitempty"` // see HoldMinimum
	HoldMinimum        int64     `json:"holdMinimum,omitempty"` // fewer losses of access in an hour are never held
	Held               int64     `json:"held,omitempty"`        // changes that wait for a decision

	// RolesFromTeams is set only in events: the current value is a field of the provider.
	RolesFromTeams bool `json:"rolesFromTeams,omitempty"`
}

// A CredentialState is the state of a directory's tokens. Its values are the same as in the API.
type CredentialState int32

// These are the states.
const (
	CredentialUnspecified CredentialState = iota
	CredentialNotIssued
	CredentialLive
	CredentialExpired
	CredentialRevoked
	CredentialRotating
)

// CredentialState returns the state of the tokens at the time now.
func (d Directory) CredentialState(now time.Time) CredentialState {
	switch {
	case d.Digest == nil && d.RevokeTime.IsZero():
		return CredentialNotIssued
	case d.Digest == nil:
		return CredentialRevoked
	case !d.ExpireTime.IsZero() && !now.Before(d.ExpireTime):
		return CredentialExpired
	case d.PreviousDigest != nil && now.Before(d.PreviousExpireTime):
		return CredentialRotating
	}
	return CredentialLive
}

// ETag returns a text that changes with every change of the directory's settings and tokens.
func (d Directory) ETag() string { return strconv.FormatInt(d.Version, 36) }

// A HeldKind says how a change of a directory would take away the access of a person. Its values are the same as in the
// API.
type HeldKind int32

// These are the kinds.
const (
	HeldUnspecified HeldKind = iota
	HeldDeactivation
	HeldDeletion
	HeldUnlinking // the user gets another externalId, or none
)

// A HeldChange is a change of a directory that would take away the access of a person, and that waits for a decision.
type HeldChange struct {
	ExternalID string
	Identity   UID
	Name       string // name of the person
	UserID     string // "" if the change would create the user
	Kind       HeldKind
	Time       time.Time
}
