package inspect_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// TestLinkedPackageJSON checks that a package.json outside node_modules, such as test data, causes no warning and does
// not count towards the limit, unless a link in node_modules leads to it.
func TestLinkedPackageJSON(t *testing.T) {
	var fixtures []file
	var many []file
	for i := range 21 {
		fixtures = append(fixtures,
			file{name: fmt.Sprintf("app/test/%d/package.json", i), content: node(fmt.Sprint("p", i), "1.0.0")})
		many = append(many, link(fmt.Sprint("app/node_modules/", i), fmt.Sprint("../test/", i)))
	}
	fixtures = append(fixtures, file{name: "app/bad/1/package.json", content: "{"})
	fixtures = append(fixtures, file{name: lodash, content: node("lodash", "1.0.0")})
	with := func(links ...file) []byte { return archive(append(links, fixtures...)...) }
	for name, tt := range map[string]struct {
		image    []byte
		packages int
		warnings int
		reason   string
	}{
		"without links":         {with(), 1, 0, ""},
		"a link to a good file": {with(link("app/node_modules/a", "../test/1")), 2, 0, ""},
		"a link to a bad file":  {with(link("app/node_modules/a", "../bad/1")), 1, 1, ""},
		"links to too many":     {with(many...), 0, 0, "over the limit of 20 packages"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := inspect.Image(t.Context(), layers(tt.image), inspect.Limits{Packages: 20})
			if tt.reason != "" {
				if err == nil || !strings.Contains(err.Error(), tt.reason) {
					t.Errorf("error = %v", err)
				}
				return
			}
			if err != nil || len(r.Packages) != tt.packages || len(r.Warnings) != tt.warnings {
				t.Errorf("%d packages, warnings %q, %v", len(r.Packages), r.Warnings, err)
			}
		})
	}
}
