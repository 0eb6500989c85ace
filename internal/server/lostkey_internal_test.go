package server

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
)

// What is lost with a key is said with everything that somebody has to do, and to whom.
func TestWriteLoss(t *testing.T) {
	var b strings.Builder
	err := writeLoss(&b, admission.Loss{
		SigningKeys: 2, RecoveryCodes: 8,
		Providers: []resource.IdentityProvider{{UID: "a1/b2", Name: "okta"}},
		Accounts:  []resource.Account{{UID: "a1/c3", Email: "olga@example.com"}},
	}, "fingerprint")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"encryption key fingerprint", "2 signing keys", "8 recovery codes",
		"client secrets of 1 identity providers", "--client-secret-file", "a1/b2  okta",
		"authenticator apps of 1 accounts, and their passwords", "holdfastd owners recover", "a1/c3  olga@example.com",
		"Back-ups of before need the key of before",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := writeLoss(&b, admission.Loss{SigningKeys: 1}, "f"); err != nil || strings.Contains(b.String(), "providers") ||
		strings.Contains(b.String(), "recovery codes") || strings.Contains(b.String(), "accounts") {
		t.Errorf("it tells of more than is lost: %v\n%s", err, b.String())
	}
}

// Whoever recovers an owner is told what else that changed.
func TestWriteRecovery(t *testing.T) {
	for name, tt := range map[string]struct {
		recovery login.Recovery
		want     string
		off      bool
	}{
		"an account of before": {login.Recovery{}, "chooses a new password", false},
		"a new one":            {login.Recovery{Created: true}, "has an account of acme now", false},
		"that was off":         {login.Recovery{AllowLocal: true}, "chooses a new password", true},
	} {
		var b strings.Builder
		tt.recovery.Account.Email, tt.recovery.Link.URL = "olga@example.com", "https://x.example/link?code=C"
		err := writeRecovery(&b, resource.Group{Name: "acme"}, tt.recovery)
		if off := strings.Contains(b.String(), "had been switched off"); err != nil || off != tt.off ||
			!strings.Contains(b.String(), tt.want) || !strings.Contains(b.String(), "\nhttps://x.example/link?code=C\n") {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
	}
}
