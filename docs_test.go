package holdfast_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
)

var (
	testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	link     = regexp.MustCompile(`\]\(([\w./-]+\.(?:md|png|svg)[#\w-]*|#[\w-]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	setting  = regexp.MustCompile(`yaml:"([a-z0-9_]+)"`)

	managedRole = regexp.MustCompile("(?m)^\\| ((?:`[a-z_.]+`(?:, )?)+) \\| ([0-9, ]+) \\|")
)

// TestLinks checks that the targets of links between pages exist: the file, and the
// heading in it.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob("docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(append(pages, records...), "README.md", "CONTRIBUTING.md", "ARCHITECTURE.md",
		"CHANGELOG.md", "SECURITY.md")
	for _, page := range pages {
		text := read(t, page)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			target := text
			if file != "" {
				target = read(t, filepath.Join(filepath.Dir(page), file))
			}
			if anchor != "" && !anchors(target)[anchor] {
				t.Errorf("%s links to %s, which has no such heading", page, m[1])
			}
		}
	}
}

// TestSettings checks that the page for operators lists every setting.
func TestSettings(t *testing.T) {
	page := read(t, "docs/running.md")
	for _, m := range setting.FindAllStringSubmatch(read(t, "internal/server/config/config.go"), -1) {
		if !strings.Contains(page, "`"+m[1]+"`") {
			t.Errorf("docs/running.md does not list the setting %s", m[1])
		}
	}
}

// TestManagedRoles checks that the page about access has the number of capabilities of each managed role.
func TestManagedRoles(t *testing.T) {
	want := map[string]int{}
	for _, r := range authz.ManagedRoles() {
		want[r.Name] = len(r.Capabilities.All())
	}
	found := 0
	for _, row := range managedRole.FindAllStringSubmatch(read(t, "docs/access.md"), -1) {
		names, numbers := strings.Split(row[1], ", "), strings.Split(row[2], ", ")
		if len(names) != len(numbers) {
			t.Errorf("docs/access.md: %d names and %d numbers in %s", len(names), len(numbers), row[0])
			continue
		}
		area := ""
		for i, name := range names {
			name = strings.Trim(name, "`")
			if strings.HasPrefix(name, ".") { // an abbreviation that omits the area, which the name before it has
				name = area + name
			}
			area, _, _ = strings.Cut(name, ".")
			if n := strconv.Itoa(want[name]); numbers[i] != n {
				t.Errorf("docs/access.md: the role %s has %s capabilities, want %s", name, numbers[i], n)
			}
			found++
		}
	}
	if found == 0 {
		t.Error("docs/access.md has no table of managed roles")
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// anchors returns the names under which the headings of a page can be linked to.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}

// TestSecurityModel checks the claim of docs/security-model.md about itself: each list
// item and table row names a test that fails if the statement is false, and a test with
// that name exists.
func TestSecurityModel(t *testing.T) {
	tests := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, promise := range promises(read(t, "docs/security-model.md")) {
		names := testName.FindAllStringSubmatch(promise, -1)
		if len(names) == 0 {
			t.Errorf("no test is named for: %s", promise)
		}
		for _, m := range names {
			if !tests[m[1]] {
				t.Errorf("there is no %s", m[1])
			}
		}
	}
}

// promises returns the items of lists and the rows of tables of a page, each on
// one line.
func promises(page string) (all []string) {
	open := false // whether the line before belongs to an item
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "- "), regexp.MustCompile(`^\d+\. `).MatchString(line):
			all, open = append(all, line), true
		case strings.HasPrefix(line, "|---"):
			all = all[:len(all)-1] // removes the line before, which is the head of the table
		case strings.HasPrefix(line, "| "):
			all, open = append(all, line), false
		case open && strings.HasPrefix(line, "  "):
			all[len(all)-1] += " " + strings.TrimSpace(line)
		default:
			open = false
		}
	}
	return all
}

var goPath = regexp.MustCompile(`[a-z0-9]+(?:/[a-z0-9_]+)*/[a-z0-9_]+\.go\b`)

// TestArchitecturePage checks that every file that ARCHITECTURE.md and CONTRIBUTING.md name exists, and that
// ARCHITECTURE.md names every package. A path is relative to the root, to internal/, or to an area in internal/.
func TestArchitecturePage(t *testing.T) {
	for _, page := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range goPath.FindAllString(string(text), -1) {
			if !exists(file, "internal/"+file, "internal/*/"+file, "internal/*/*/"+file) {
				t.Errorf("%s names %s, which does not exist", page, file)
			}
		}
	}
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range listPackages(t) {
		if p.name == "" || strings.HasPrefix(p.name, "gen/") || strings.HasPrefix(p.name, cli) {
			continue
		}
		if !strings.Contains(string(text), path.Base(p.name)+"/") {
			t.Errorf("ARCHITECTURE.md does not name %s", p.name)
		}
	}
}

// exists reports whether a file matches one of the patterns.
func exists(patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		found, err := filepath.Glob(pattern)
		return err == nil && len(found) > 0
	})
}
