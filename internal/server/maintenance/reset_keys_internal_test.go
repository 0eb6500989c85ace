package maintenance

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestWriteLoss: the output lists each lost secret with its owner, and the command or the
// step that replaces it.
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
		"Earlier back-ups need the old key",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := writeLoss(&b, admission.Loss{SigningKeys: 1}, "f"); err != nil ||
		strings.Contains(b.String(), "providers") ||
		strings.Contains(b.String(), "recovery codes") || strings.Contains(b.String(), "accounts") {
		t.Errorf("it tells of more than is lost: %v\n%s", err, b.String())
	}
}
