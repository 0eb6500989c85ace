package selfservice

import (
	"html/template"
	"time"

	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

// The data of the pages, by the name of their HTML file.
type (
	// A shownRole is a role of a person.
	shownRole struct {
		Name, Place string // Place is the path of the group
		May, Source string // permissions and origin of the role, in words
		Since       time.Time
	}
	welcomePage struct {
		site.Frame
		Name, Place string
		Roles       []shownRole
		Commands    []string // commands to run next
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
		MoreRoles                           int // number of roles that are not shown
		Local                               bool
		Passkeys                            []shownPasskey
		CanPasskey                          bool
		TOTP                                bool
		Factor                              bool // whether the account has a second factor
		RecoveryCodes                       int
		PasswordAlone                       bool // whether the password is enough without a passkey
		Added                               bool // whether a passkey was just added
		Sessions                            []shownSession
		Notice                              string
	}
	recoveryPage struct {
		site.Frame
		Email, Notice string
		Codes         []string
		Download      template.URL // data URL of a file with the codes
	}
	totpPage struct {
		site.Frame
		Secret   string
		QR, Link template.URL
	}
)
