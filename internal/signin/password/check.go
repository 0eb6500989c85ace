package password

import (
	"strings"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

const (
	minScore      = 3  // lowest accepted score of 0 to 4; guessing such a password takes more than 10⁸ attempts
	maxEstimated  = 64 // number of bytes that are estimated; longer passwords would take much longer
	guessedEasily = "is too easy to guess; a few unrelated words make a good password"
)

// Check returns fault.InvalidArgument if a new password is not acceptable. It must be
// long enough, and hard to guess for an attacker who knows common passwords, the
// e-mail address and the names of the person. There are no rules about characters,
// because such rules lead to passwords that people write down.
func Check(password, email string, names ...string) error {
	name, _, _ := strings.Cut(email, "@")
	folded := strings.ToLower(password)
	first, _ := utf8.DecodeRuneInString(password)
	switch {
	case utf8.RuneCountInString(password) < minPassword:
		return fault.Field("password", "must have at least %d characters", minPassword)
	case len(password) > maxPassword:
		return fault.Field("password", "must have at most %d bytes", maxPassword)
	case strings.Trim(password, string(first)) == "":
		return fault.Field("password", "must not be the same character throughout")
	case folded == email || len(name) >= minPassword && folded == name:
		return fault.Field("password", "must not be the e-mail address")
	}
	known := append([]string{"holdfast", email, name}, names...)
	if strength(password[:min(len(password), maxEstimated)], known) < minScore {
		return fault.Field("password", guessedEasily)
	}
	return nil
}
