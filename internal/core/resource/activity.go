package resource

import "time"

// An Activity is the record of a sign-in, of a change to the sign-in methods of a person,
// or of a refusal, in the form that the outbox stores. It contains no secrets, and no text
// that a stranger typed, because people type passwords into the field for their name.
type Activity struct {
	Identity UID    `json:"identity,omitempty"`
	Account  UID    `json:"account,omitempty"`  // set if this service has the account
	Method   string `json:"method,omitempty"`   // method of the sign-in, or of the attempt
	Factor   string `json:"factor,omitempty"`   // second factor
	Provider UID    `json:"provider,omitempty"` // provider that authenticated the person
	Purpose  string `json:"purpose,omitempty"`  // kind of program that gets a token of the person
	Program  string `json:"program,omitempty"`  // name of the program, or of a passkey
	Agent    string `json:"agent,omitempty"`
	Address  string `json:"address,omitempty"`
	Session  string `json:"session,omitempty"`

	Reason     string    `json:"reason,omitempty"`     // reason of a refusal
	Capability string    `json:"capability,omitempty"` // the missing capability
	Count      int64     `json:"count,omitempty"`      // number of refusals in this record
	First      time.Time `json:"first,omitzero"`       // time of the first of them
	Last       time.Time `json:"last,omitzero"`
}

// The methods of a sign-in, and its second factors.
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

// The reasons of a refusal. They are for readers of the audit log. The error that the
// refused person gets has fewer details.
const (
	RefusedPassword = "wrong_password"
	RefusedCode     = "wrong_code"
	RefusedPasskey  = "wrong_passkey"
	RefusedUnknown  = "unknown_account" // the account or the credential does not exist
	RefusedLimit    = "too_many_tries"  // the credential was not checked
	RefusedProvider = "provider_failed"
	RefusedAdmit    = "not_admitted" // the person is authenticated, but not admitted
	RefusedToken    = "wrong_token"
	RefusedAccess   = "capability_missing"
	RefusedRule     = "rule"    // a rule about findings refuses pulls of the image
	RefusedSeveral  = "several" // various accounts, reasons and networks
)
