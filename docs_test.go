package holdfast_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
)

// TestSecurityModel holds docs/security-model.md to what it says of itself: each
// item and row names the test that fails without it, and there is such a test.
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
	page, err := os.ReadFile("docs/security-model.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, promise := range promises(string(page)) {
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
	open := false // the line before is part of an item
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "- "), regexp.MustCompile(`^\d+\. `).MatchString(line):
			all, open = append(all, line), true
		case strings.HasPrefix(line, "|---"):
			all = all[:len(all)-1] // the line before is the head of the table
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
