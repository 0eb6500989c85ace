package resource

import "time"

// A Session is one sign-in, which refresh tokens keep alive.
type Session struct {
	ID         string    `json:"id"`
	Identity   UID       `json:"identity"`
	Act        *Upstream `json:"act,omitempty"`      // the credential that was signed in with
	Email      string    `json:"email,omitempty"`    // as the provider verified it
	Voucher    Voucher   `json:"voucher,omitempty"`  // the provider that was signed in with, or ""
	Home       UID       `json:"home,omitempty"`     // the group that answers for it: of the provider or the account
	Narrowing  Narrowing `json:"narrowing,omitzero"` // of every token it gives
	Agent      string    `json:"agent"`              // the program that signed in
	Address    string    `json:"address"`            // and where from
	CreateTime time.Time `json:"createTime"`
	UsedTime   time.Time `json:"usedTime"`   // the last refresh, or the creation
	ExpireTime time.Time `json:"expireTime"` // after which it cannot be kept alive
	Browser    bool      `json:"browser"`    // it is a browser's, which keeps it alive with a cookie
}

// A Narrowing is how much less a token is good for than its identity is.
type Narrowing struct {
	Caps   *Capabilities `json:"caps,omitempty"`  // only these count; nil: not narrowed
	Scopes []UID         `json:"scopes,omitzero"` // only places these cover count; nil: not narrowed
}

// IsZero reports whether nothing is narrowed.
func (n Narrowing) IsZero() bool { return n.Caps == nil && n.Scopes == nil }

// An EndReason is why a session has ended. Its numbers are the wire's.
type EndReason int32

// The reasons there are.
const (
	EndUnspecified   EndReason = iota
	EndRequest                 // somebody asked for it: who, the actor tells
	EndReplay                  // a refresh token came a second time
	EndPasswordReset           // a one-time link was followed
	EndIdentityDeleted
	EndProviderChanged // what the provider believes that it was begun through
)

// An EndedSession is a session that was ended before its time, as the outbox
// keeps it.
type EndedSession struct {
	Session
	Reason EndReason `json:"reason"`
}

// SessionSubject is what a session is called among the subjects of revocations,
// beside the UIDs of identities.
func SessionSubject(id string) UID { return UID("session:" + id) }

// SigningKeysSubject is told to those who watch identities when the issuer's own
// keys have changed.
const SigningKeysSubject = UID("signing-keys")

// A Denial is an exchange that was refused.
type Denial struct {
	Identity  UID       `json:"-"`
	Time      time.Time `json:"-"`
	RequestID string    `json:"-"`
	Message   string    `json:"message"`  // what the caller was told
	Verified  bool      `json:"verified"` // the signature was good, so the claims are the issuer's
	Checks    []Check   `json:"checks"`
	Remote    string    `json:"remote"`
}

// DenialsKept is how many denials of an identity are kept, and DenialMemory for
// how long.
const (
	DenialsKept  = 20
	DenialMemory = 30 * 24 * time.Hour
)

// An IssuerState is how the last look at an issuer went.
type IssuerState struct {
	Issuer      string
	CheckTime   time.Time // zero before the first look
	SuccessTime time.Time // zero if its keys were never found
	Problem     string    // "" if they were found
	Keys        []IssuerKey
}

// An IssuerKey is a key of an issuer as it is listed.
type IssuerKey struct {
	ID        string `json:"id"`
	Algorithm string `json:"algorithm"`
}
