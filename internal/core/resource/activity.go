package resource

import "time"

// An Activity is the record of a sign-in, of a change to a person's sign-in methods, or of
// a refusal, as the outbox stores it. It contains no secrets. It also contains no text
// that a stranger typed, because people type passwords into the field for their name.
type Activity struct {
	Identity UID    `json:"identity,omitempty"`
	Account  UID    `json:"account,omitempty"`  // set if this service has the account
	Method   string `json:"method,omitempty"`   // method of the sign-in, or of the attempt
	Factor   string `json:"factor,omitempty"`   // second factor
	Provider UID    `json:"provider,omitempty"` // provider that authenticated the person
	Purpose  string `json:"purpose,omitempty"`  // kind of program that gets a token for the person
	Program  string `json:"program,omitempty"`  // name of the program, or of a passkey
	Agent    string `json:"agent,omitempty"`
	Address  string `json:"address,omitempty"`
	Session  string `json:"session,omitempty"`

	Reason     string    `json:"reason,omitempty"`     // reason for a refusal
	Capability string    `json:"capability,omitempty"` // the missing capability
	Count      int64     `json:"count,omitempty"`      // number of refusals in this record
	First      time.Time `json:"first,omitzero"`       // time of the first refusal in this record
	Last       time.Time `json:"last,omitzero"`
}

// These are the methods of a sign-in, and its second factors.
const (
	ByPassword = "password"
	ByPasskey  = "passkey"
	ByProvider = "provider"
	ByLink     = "link" // a one-time link
	ByInvite   = "invite"
	BySetUp    = "setup"
	ByTOTP     = "totp"
	ByRecovery = "recovery"
	ByDevice   = "device" // the code that a device shows
)

// These are the reasons for a refusal. They are for readers of the audit log. The
// error that the refused person gets has fewer details.
const (
	RefusedPassword = "wrong_password"
	RefusedCode     = "wrong_code"
	RefusedPasskey  = "wrong_passkey"
	RefusedUnknown  = "unknown_account" // the account or the credential does not exist
	RefusedLimit    = "too_many_tries"  // too many attempts, so the credential was not checked
	RefusedProvider = "provider_failed"
	RefusedAdmit    = "not_admitted" // the person is authenticated, but not admitted
	RefusedToken    = "wrong_token"
	RefusedAccess   = "capability_missing"
	RefusedRule     = "rule"    // a rule about findings refuses pulls of the image
	RefusedSeveral  = "several" // refusals for various accounts, reasons and networks
)
