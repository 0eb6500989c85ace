package resource

import "time"

// A Session is a sign-in that refresh tokens extend.
type Session struct {
	ID         string    `json:"id"`
	Identity   UID       `json:"identity"`
	Act        *Upstream `json:"act,omitempty"`      // the credential that was used to sign in
	Email      string    `json:"email,omitempty"`    // email address that the provider verified
	Voucher    Voucher   `json:"voucher,omitempty"`  // the voucher of the provider, or ""
	Home       UID       `json:"home,omitempty"`     // the group that has the provider or the account
	Narrowing  Narrowing `json:"narrowing,omitzero"` // restriction that applies to all tokens of the session
	Agent      string    `json:"agent"`              // the program that signed in
	Address    string    `json:"address"`            // network address of the program
	CreateTime time.Time `json:"createTime"`
	UsedTime   time.Time `json:"usedTime"`   // time of the last refresh, or of the creation
	ExpireTime time.Time `json:"expireTime"` // after this time it cannot be refreshed
	Browser    bool      `json:"browser"`    // whether it belongs to a browser, which has a cookie
}

// A Narrowing restricts a token to a part of what its identity may do.
type Narrowing struct {
	Caps   *Capabilities `json:"caps,omitempty"`  // the allowed capabilities; nil means all
	Scopes []UID         `json:"scopes,omitzero"` // the allowed subtrees; nil means all
}

// IsZero reports whether nothing is restricted.
func (n Narrowing) IsZero() bool { return n.Caps == nil && n.Scopes == nil }

// An EndReason is the reason for the end of a session. Its values are the same as in the
// API.
type EndReason int32

// These are the reasons why sessions end.
const (
	EndUnspecified   EndReason = iota
	EndRequest                 // the actor ended the session
	EndReplay                  // a refresh token was used twice
	EndPasswordReset           // a one-time link was used to reset the password
	EndIdentityDeleted
	EndProviderChanged // its provider has a new epoch: see IdentityProvider.Epoch
	EndDirectory       // the directory of its provider has deactivated the person
)

// An EndedSession is the outbox record of a session that ended before it expired.
type EndedSession struct {
	Session
	Reason EndReason `json:"reason"`
}

// SessionSubject returns the subject for the revocation of a session. Other subjects are the
// UIDs of identities.
func SessionSubject(id string) UID { return UID("session:" + id) }

// SigningKeysSubject is the subject that is published when the issuer's own keys have changed.
const SigningKeysSubject = UID("signing-keys")

// A Denial is a token exchange that was refused.
type Denial struct {
	Identity  UID       `json:"-"`
	Time      time.Time `json:"-"`
	RequestID string    `json:"-"`
	Message   string    `json:"message"`  // message that the caller received
	Verified  bool      `json:"verified"` // the signature and the claims are valid
	Checks    []Check   `json:"checks"`
	Remote    string    `json:"remote"`
}

// An Exchange is a successful exchange of a credential for a token that has the rights of an
// identity.
type Exchange struct {
	Identity  UID       `json:"-"`
	Time      time.Time `json:"-"`
	RequestID string    `json:"-"`
	Issuer    string    `json:"issuer"`   // issuer of the credential; "" if the identity has its own keys
	Subject   string    `json:"subject"`  // subject of the credential
	Audience  []string  `json:"audience"` // audience of the token
	Remote    string    `json:"remote"`
	Count     int       `json:"count"` // number of exchanges in that second; this is the last one
}

// ExchangesKept is the number of exchanges that are stored for an identity, and also
// the number of denials. ExchangeMemory is how long they are stored.
const (
	ExchangesKept  = 20
	ExchangeMemory = 30 * 24 * time.Hour
)

// An IssuerState is the result of the last check of an issuer.
type IssuerState struct {
	Issuer      string
	CheckTime   time.Time // zero before the first check
	SuccessTime time.Time // time of the last check that found keys; zero if none did
	Problem     string    // problem that the last check found; "" if it found keys
	Keys        []IssuerKey
}

// An IssuerKey describes a key that an issuer publishes.
type IssuerKey struct {
	ID        string `json:"id"`
	Algorithm string `json:"algorithm"`
}
