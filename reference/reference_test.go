package reference_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/gen/openapi"
	"github.com/holdfast-dev/holdfast/reference"
)

func read(t *testing.T) (string, http.Header) {
	t.Helper()
	h, err := reference.Handler(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/docs", nil))
	return w.Body.String(), w.Header()
}

func TestEveryCallIsThere(t *testing.T) {
	text, _ := read(t)
	var d struct {
		Paths map[string]map[string]struct{ OperationID, Summary string }
	}
	if err := json.Unmarshal(openapi.Document, &d); err != nil {
		t.Fatal(err)
	}
	calls := 0
	for path, ops := range d.Paths {
		for _, op := range ops {
			calls++
			if !strings.Contains(text, `<article id="`+op.OperationID+`">`) || !strings.Contains(text, html.EscapeString(path)) {
				t.Errorf("%s is missing", op.OperationID)
			}
		}
	}
	if calls < 27 {
		t.Errorf("only %d calls are documented", calls)
	}
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	text, _ := read(t)
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if ids[m[1]] {
			t.Errorf("%s is there twice", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if !ids[m[1]] {
			t.Errorf("#%s leads nowhere", m[1])
		}
	}
}

func TestNothingComesFromElsewhere(t *testing.T) {
	text, header := read(t)
	if m := regexp.MustCompile(`(?i)<script|<img|<link|@import|url\(|(src|href)="(https?:)?//`).FindString(text); m != "" {
		t.Errorf("the page has %q", m)
	}
	if !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Error("no policy keeps it so")
	}
}
