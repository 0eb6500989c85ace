package settings

import (
	"fmt"
	"regexp"
)

var uidPattern = regexp.MustCompile(`^[0-9a-f]{40}(/[0-9a-f]{16})*$`)

func IsUID(s string) bool { return uidPattern.MatchString(s) }

func CheckUID(s string) error {
	if !IsUID(s) {
		return fmt.Errorf("%q is not a uid", s)
	}
	return nil
}
