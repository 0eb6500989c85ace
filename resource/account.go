package resource

import (
	"net/mail"
	"strings"
	"time"
	"unicode/utf8"
)

// An Account is a person who signs in here and not with a provider. It is made
// in the organization that answers for it, and stands for one identity.
type Account struct {
	UID        UID       `json:"uid"`
	Email      string    `json:"email"` // what one signs in with: lower case, unique within the organization
	Name       string    `json:"name,omitempty"`
	Identity   UID       `json:"identityUid"`
	CreateTime time.Time `json:"createTime"`
	UpdateTime time.Time `json:"updateTime"`
	UseTime    time.Time `json:"-"` // the last sign-in; zero if there was none

	Password string    `json:"-"` // its hash, with how it was made; "" if there is none
	TOTP     []byte    `json:"-"` // the sealed secret of one-time passwords; empty if there is none
	TOTPStep int64     `json:"-"` // of the last one that was used
	Link     Link      `json:"-"`
	Passkeys []Passkey `json:"-"`

	RecoveryCodes int `json:"-"` // how many are left
}

// An AccountRecord is an account as the outbox keeps it: which ways in it has,
// and nothing that opens them.
type AccountRecord struct {
	Account
	HasPassword bool      `json:"hasPassword"`
	HasTOTP     bool      `json:"totp"`
	Keys        int       `json:"passkeys"` // how many
	LastUse     time.Time `json:"useTime,omitzero"`
}

// Record is what the outbox keeps of an account with so many passkeys.
func (a Account) Record(passkeys int) AccountRecord {
	return AccountRecord{a, a.Password != "", len(a.TOTP) > 0, passkeys, a.UseTime}
}

// A Link lets whoever follows it set the password of an account, once.
type Link struct {
	Digest  []byte
	Expires time.Time
	Factors bool // passkeys and one-time passwords end with it
	Maker   *Maker
}

// A Maker is who made a one-time link, and what their token was narrowed to. A
// link without one was made by the operator.
type Maker struct {
	Identity UID `json:"identity"`
	Narrowing
}

// A Passkey is a key of an account that never leaves a device.
type Passkey struct {
	ID         []byte
	Name       string
	Detail     []byte // what the protocol needs, in JSON
	CreateTime time.Time
	UsedTime   time.Time // or the creation
}

// How many passkeys an account may have, and what its e-mail address and names
// may be like.
const (
	MaxPasskeys = 20
	maxEmail    = 254
	maxPerson   = 128
)

// NormalEmail is an address as accounts have it.
func NormalEmail(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// Validate reports every field a caller must fix.
func (a Account) Validate() error {
	var p problems
	if parsed, err := mail.ParseAddress(a.Email); err != nil || parsed.Address != a.Email || len(a.Email) > maxEmail || !storable(a.Email) {
		p.add("email", "is not an e-mail address")
	}
	if !storable(a.Name) || utf8.RuneCountInString(a.Name) > maxPerson || strings.ContainsAny(a.Name, "\r\n\t") {
		p.add("name", "must have at most 128 characters without line breaks or tabs")
	}
	return p.err()
}

// Local is the person that the account of that uid is to an issuer, which is
// ours. It is no uid, so that no token of ours can be taken for it.
func (a Account) Local(issuer string) ClaimMatch {
	return ClaimMatch{Issuer: issuer, Subject: "account:" + string(a.UID)}
}

// PersonName makes the name of an identity of what a person is called.
func PersonName(candidates ...string) string {
	for _, c := range candidates {
		name := strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == ' ', r == '.', r == '_', r == '-':
				return r
			case r == '@', r == '+':
				return '.'
			}
			return -1
		}, strings.ToLower(c))
		if name = strings.TrimSpace(name); name != "" {
			return name[:min(len(name), maxName)]
		}
	}
	return "person"
}

// An Arrival is a person who has proved who they are.
type Arrival struct {
	Issuer, Subject string  // who says so, and what they call the person
	Realm           string  // where the subject is unique: who they are depends on it
	Voucher         Voucher // the provider that vouches for them; "" for an account of ours
	Trusted         bool    // and the operator trusts it
	Identity        UID     // of somebody who arrived earlier and only redeems an invite; "" otherwise
	Name            string
	Email           string
	EmailVerified   bool
	SignIn          bool     // they have signed in with the provider: what it gives to newcomers and groups is brought up to date
	Groups          []string // that the provider says they are in
	Organization    UID      // that answers for the account; "" with a provider
	Invite          *Presented
	Register        bool // make the identity if there is none
}

// UID returns who the person is, unless the realm knew them before it was
// renamed: the store may know them by another.
func (a Arrival) UID() UID {
	if a.Identity != "" {
		return a.Identity
	}
	return UserUID(a.Realm, a.Subject)
}

// A Presented is an invite somebody comes with.
type Presented struct {
	UID    UID
	Digest []byte // of the secret in its code
}

// A Landing is what became of an arrival.
type Landing struct {
	Identity Identity
	New      bool // the person was not known before
	Joined   UID  // the group that the invite led into, or ""
	Kept     []UID
}

// A Join is somebody who came into a group through an invite.
type Join struct {
	Invite, Group, Identity, Role UID
	Name, Email                   string
	Time                          time.Time
}

// JoinsListed is how many joins of a group are told, newest first.
const JoinsListed = 200

// SignInRules are what an organization has decided about signing in.
type SignInRules struct {
	Organization UID  `json:"organization"`
	LocalOff     bool `json:"localOff"` // its accounts cannot sign in here, but for an owner who has no other way
}

// A Device is a program that asks to be signed in by somebody at another
// device.
type Device struct {
	UserCode   string      `json:"-"`
	Client     string      `json:"client"`
	Agent      string      `json:"agent"`
	Address    string      `json:"address"`
	Audience   []string    `json:"audience"`
	Scopes     []string    `json:"scopes,omitempty"`
	CreateTime time.Time   `json:"createTime"`
	ExpireTime time.Time   `json:"-"`
	State      DeviceState `json:"-"`
	Granted    []byte      `json:"-"` // who it is, sealed, once somebody has allowed it
}

// A DeviceState is what has been decided about a device.
type DeviceState int64

// The states of a device.
const (
	DevicePending DeviceState = iota
	DeviceAllowed
	DeviceDenied
)
