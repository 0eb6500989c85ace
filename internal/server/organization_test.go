package server_test

import (
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/server"
)

// TestOrganizationsCreate: by default only the operator creates organizations. The command prints a link with which the
// owner of the new organization sets a password. The operator also chooses who pays for an organization.
func TestOrganizationsCreate(t *testing.T) {
	cfg := server.Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", Organization: "acme", OwnerEmail: "olga@example.com",
	}
	r := start(t, cfg)
	if !r.follow(t, onceLink.FindString(r.stderr.String()), "silent harbor nine") {
		t.Fatal("the link of the first owner does not work")
	}
	out, err := run(t, cfg, "organizations", "create", "North", "Wind", "email=nora@example.com")
	if err != nil || !r.follow(t, onceLink.FindString(out), "violet anchor seven") {
		t.Errorf("create: %v %s", err, out)
	}
	if strings.Contains(r.stderr.String(), onceLink.FindString(out)) {
		t.Error("the link is in the log")
	}
	for why, words := range map[string][]string{
		"without an owner":          {"organizations", "create", "south"},
		"without a name":            {"organizations", "create", "email=nora@example.com"},
		"with a name that is taken": {"organizations", "create", "acme", "email=nora@example.com"},
		"an unknown payer":          {"organizations", "payer", "north-wind", "payer=nobody"},
		"an unknown organization":   {"organizations", "payer", "nobody"},
	} {
		if out, err := run(t, cfg, words...); err == nil || onceLink.MatchString(out) {
			t.Errorf("%s: %v %s", why, err, out)
		}
	}
	own, err := run(t, cfg, "organizations", "payer", "north-wind")
	if err != nil {
		t.Fatal(err)
	}
	paid, err := run(t, cfg, "organizations", "payer", "north-wind", "payer=acme")
	if err != nil || paid == own {
		t.Errorf("paid by %s and before by %s: %v", paid, own, err)
	}
	if _, err := run(t, cfg, "budgets", "set", "acme", "identities=3"); err != nil {
		t.Error(err)
	}
	if out, err := run(t, cfg, "budgets", "show", "acme"); err != nil || !strings.Contains(out, "identities") {
		t.Errorf("%v %s", err, out)
	}
}
