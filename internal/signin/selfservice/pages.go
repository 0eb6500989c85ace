package selfservice

import (
	"html/template"
	"time"

	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// The data of the pages, by the name of their HTML file.
type (
	// A shownRole is a role that a person holds.
	shownRole struct {
		Name, Place string // Place is the path of the group
		May, Source string // what it allows and where it comes from, in words
		Since       time.Time
	}
	welcomePage struct {
		site.Frame
		Name, Place string
		Roles       []shownRole
		Commands    []string // to run next
	}
	shownPasskey struct {
		ID, Name      string
		Created, Used time.Time
	}
	shownSession struct {
		ID, Agent, Address     string
		Created, Used, Expires time.Time
		Current                bool
	}
	accountPage struct {
		site.Frame
		Name, Email, Organization, Identity string
		Provider                            string // provider that vouched for the person
		Roles                               []shownRole
		MoreRoles                           int // that are not shown
		Local                               bool
		Passkeys                            []shownPasskey
		CanPasskey                          bool
		TOTP                                bool
		Factor                              bool // has a second factor, which recovery codes can replace
		RecoveryCodes                       int
		PasswordAlone                       bool // passkeys are not asked for after the password
		Added                               bool // a passkey, just now
		Sessions                            []shownSession
		Notice                              string
	}
	recoveryPage struct {
		site.Frame
		Email, Notice string
		Codes         []string
		Download      template.URL // the codes as a file
	}
	totpPage struct {
		site.Frame
		Secret   string
		QR, Link template.URL
	}
)
