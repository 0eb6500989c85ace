package version_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
)

// A chain is a list of versions of one ecosystem with a rank for each. Equal versions have equal ranks, and newer
// versions have higher ranks.
type chain struct {
	line     string // the line of the file, for messages
	versions []string
	places   []int
}

// chains reads testdata/<ecosystem>.txt. Its lines have the form "1 < 1.1 = 1.1.0", and come from the documentation
// that each ecosystem publishes about its order.
func chains(t testing.TB, file string) []chain {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []chain
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		c := chain{line: strings.TrimSpace(line), versions: fields[:1], places: []int{0}}
		for i := 1; i+1 < len(fields); i += 2 {
			step := strings.Index(">=<", fields[i]) - 1
			c.versions = append(c.versions[:len(c.versions):len(c.versions)], fields[i+1])
			c.places = append(c.places, c.places[len(c.places)-1]+step)
		}
		found = append(found, c)
	}
	return found
}

func tables(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no tables", err)
	}
	return files
}

func TestCompare(t *testing.T) {
	for _, file := range tables(t) {
		ecosystem := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(ecosystem, func(t *testing.T) {
			for _, c := range chains(t, file) {
				for i, a := range c.versions {
					for j, b := range c.versions {
						got, err := version.Compare(ecosystem, a, b)
						if want := cmp.Compare(c.places[i], c.places[j]); err != nil || got != want {
							t.Errorf("%s: Compare(%s, %s) = %d, %v, want %d", c.line, a, b, got, err, want)
						}
					}
				}
			}
		})
	}
}

func TestOf(t *testing.T) {
	tests := map[string]struct {
		ecosystem, purl string
		older, newer    string // two versions in an order that only the expected rule has
		known           bool
	}{
		"an ecosystem":             {"PyPI", "", "1.0.dev1", "1.0a1", true},
		"a release of one":         {"Debian:12", "", "1.0~rc1", "1.0", true},
		"a release of a release":   {"Ubuntu:22.04:LTS", "", "1.0~rc1", "1.0", true},
		"unknown, with a package":  {"Some Linux", "pkg:apk/some/curl@8.0", "1.01", "1.1", true},
		"unknown, with no package": {"Some Linux", "", "", "", false},
		"unknown, both":            {"Some Linux", "pkg:some/thing", "", "", false},
		"nothing":                  {"", "", "", "", false},
		"other case":               {"pypi", "", "", "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			rule, ok := version.RuleFor(tt.ecosystem, tt.purl)
			if ok != tt.known {
				t.Fatalf("known = %v, want %v", ok, tt.known)
			}
			if !ok {
				return
			}
			older, err1 := rule.Key(tt.older)
			newer, err2 := rule.Key(tt.newer)
			if err := errors.Join(err1, err2); err != nil || older >= newer {
				t.Errorf("%s is not older than %s: %v", tt.older, tt.newer, err)
			}
		})
	}
}

func TestVersionsThatHaveNoPlace(t *testing.T) {
	tests := map[string]struct{ ecosystem, version string }{
		"none":                  {"npm", ""},
		"one too long":          {"npm", "1." + strings.Repeat("0", version.MaxLength)},
		"a word for a number":   {"npm", "latest"},
		"a gem named by a word": {"RubyGems", "head"},
		"an R version of words": {"CRAN", "devel"},
		"an epoch of letters":   {"Debian", "a:1"},
		"an epoch alone":        {"Debian", "1:"},
		"no number for apk":     {"Alpine", ".1"},
		"a control character":   {"PyPI", "1.0\x00"},
		"a line break":          {"Maven", "1.0\n"},
		"wrong UTF-8":           {"Debian", "1.0\xff"},
		"an unknown ecosystem":  {"Some Linux", "1.0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, left := range []string{tt.version, "1.0"} {
				if _, err := version.Compare(tt.ecosystem, left, tt.version); !errors.Is(err, fault.InvalidArgument) {
					t.Errorf("Compare(%q, %q) = %v, want InvalidArgument", left, tt.version, err)
				}
			}
		})
	}
	var zero version.Rule
	if _, err := zero.Key("1.0"); !errors.Is(err, fault.InvalidArgument) {
		t.Errorf("the zero Rule's error = %v, want InvalidArgument", err)
	}
}
