package resource

import (
	"net/mail"
	"time"
)

// A GroupInvite lets a person who has its code join a group with a role.
type GroupInvite struct {
	UID            UID       `json:"uid"`
	Role           UID       `json:"roleUid"`
	Email          string    `json:"email,omitempty"` // if set, only a person with this address may redeem the invite
	ExpirationTime time.Time `json:"expirationTime"`
	SingleUse      bool      `json:"singleUse,omitempty"`
	KeyID          string    `json:"keyId"`
	CreateTime     time.Time `json:"createTime"`
	UpdateTime     time.Time `json:"updateTime,omitzero"` // time of the last change; before CreateTime if there was none

	// These are the times and the reason of the binding that the invite gives. ExpirationTime is
	// different: until then the code can be redeemed.
	StartTime  time.Time `json:"startTime,omitzero"`
	ExpireTime time.Time `json:"expireTime,omitzero"`
	Reason     string    `json:"reason,omitempty"`

	Digest   []byte `json:"-"` // digest of the code
	Code     string `json:"-"` // known only when the invite is created
	RoleInfo Role   `json:"-"`

	TTL *time.Duration `json:"-"` // in a change: the new lifetime, counted from now
}

// Binding returns the binding for an identity that redeems the invite. It keeps an expiry
// that has passed.
func (i GroupInvite) Binding(uid, identity UID, created time.Time) RoleBinding {
	return RoleBinding{
		UID: uid, Identity: identity, Role: i.Role, CreateTime: created,
		StartTime: i.StartTime, ExpireTime: i.ExpireTime, Reason: i.Reason,
	}.WholeSeconds()
}

// These are the limits for the lifetime of an invite.
const (
	MinInvite = time.Minute
	MaxInvite = 30 * 24 * time.Hour
)

// Validate reports every field that a caller must fix, including the lifetime ttl.
func (i GroupInvite) Validate(ttl time.Duration) error {
	p := i.promise()
	p.lifetime("ttl", ttl)
	return p.Err()
}

// ValidateChange reports every field that a caller must fix in a change to an invite whose
// expiry was before.
func (i GroupInvite) ValidateChange(before, now time.Time) error {
	p := i.promise()
	moved := !i.ExpirationTime.Equal(before)
	switch {
	case i.TTL != nil && moved && !i.ExpirationTime.IsZero():
		p.Add("ttl", "cannot be changed together with expiration_time")
	case i.TTL != nil:
		p.lifetime("ttl", *i.TTL)
	case moved:
		p.lifetime("expiration_time", i.ExpirationTime.Sub(now))
	}
	return p.Err()
}

func (p *Problems) lifetime(field string, ttl time.Duration) {
	if ttl < MinInvite || ttl > MaxInvite {
		p.Add(field, "must be between one minute and 30 days")
	}
}

// promise checks the fields that decide who gets which role.
func (i GroupInvite) promise() (p Problems) {
	p.RequiredUID("role_uid", i.Role)
	p.Text("email", i.Email)
	if a, err := mail.ParseAddress(i.Email); i.Email != "" && (err != nil || a.Address != i.Email) {
		p.Add("email", "is not an e-mail address")
	}
	return p
}
