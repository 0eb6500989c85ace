package registry_test

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/registry"
)

// TestSignerIs checks that an identity is a signer if it has the same issuer, and if the signer's subject is equal to
// its subject or the signer's pattern matches all of it.
func TestSignerIs(t *testing.T) {
	const issuer = "https://ci.example"
	exact := registry.Signer{Issuer: issuer, Subject: "ann@example.com"}
	pattern := registry.Signer{Issuer: issuer, SubjectPattern: "ann|bob@example[.]com"}
	for name, tt := range map[string]struct {
		s               registry.Signer
		issuer, subject string
		want            bool
	}{
		"the same":                   {exact, issuer, "ann@example.com", true},
		"another subject":            {exact, issuer, "ann@example.community", false},
		"another issuer":             {exact, issuer + "/", "ann@example.com", false},
		"no issuer":                  {exact, "", "ann@example.com", false},
		"matched":                    {pattern, issuer, "bob@example.com", true},
		"matched at its beginning":   {pattern, issuer, "ann@evil.com", false},
		"matched at its end":         {pattern, issuer, "evil-bob@example.com", false},
		"matched, of another issuer": {pattern, "https://evil", "bob@example.com", false},
		"too long": {
			registry.Signer{Issuer: issuer, SubjectPattern: ".*"}, issuer, strings.Repeat("x", 2000), false,
		},
		"a key is nobody":                  {registry.Signer{Key: "k", Issuer: issuer, Subject: "s"}, issuer, "s", false},
		"no subject":                       {registry.Signer{Issuer: issuer}, issuer, "", false},
		"a pattern that cannot be read":    {registry.Signer{Issuer: issuer, SubjectPattern: "("}, issuer, "(", false},
		"a line more than what is matched": {pattern, issuer, "ann\nbob@example.com", false},
	} {
		if got := tt.s.Is(tt.issuer, tt.subject); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
