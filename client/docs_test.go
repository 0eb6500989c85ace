package client_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// TestDocsShowExamples checks that every Go block of docs/clients.md is part of an
// example in this package, so that it is compiled and run.
func TestDocsShowExamples(t *testing.T) {
	page, err := os.ReadFile("../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := goBlock.FindAllSubmatch(page, -1)
	if len(blocks) < 4 {
		t.Errorf("docs/clients.md has %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(string(examples), string(block[1])) {
			t.Errorf("docs/clients.md has a block that is in no example:\n%s", block[1])
		}
	}
}
