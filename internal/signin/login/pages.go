package login

import (
	"time"

	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// A Choice is a provider or an account that a person can choose.
type Choice struct{ UID, Name, Organization string }

// The data of the pages, by the name of their HTML file.
type (
	signInPage struct {
		site.Frame
		Purpose, Organization string
		Providers             []Choice
		Local, Passkeys       bool
		Email                 string
		Asked                 string // name that was typed, if there is no organization with this name
		Invite                *Invite
		CanJoin               bool
		Again                 bool // whether the person is signed in and must sign in again
	}
	homePage struct {
		site.Frame
		Name    string // name of the person who is signed in, or ""
		BaseURL string
		SetUp   bool // whether there is an organization
	}
	choosePage struct {
		site.Frame
		Email    string
		Accounts []Choice // accounts with the right password
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
		Organization               string    // organization of the local account, or ""
		Client, Agent, Address     string    // the requesting program, as it describes itself, and its address
		Asked                      time.Time // time of the request
		May, For                   string    // permissions and life of the program's token, in words
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
