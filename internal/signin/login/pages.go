package login

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// A Choice is a provider or an account that a person can continue with.
type Choice struct{ UID, Name, Organization string }

// The data of the pages, by the name of their HTML file.
type (
	signInPage struct {
		site.Frame
		Purpose, Organization string
		Providers             []Choice
		Local, Passkeys       bool
		Email                 string
		Asked                 string // the organization that was asked for, if there is none
		Invite                *Invite
		CanJoin               bool
		Again                 bool // they are signed in, and asked again
	}
	homePage struct {
		site.Frame
		Name    string // of who is signed in
		BaseURL string
		SetUp   bool // there is an organization
	}
	choosePage struct {
		site.Frame
		Email    string
		Accounts []Choice // accounts and their organizations
	}
	factorPage struct {
		site.Frame
		Email                   string
		TOTP, Passkey, Recovery bool
	}
	joinPage struct {
		site.Frame
		Invite *Invite
		Email  string
		Name   string
		Fixed  bool
	}
	confirmPage struct {
		site.Frame
		Purpose, Name, Email, Code string
		Organization               string    // organization of the account, if it is kept here
		Client, Agent, Address     string    // the requesting program, as it describes itself, and its address
		Asked                      time.Time // when it asked
		May, For                   string    // what its token would allow, and for how long
		Since                      time.Time // start of the session
		Invite                     *Invite
	}
	devicePage struct {
		site.Frame
		Code string
	}
	// A Claim is a claim about a person from a provider.
	Claim     struct{ Name, Value string }
	trialPage struct {
		site.Frame
		Provider, Redirect      string
		Claims                  []Claim
		Verified                bool
		Groups, Roles, Warnings []string
	}
	linkPage struct {
		site.Frame
		Email, Organization string
		Reset               bool
	}
)
