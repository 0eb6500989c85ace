package password

import (
	"strings"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

const (
	minScore      = 3  // of 4: more than 10⁸ guesses
	maxEstimated  = 64 // bytes; estimating takes much longer for longer ones
	guessedEasily = "is easy to guess: lists of common and leaked passwords have it, or its words, dates or keys in a " +
		"row. A few unrelated words make a good one"
)

// Check checks a password that somebody has chosen. It requires length,
// and that it is not easily guessed by those who know common passwords and the
// person's names. There are no rules about characters, because these lead to
// passwords that people write down.
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
