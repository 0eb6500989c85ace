package manual_test

import (
	"encoding/json"
	"html"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/holdfast-dev/holdfast/docs"
	"github.com/holdfast-dev/holdfast/gen/openapi"
	"github.com/holdfast-dev/holdfast/internal/api/manual"
)

var handler = manual.Handler(docs.Files, openapi.Document)

// get returns the answer to a request for a path.
func get(t *testing.T, at string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, at, nil))
	return w
}

// text returns the page at a path.
func text(t *testing.T, at string) string {
	t.Helper()
	w := get(t, at)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d", at, w.Code)
	}
	return w.Body.String()
}

// apiPages returns the paths of the pages of services.
func apiPages(t *testing.T) (all []string) {
	t.Helper()
	link := regexp.MustCompile(`<th scope="row"><a href="([^"]+)"`)
	for _, m := range link.FindAllStringSubmatch(text(t, "/docs/reference/"), -1) {
		all = append(all, m[1])
	}
	return all
}

// pages returns the paths of all pages.
func pages(t *testing.T) []string {
	t.Helper()
	all := append([]string{"/docs", "/docs/", "/docs/reference/"}, apiPages(t)...)
	err := fs.WalkDir(docs.Files, ".", func(file string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(file, ".md"); ok && file != "README.md" {
			all = append(all, manual.Prefix+strings.TrimSuffix(name, "README"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryCallIsThere checks that each call of the API is on a page of a service.
func TestEveryCallIsThere(t *testing.T) {
	var all strings.Builder
	for _, at := range apiPages(t) {
		all.WriteString(text(t, at))
	}
	var d struct {
		Paths map[string]map[string]struct{ OperationID, Summary string }
	}
	if err := json.Unmarshal(openapi.Document, &d); err != nil {
		t.Fatal(err)
	}
	calls := 0
	for at, ops := range d.Paths {
		for _, op := range ops {
			calls++
			if !strings.Contains(all.String(), `<article id="`+op.OperationID+`">`) ||
				!strings.Contains(all.String(), html.EscapeString(at)) {
				t.Errorf("%s is missing", op.OperationID)
			}
		}
	}
	if calls < 27 {
		t.Errorf("only %d calls are documented", calls)
	}
	if n := strings.Count(all.String(), "-d &#39;"); n < 70 || strings.Contains(all.String(), "-d &#39;{…}") {
		t.Errorf("%d requests have an example", n)
	}
}

// TestEveryLinkLeadsSomewhere follows every link and every picture of every page. It also checks that names of
// elements are unique on a page, and that nothing comes from another server.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	foreign := regexp.MustCompile(`(?i)<script|<iframe|<style|@import|url\(|src="(https?:)?//`)
	links := regexp.MustCompile(` (?:href|src)="([^"]+)"`)
	names := map[string]map[string]bool{}
	for _, at := range pages(t) {
		names[at] = namesOn(t, at)
	}
	for at := range names {
		page := text(t, at)
		if m := foreign.FindString(page); m != "" {
			t.Errorf("%s has %q", at, m)
		}
		for _, m := range links.FindAllStringSubmatch(page, -1) {
			link, anchor, hasAnchor := strings.Cut(html.UnescapeString(m[1]), "#")
			if link == "" {
				link = at
			}
			switch {
			case strings.Contains(link, ":"), !strings.HasPrefix(link, "/docs"): // another server, or another part of this
			case names[link] == nil:
				if w := get(t, link); w.Code != http.StatusOK || path.Ext(link) == "" {
					t.Errorf("%s links to %s, which leads nowhere", at, m[1])
				}
			case hasAnchor && !names[link][anchor]:
				t.Errorf("%s links to %s, and there is no such heading", at, m[1])
			}
		}
	}
	if len(names) < 100 {
		t.Errorf("there are only %d pages", len(names))
	}
}

// namesOn returns the names of the elements of a page.
func namesOn(t *testing.T, at string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(text(t, at), -1) {
		if names[m[1]] {
			t.Errorf("%s has two elements %s", at, m[1])
		}
		names[m[1]] = true
	}
	return names
}

// TestContents checks that every page is in the contents, except the records of decisions.
func TestContents(t *testing.T) {
	contents := text(t, "/docs/")
	for _, at := range pages(t) {
		if strings.Count(at, "/") == 2 && !strings.Contains(contents, `<li><a href="`+at+`"`) && at != "/docs/" {
			t.Errorf("%s is not in the contents", at)
		}
	}
}

func TestHeaders(t *testing.T) {
	for at, want := range map[string]string{
		"/docs/": "text/html; charset=utf-8", "/docs/style.css": "text/css; charset=utf-8",
		"/docs/console/home.png": "image/png", "/docs/concepts/diagram.svg": "image/svg+xml",
		"/docs/search?q=push": "text/html; charset=utf-8",
	} {
		w := get(t, at)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != want {
			t.Errorf("%s: status %d, %s", at, w.Code, w.Header().Get("Content-Type"))
		}
		if !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s may load from other servers", at)
		}
	}
}

// TestOtherPaths checks what becomes of paths that are not the address of a page.
func TestOtherPaths(t *testing.T) {
	tests := map[string]struct {
		path   string
		status int
		to     string // where the answer leads, or what it contains
	}{
		"file of a page":         {"/docs/gate.md", http.StatusMovedPermanently, "/docs/gate"},
		"file of the first page": {"/docs/README.md", http.StatusMovedPermanently, "/docs/"},
		"slash at the end":       {"/docs/gate/", http.StatusMovedPermanently, "/docs/gate"},
		"no slash at the end":    {"/docs/reference", http.StatusMovedPermanently, "/docs/reference/"},
		"earlier search":         {"/docs?q=push", http.StatusFound, "/docs/search?q=push"},
		"missing page":           {"/docs/gates-of-pulls", http.StatusNotFound, "There is no such page"},
		"missing file":           {"/docs/none.md", http.StatusNotFound, "There is no such page"},
		"missing picture":        {"/docs/none.png", http.StatusNotFound, "There is no such page"},
		"a Go file":              {"/docs/docs.go", http.StatusNotFound, "There is no such page"},
		"up":                     {"/docs/../../etc/passwd.png", http.StatusNotFound, "There is no such page"},
		"another host":           {"/docs//evil.example/", http.StatusNotFound, "There is no such page"},
		"markup":                 {"/docs/%3Cscript%3E", http.StatusNotFound, "There is no such page"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := get(t, tt.path)
			got := w.Header().Get("Location")
			if w.Code != tt.status || got != tt.to && !strings.Contains(w.Body.String(), tt.to) {
				t.Errorf("status %d, location %q", w.Code, got)
			}
			if strings.Contains(w.Body.String(), "<script") {
				t.Error("the path became markup")
			}
		})
	}
}

func TestSearch(t *testing.T) {
	tests := map[string]struct {
		query       string
		has, hasNot []string
		least, most int // number of results
	}{
		"a call": {
			"createGroup", []string{`/docs/reference/GroupsService#GroupsService_CreateGroup`}, []string{"PingService"}, 1, 40,
		},
		"a path": {
			"get /registry/v2beta1/repos", []string{`#ReposService_ListRepos`}, []string{`#ReposService_CreateRepo"`}, 1, 40,
		},
		"a type":  {"rolebinding", []string{`#holdfast.iam.v2beta1.RoleBinding"`}, nil, 1, 50},
		"a title": {"signatures", []string{`<li><a href="/docs/signatures">`}, nil, 1, 50},
		"words of two sections of a page": {
			"retention pushed", []string{`/docs/retention`}, nil, 1, 50,
		},
		"a match is shown":    {"break-glass", []string{"<mark>break-glass</mark>"}, nil, 1, 50},
		"nothing":             {"zebra", []string{"0 results for “zebra”"}, nil, 0, 0},
		"no query":            {" ", []string{"Type what you look for"}, nil, 0, 0},
		"very much":           {"e", []string{"these are the first 50"}, nil, 50, 50},
		"hostile":             {`"><script>alert(1)</script>`, []string{"0 results"}, []string{"<script"}, 0, 0},
		"too long":            {strings.Repeat("é", 5000), []string{"0 results"}, []string{strings.Repeat("é", 51)}, 0, 0},
		"bytes of no meaning": {"\xff\xfe", []string{"<h1>"}, nil, 0, 50},
		"longer in lower":     {"Ⱥ", []string{"0 results"}, nil, 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			page := text(t, "/docs/search?q="+url.QueryEscape(tt.query))
			for _, want := range tt.has {
				if !strings.Contains(page, want) {
					t.Errorf("there is no %s", want)
				}
			}
			_, results, _ := strings.Cut(page, `<ol class="results">`)
			results, _, _ = strings.Cut(results, "</ol>")
			for _, bad := range tt.hasNot {
				if strings.Contains(results, bad) || bad == "<script" && strings.Contains(page, bad) {
					t.Errorf("there is %s", bad)
				}
			}
			if n := strings.Count(results, "<li>"); n < tt.least || n > tt.most {
				t.Errorf("there are %d results", n)
			}
		})
	}
}

// TestRendering checks how Markdown becomes a page: links, pictures, names of headings, and HTML, which is left out.
func TestRendering(t *testing.T) {
	files := fstest.MapFS{
		"README.md": {Data: []byte("# Start\n\n## Tasks\n\n[a page](sub/page.md#a-b_c)\n")},
		"sub/page.md": {Data: []byte("# A `b_c`!\n\n[up](../README.md#tasks) [root](../../Makefile) " +
			"[out](https://x.example)\n\n![p](p.png)\n\n" +
			"## A b_c\n\n## A b_c\n\n<script>alert(1)</script>\n\n[bad](javascript:alert(1))\n")},
	}
	w := httptest.NewRecorder()
	manual.Handler(files, openapi.Document).ServeHTTP(w,
		httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/docs/sub/page", nil))
	page := w.Body.String()
	for _, want := range []string{
		`<h1 id="a-b_c">A <code>b_c</code>!</h1>`, `<h2 id="a-b_c-1">`, `<h2 id="a-b_c-2">`, `<a href="/docs/#tasks">up</a>`,
		`/blob/main/Makefile">root</a>`, `<a href="https://x.example">out</a>`, `<img src="/docs/sub/p.png" alt="p">`,
		`<li><a href="/docs/sub/page#a-b_c">a page</a>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, bad := range []string{"<script", "javascript:"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}
