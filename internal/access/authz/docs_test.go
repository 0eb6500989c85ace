package authz_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

var update = flag.Bool("update", false, "rewrite docs/capabilities.md")

// TestCapabilitiesPage checks that the documentation page about capabilities matches the managed roles.
func TestCapabilitiesPage(t *testing.T) {
	const page = "../../../docs/capabilities.md"
	var b strings.Builder
	b.WriteString("# Capabilities\n\nThe capabilities that a role can have, and the managed roles that have them. ")
	b.WriteString("`go test ./internal/access/authz -update` writes this page.\n\n")
	b.WriteString("| capability | number | managed roles |\n|---|---|---|\n")
	var every resource.Capabilities
	for i := range every {
		every[i] = math.MaxUint64
	}
	for _, c := range every.All() {
		var roles []string
		for _, r := range authz.ManagedRoles() {
			if r.Capabilities.Has(c) {
				roles = append(roles, r.Name)
			}
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", c, c.Number(), strings.Join(roles, ", "))
	}
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("%s is not current (go test ./internal/access/authz -update):\n%s", page, diff)
	}
}
