package browser_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/holdfast-dev/holdfast/gen/openapi"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// TestManual checks the documentation: its pages must fit on a phone, have text before links, and its search must find
// a call. The accessibility rules are checked on one page of each kind.
func TestManual(t *testing.T) {

	s, b := newSite(t), newTab(t)
	b.open(s.BaseURL + "/docs")
	b.see("Documentation")
	for page, kind := range map[string]string{
		"/docs/": "", "/docs/concepts": "", "/docs/running": "", "/docs/reference/": "docs-services",
		"/docs/reference/GroupsService": "docs-service",
	} {
		b.open(s.BaseURL + page)
		b.run("on a phone", chromedp.EmulateViewport(390, 800))
		b.fits("docs", 390)
		b.run("on a desktop", chromedp.EmulateViewport(1100, 800))
		var links, pictures int
		b.run("count the links before the text", chromedp.Evaluate(`(main =>
			[...document.querySelectorAll("a")].filter(a => a.compareDocumentPosition(main) & Node.DOCUMENT_POSITION_FOLLOWING
				&& !main.contains(a)).length)(document.querySelector("main h1"))`, &links))
		b.run("count the pictures that do not load", chromedp.Evaluate(
			`[...document.images].filter(i => i.complete && !i.naturalWidth).length`, &pictures))
		if links > 5 || pictures > 0 {
			t.Errorf("%s has %d links before any text, and %d pictures do not load", page, links, pictures)
		}
		if kind != "" {
			b.inspect(kind)
		}
	}
	b.run("search", chromedp.SendKeys(`input[type="search"]`, "create group"), chromedp.Click("form button"))
	b.see("Search")
	b.read("results for “create group”")
	b.read("CreateGroup")
	b.inspect("docs-search")
}

// TestReportPage checks the page that the command writes as the report of a group.
func TestReportPage(t *testing.T) {

	s, b := newSite(t), newTab(t)
	page := s.owner(t).run("findings", "report", "dev", "--format", "html")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, page)
	}))
	t.Cleanup(server.Close)
	b.open(server.URL)
	b.see("dev")
	b.inspect("report")
}

// TestDescription checks the OpenAPI description with a public linter.
func TestDescription(t *testing.T) {

	needs(t)
	file := filepath.Join(t.TempDir(), "openapi.json")
	if err := os.WriteFile(file, openapi.Document, 0o600); err != nil {
		t.Fatal(err)
	}
	cli := filepath.Join(os.Getenv("HOLDFAST_TEST_BROWSER"), "node_modules", "@redocly", "cli", "bin", "cli.js")
	lint := exec.CommandContext(t.Context(), testprogram.Path(t, "node/bin/node"),
		cli, "lint", "--config", "redocly.yaml", "--format=json", file)
	lint.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	var stderr bytes.Buffer
	lint.Stderr = &stderr
	out, err := lint.Output()
	var found struct {
		Totals   struct{ Errors, Warnings, Ignored int }
		Problems []struct{ RuleID, Message string }
	}
	if start := bytes.IndexByte(out, '{'); start < 0 || json.Unmarshal(out[start:], &found) != nil {
		t.Fatalf("output of the linter (%v):\n%s\n%s", err, out, &stderr)
	}
	if n := found.Totals; n.Errors+n.Warnings+n.Ignored > 0 || err != nil {
		t.Errorf("%d errors and %d warnings (%v): %v", n.Errors, n.Warnings, err, found.Problems)
	}
}
