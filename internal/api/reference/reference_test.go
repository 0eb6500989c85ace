package reference_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/gen/openapi"
	"github.com/holdfast-dev/holdfast/internal/api/reference"
)

// read returns the page that shows the search results for query, and its headers.
func read(t *testing.T, query string) (string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	reference.Handler(openapi.Document).ServeHTTP(w,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/docs?q="+url.QueryEscape(query), nil))
	return w.Body.String(), w.Header()
}

func TestEveryCallIsThere(t *testing.T) {
	text, _ := read(t, "")
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
	text, _ := read(t, "")
	wantAnchors(t, text)
}

// wantAnchors fails the test if two elements of a page have the same ID, or if a link
// leads to an ID that the page does not have.
func wantAnchors(t *testing.T, text string) {
	t.Helper()
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
	text, header := read(t, "")
	if m := regexp.MustCompile(`(?i)<script|<img|<link|@import|url\(|(src|href)="(https?:)?//`).FindString(text); m != "" {
		t.Errorf("the page has %q", m)
	}
	if !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Error("no policy keeps it so")
	}
}

// TestNothingToPressInsideOfAnother: no summary element contains a link, because people
// could not distinguish clicks on the two.
func TestNothingToPressInsideOfAnother(t *testing.T) {
	text, _ := read(t, "")
	if m := regexp.MustCompile(`<summary>[^<]*<a`).FindString(text); m != "" {
		t.Errorf("the page has %q", m)
	}
}

// TestEveryRequestHasAnExample: every call that has a body shows an example of the body.
func TestEveryRequestHasAnExample(t *testing.T) {
	text, _ := read(t, "")
	if strings.Contains(text, "-d &#39;{…}") || strings.Count(text, "-d &#39;") < 70 {
		t.Errorf("%d requests have an example", strings.Count(text, "-d &#39;"))
	}
}

func TestSearch(t *testing.T) {
	tests := map[string]struct {
		query            string
		has, hasNot      []string
		links, moreLinks int // minimum and maximum number of links on the page
	}{
		"a call": {
			"createGroup", []string{`id="GroupsService_CreateGroup"`}, []string{`id="PingService_Ping"`}, 1, 40,
		},
		"a path": {
			"/registry/v2beta1/repos get", []string{`id="ReposService_ListRepos"`}, []string{`id="ReposService_CreateRepo"`},
			1, 40,
		},
		"a type":              {"roleBinding", []string{`id="holdfast.iam.v2beta1.RoleBinding"`, "/docs#"}, nil, 1, 400},
		"nothing":             {"zebra", []string{"0 of ", "Show everything"}, []string{"<article"}, 1, 10},
		"very much":           {"e", []string{"these are the first ones"}, nil, 100, 1000},
		"hostile":             {`"><script>alert(1)</script>`, []string{"0 of "}, []string{"<script"}, 1, 10},
		"too long":            {strings.Repeat("é", 5000), []string{"0 of "}, []string{strings.Repeat("é", 51)}, 1, 10},
		"bytes of no meaning": {"\xff\xfe", []string{"<h1>"}, nil, 1, 1000},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			text, _ := read(t, tt.query)
			for _, want := range tt.has {
				if !strings.Contains(text, want) {
					t.Errorf("there is no %s", want)
				}
			}
			for _, bad := range tt.hasNot {
				if strings.Contains(text, bad) {
					t.Errorf("there is %s", bad)
				}
			}
			if n := strings.Count(text, "href="); n < tt.links || n > tt.moreLinks {
				t.Errorf("there are %d links", n)
			}
			wantAnchors(t, text)
		})
	}
}
