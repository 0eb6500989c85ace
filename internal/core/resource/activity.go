package resource

import "time"

// An Activity is something that happened to how a person signs in, or a refusal, as it is stored in the outbox. It has
// no secrets, and nothing that a stranger has typed: people type passwords where their name belongs.
type Activity struct {
	Identity UID    `json:"identity,omitempty"`
	Account  UID    `json:"account,omitempty"`  // if it is one of ours
	Method   string `json:"method,omitempty"`   // what the person has signed in with, or tried to
	Factor   string `json:"factor,omitempty"`   // what they have shown in addition
	Provider UID    `json:"provider,omitempty"` // that has vouched for them
	Purpose  string `json:"purpose,omitempty"`  // what kind of program is to act as them
	Program  string `json:"program,omitempty"`  // what it, or a passkey, is called
	Agent    string `json:"agent,omitempty"`
	Address  string `json:"address,omitempty"`
	Session  string `json:"session,omitempty"`

	Reason     string    `json:"reason,omitempty"`     // why something was refused
	Capability string    `json:"capability,omitempty"` // that was missing
	Count      int64     `json:"count,omitempty"`      // of refusals that this stands for
	First      time.Time `json:"first,omitzero"`       // when the first of them was
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

// The reasons of a refusal. They are for those who may read the audit log: the person who was refused is told less.
const (
	RefusedPassword = "wrong_password"
	RefusedCode     = "wrong_code"
	RefusedPasskey  = "wrong_passkey"
	RefusedUnknown  = "unknown_account" // there is no such account, or no such thing as was shown
	RefusedLimit    = "too_many_tries"  // whatever was shown, nobody has looked at it
	RefusedProvider = "provider_failed"
	RefusedAdmit    = "not_admitted" // the person is who they say, and may not come in
	RefusedToken    = "wrong_token"
	RefusedAccess   = "capability_missing"
	RefusedRule     = "rule"    // a rule about findings refuses pulls of the image
	RefusedSeveral  = "several" // of various accounts, reasons and networks
)
