package resource

import "time"

// A Session is a sign-in, which refresh tokens extend.
type Session struct {
	ID         string    `json:"id"`
	Identity   UID       `json:"identity"`
	Act        *Upstream `json:"act,omitempty"`      // the credential of the sign-in
	Email      string    `json:"email,omitempty"`    // verified by the provider
	Voucher    Voucher   `json:"voucher,omitempty"`  // of the provider, or ""
	Home       UID       `json:"home,omitempty"`     // the group of the provider or the account
	Narrowing  Narrowing `json:"narrowing,omitzero"` // of all its tokens
	Agent      string    `json:"agent"`              // the program that signed in
	Address    string    `json:"address"`            // of that program
	CreateTime time.Time `json:"createTime"`
	UsedTime   time.Time `json:"usedTime"`   // the last refresh, or the creation
	ExpireTime time.Time `json:"expireTime"` // after which it cannot be refreshed
	Browser    bool      `json:"browser"`    // it belongs to a browser, which has a cookie
}

// A Narrowing restricts what a token may do, compared with its identity.
type Narrowing struct {
	Caps   *Capabilities `json:"caps,omitempty"`  // the allowed capabilities; nil means all
	Scopes []UID         `json:"scopes,omitzero"` // the allowed subtrees; nil means all
}

// IsZero reports whether nothing is restricted.
func (n Narrowing) IsZero() bool { return n.Caps == nil && n.Scopes == nil }

// An EndReason is why a session has ended. Its values are those of the API.
type EndReason int32

// The reasons why sessions end.
const (
	EndUnspecified   EndReason = iota
	EndRequest                 // the actor has ended it
	EndReplay                  // a refresh token was used twice
	EndPasswordReset           // a one-time link was used
	EndIdentityDeleted
	EndProviderChanged // the epoch of its provider has ended
)

// An EndedSession is a session that has ended before it expired, as it is stored in the outbox.
type EndedSession struct {
	Session
	Reason EndReason `json:"reason"`
}

// SessionSubject returns the subject of a revocation of a session. Other subjects are the UIDs of identities.
func SessionSubject(id string) UID { return UID("session:" + id) }

// SigningKeysSubject is the subject that is published when the issuer's own keys have changed.
const SigningKeysSubject = UID("signing-keys")

// A Denial is an exchange that was refused.
type Denial struct {
	Identity  UID       `json:"-"`
	Time      time.Time `json:"-"`
	RequestID string    `json:"-"`
	Message   string    `json:"message"`  // that the caller got
	Verified  bool      `json:"verified"` // the signature, and so the claims
	Checks    []Check   `json:"checks"`
	Remote    string    `json:"remote"`
}

// An Exchange is one that succeeded: for which credential an identity got a token.
type Exchange struct {
	Identity  UID       `json:"-"`
	Time      time.Time `json:"-"`
	RequestID string    `json:"-"`
	Issuer    string    `json:"issuer"`   // of the credential; "" if its keys are the identity's own
	Subject   string    `json:"subject"`  // of the credential
	Audience  []string  `json:"audience"` // that the token is for
	Remote    string    `json:"remote"`
	Count     int       `json:"count"` // how many there were in that second, of which this is the last
}

// ExchangesKept is how many exchanges of an identity are stored, and how many denials;
// ExchangeMemory is for how long.
const (
	ExchangesKept  = 20
	ExchangeMemory = 30 * 24 * time.Hour
)

// An IssuerState is the result of the last check of an issuer.
type IssuerState struct {
	Issuer      string
	CheckTime   time.Time // zero before the first check
	SuccessTime time.Time // of the last check that found keys; zero if none did
	Problem     string    // of the last check; "" if it found keys
	Keys        []IssuerKey
}

// An IssuerKey describes a key of an issuer.
type IssuerKey struct {
	ID        string `json:"id"`
	Algorithm string `json:"algorithm"`
}
