package login

import (
	"strings"
	"testing"
	"time"
)

// Passwords that are guessed first are refused, and the reason is told. Long ones
// do not take long to judge.
func TestPasswordsThatAreGuessed(t *testing.T) {
	tests := map[string]bool{
		"password1234": false, "Password1234!": false, "qwertyuiop12": false, "123456789012": false,
		"letmein123456": false, "iloveyou2026": false, "abcabcabcabc": false, "olga.owner12": false,
		"holdfast12345": false, "acmeacmeacme": false, "P@ssw0rd12345": false, "december2026!": false,
		"correct horse battery": true, "nine unrelated words": true, "violet anchor seven": true,
		"kX9#mQ2$vL7p": true, "two yellow submarines": true, "Übergrößenträger-37": true,
	}
	for password, good := range tests {
		err := checkPassword(password, "olga.owner@acme.example", "Olga Owner", "acme")
		if good != (err == nil) {
			t.Errorf("%q: %v", password, err)
		}
		if err != nil && !strings.Contains(err.Error(), "easy to guess") {
			t.Errorf("%q is refused with %v", password, err)
		}
	}
	began := time.Now()
	_ = checkPassword(strings.Repeat("aA1!password qwerty ", 25), "olga@acme.example")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a long password takes %s", took)
	}
}
