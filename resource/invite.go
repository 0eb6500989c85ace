package resource

import (
	"net/mail"
	"time"
)

// A GroupInvite lets whoever has its code join a group with a role.
type GroupInvite struct {
	UID            UID       `json:"uid"`
	Role           UID       `json:"roleUid"`
	Email          string    `json:"email,omitempty"` // only this address may redeem it, if set
	ExpirationTime time.Time `json:"expirationTime"`
	SingleUse      bool      `json:"singleUse,omitempty"`
	KeyID          string    `json:"keyId"`
	CreateTime     time.Time `json:"createTime"`

	Digest   []byte `json:"-"` // of the code
	Code     string `json:"-"` // only known when it is created
	RoleInfo Role   `json:"-"`
}

// The limits of the lifetime of an invite.
const (
	MinInvite = time.Minute
	MaxInvite = 30 * 24 * time.Hour
)

// Validate reports every field a caller must fix, including the lifetime ttl.
func (i GroupInvite) Validate(ttl time.Duration) error {
	var p problems
	p.requiredUID("role_uid", i.Role)
	p.text("email", i.Email)
	if a, err := mail.ParseAddress(i.Email); i.Email != "" && (err != nil || a.Address != i.Email) {
		p.add("email", "is not an e-mail address")
	}
	if ttl < MinInvite || ttl > MaxInvite {
		p.add("ttl", "must be between one minute and 30 days")
	}
	return p.err()
}
