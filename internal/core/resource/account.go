package resource

import (
	"net/mail"
	"strings"
	"time"
	"unicode/utf8"
)

// An Account is a person who signs in at this service itself, and not with an identity
// provider. It belongs to an organization, and has one identity.
type Account struct {
	UID        UID       `json:"uid"`
	Email      string    `json:"email"` // the email address to sign in with: lower case, unique within the organization
	Name       string    `json:"name,omitempty"`
	Identity   UID       `json:"identityUid"`
	CreateTime time.Time `json:"createTime"`
	UpdateTime time.Time `json:"updateTime"`
	UseTime    time.Time `json:"-"` // time of the last sign-in; zero if there was none

	Password string `json:"-"` // hash of the password, with its parameters; "" if there is none
	TOTP     []byte `json:"-"` // the sealed secret of one-time passwords; empty if there is none
	TOTPStep int64  `json:"-"` // time step of the last one-time password that was used
	Link     Link   `json:"-"`

	PasswordAlone bool `json:"passwordAlone,omitempty"` // sign-in needs no passkey after the password

	Passkeys []Passkey `json:"-"`

	RecoveryCodes int `json:"-"` // number of unused recovery codes
}

// An AccountRecord is the outbox record of an account. It has no secrets.
type AccountRecord struct {
	Account
	HasPassword bool      `json:"hasPassword"`
	HasTOTP     bool      `json:"totp"`
	Keys        int       `json:"passkeys"` // number of passkeys
	LastUse     time.Time `json:"useTime,omitzero"`
}

// Record returns the outbox record of an account that has that many passkeys.
func (a Account) Record(passkeys int) AccountRecord {
	return AccountRecord{a, a.Password != "", len(a.TOTP) > 0, passkeys, a.UseTime}
}

// A Link is a one-time link to set the password of an account.
type Link struct {
	Digest  []byte
	Expires time.Time
	Factors bool // using the link also removes passkeys and one-time passwords
	Maker   *Maker
}

// A Maker is the identity that created a one-time link, and the restriction of the token
// that it used. Links without a Maker were created by the operator.
type Maker struct {
	Identity UID `json:"identity"`
	Narrowing
}

// A Passkey is a WebAuthn credential of an account.
type Passkey struct {
	ID         []byte
	Name       string
	Detail     []byte // the credential in JSON
	CreateTime time.Time
	UsedTime   time.Time // time of the last use; the creation time if it was never used
}

// These are the limits for accounts.
const (
	MaxPasskeys = 20
	maxEmail    = 254
	maxPerson   = 128
)

// NormalEmail returns an email address in the form that accounts store.
func NormalEmail(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// Validate reports every field that a caller must fix.
func (a Account) Validate() error {
	var p Problems
	parsed, err := mail.ParseAddress(a.Email)
	if err != nil || parsed.Address != a.Email || len(a.Email) > maxEmail || !Storable(a.Email) {
		p.Add("email", "is not an e-mail address")
	}
	if !Storable(a.Name) || utf8.RuneCountInString(a.Name) > maxPerson || strings.ContainsFunc(a.Name, IsHidden) {
		p.Add("name", "must have at most 128 characters without line breaks, tabs or hidden characters")
	}
	return p.Err()
}

// Local returns the claim match for the account's identity. issuer is the issuer of this
// service. The subject is not a UID, so that no token that this service issues matches it.
func (a Account) Local(issuer string) ClaimMatch {
	return ClaimMatch{Issuer: issuer, Subject: "account:" + string(a.UID)}
}

// PersonName returns a valid name for an identity, in lower case and without accents. It uses the first
// candidate that contains usable characters.
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
		}, unaccented(c))
		if name = strings.TrimSpace(name); name != "" {
			return name[:min(len(name), MaxPathName)]
		}
	}
	return "person"
}

// A SignIn is the request of a person who has authenticated.
type SignIn struct {
	Issuer, Subject string
	Realm           string  // namespace in which the subject is unique
	Voucher         Voucher // provider that authenticated the person; "" for an account of this service
	Trusted         bool    // the operator trusts the provider
	Identity        UID     // the identity, if it is already signed in and only redeems an invite; otherwise ""
	Name            string
	Email           string
	EmailVerified   bool
	UpdateRoles     bool     // whether to update the roles that the provider gives to new people and because of groups
	Groups          []string // the person's groups according to the provider
	Organization    UID      // organization of the account; "" if a provider authenticated the person
	Invite          *Presented
	Register        bool // whether to create the identity if there is none
}

// A Presented is an invite that a person redeems.
type Presented struct {
	UID    UID
	Digest []byte // digest of the secret in the invite's code
}

// A SignInResult is the result of a sign-in.
type SignInResult struct {
	Identity Identity
	New      bool // whether the identity was created
	Joined   UID  // the group that the person joined by the invite, or ""
	Kept     []UID
}

// A Join is an identity that has joined a group with an invite.
type Join struct {
	Invite, Group, Identity, Role UID
	Name, Email                   string
	Time                          time.Time
}

// JoinsListed is the largest number of joins that are listed for a group, newest first.
const JoinsListed = 200

// SignInRules are the rules of an organization for signing in.
type SignInRules struct {
	Organization UID  `json:"organization"`
	LocalOff     bool `json:"localOff"` // accounts cannot sign in, except owners that have no provider
}

// A Device is a program that asks to be signed in by a person who uses a browser on another device.
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
	Granted    []byte      `json:"-"` // the person, encrypted, once the person has allowed the request
}

// A DeviceState is the state of a device's request.
type DeviceState int64

// These are the states of a device's request.
const (
	DevicePending DeviceState = iota
	DeviceAllowed
	DeviceDenied
)
