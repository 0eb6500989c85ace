package config

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the table of settings in docs/running.md")

// TestSettingsPage checks that the documentation for operators lists every setting, with
// the same explanation as --help.
func TestSettingsPage(t *testing.T) {
	const page = "../../../docs/running.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?m)^\| setting \| default \| \|\n(\|.*\n)+`)
	current := table.ReplaceAllLiteralString(string(text), settingsTable())
	if *update {
		if err := os.WriteFile(page, []byte(current), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(current, string(text)); diff != "" || !strings.Contains(current, settingsTable()) {
		t.Errorf("%s is not current (go test ./internal/server/config -update):\n%s", page, diff)
	}
}

// settingsTable returns the table of all settings. If a default is not a constant, the
// help text ends with the default in parentheses.
func settingsTable() string {
	var b strings.Builder
	b.WriteString("| setting | default | |\n|---|---|---|\n")
	ending := regexp.MustCompile(`^(.*) \(([^()]*(?:\(s\))?[^()]*)\)$`)
	for _, s := range new(Config).settings() {
		help, fallback := s.help, "–"
		switch m := ending.FindStringSubmatch(help); {
		case s.fallback != "":
			fallback = "`" + s.fallback + "`"
		case s.isSwitch():
			fallback = "off"
		case m != nil:
			help, fallback = m[1], m[2]
		}
		if s.secret {
			help = "only as `" + s.variable() + "`: " + help
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.name, fallback, strings.ReplaceAll(help, "|", `\|`))
	}
	return b.String()
}
