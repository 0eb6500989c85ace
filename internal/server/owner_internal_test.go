package server

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
)

// TestWriteRecovery: the output of owners recover also lists the other changes that the
// recovery made.
func TestWriteRecovery(t *testing.T) {
	for name, tt := range map[string]struct {
		recovery accounts.Recovery
		want     string
		off      bool
	}{
		"an account of before": {accounts.Recovery{}, "chooses a new password", false},
		"a new one":            {accounts.Recovery{Created: true}, "now has an account in acme", false},
		"that was off":         {accounts.Recovery{AllowLocal: true}, "chooses a new password", true},
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
