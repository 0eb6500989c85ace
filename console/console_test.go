package console_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/console"
)

// TestDistIsCurrent checks that dist was built from the present sources. It computes the same digest as sources.js.
func TestDistIsCurrent(t *testing.T) {
	names := []string{
		"../internal/access/workload/platforms.json",
		"index.html", "package-lock.json", "package.json", "sources.js", "tsconfig.json", "vite.config.js",
	}
	err := filepath.WalkDir("src", func(name string, d fs.DirEntry, err error) error {
		if name = filepath.ToSlash(name); err == nil && !d.IsDir() && name != "src/api/schema.d.ts" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	all := sha256.New()
	for _, name := range names {
		text, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(all, "%x  %s\n", sha256.Sum256(text), name)
	}
	built, err := os.ReadFile("dist/sources.sum")
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(all.Sum(nil)); got != strings.TrimSpace(string(built)) {
		t.Errorf("dist was built from other sources: run make console")
	}
}

var (
	staticImport  = regexp.MustCompile(`(?:\bfrom|\bimport)\s*"\./([^"]+\.js)"`)
	dynamicImport = regexp.MustCompile(`\bimport\("\./([^"]+\.js)"\)`)
	entryScript   = regexp.MustCompile(`<script type="module"[^>]* src="/console/assets/([^"]+)"`)
)

const kB = 1000

// TestBudgets holds the console to its promise: 60 KB of compressed script until something
// is shown, and 150 KB for any view.
func TestBudgets(t *testing.T) {
	page, err := os.ReadFile("dist/index.html")
	if err != nil {
		t.Fatal(err)
	}
	found := entryScript.FindSubmatch(page)
	if found == nil {
		t.Fatalf("index.html has no script:\n%s", page)
	}
	entry := string(found[1])
	first := closure(t, entry)
	size := compressed(t, first)
	t.Logf("%s and what it imports: %.1f KB", entry, float64(size)/kB)
	if size > 60*kB {
		t.Errorf("the first view needs %d bytes of script, more than 60 KB", size)
	}
	views := dynamicImport.FindAllSubmatch(asset(t, entry), -1)
	if len(views) < 5 {
		t.Errorf("the entry loads %d views when they are needed, want all", len(views))
	}
	for _, v := range views {
		view := closure(t, string(v[1]))
		for name := range first {
			view[name] = true
		}
		size := compressed(t, view)
		t.Logf("with %s: %.1f KB", v[1], float64(size)/kB)
		if size > 150*kB {
			t.Errorf("%s needs %d bytes of script, more than 150 KB", v[1], size)
		}
	}
}

// closure returns a script and the scripts that it imports before it runs.
func closure(t *testing.T, script string) map[string]bool {
	t.Helper()
	all, next := map[string]bool{}, []string{script}
	for len(next) > 0 {
		name := next[0]
		if next = next[1:]; all[name] {
			continue
		}
		all[name] = true
		for _, m := range staticImport.FindAllSubmatch(asset(t, name), -1) {
			next = append(next, string(m[1]))
		}
	}
	return all
}

func asset(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("dist", "assets", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func compressed(t *testing.T, scripts map[string]bool) (size int) {
	t.Helper()
	for name := range scripts {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(asset(t, name)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		size += b.Len()
	}
	return size
}

func TestHandler(t *testing.T) {
	page, err := os.ReadFile("dist/index.html")
	if err != nil {
		t.Fatal(err)
	}
	script := "/console/assets/" + string(entryScript.FindSubmatch(page)[1])
	view := "/console/groups/" + strings.Repeat("0", 40)
	const (
		html    = "text/html; charset=utf-8"
		js      = "text/javascript; charset=utf-8"
		forever = "public, max-age=31536000, immutable"
	)
	tests := map[string]struct {
		method, path string
		status       int
		cache, kind  string
	}{
		"the page":                 {"GET", "/console/", 200, "no-cache", html},
		"a view":                   {"GET", view, 200, "no-cache", html},
		"a script":                 {"GET", script, 200, forever, js},
		"a script of another time": {"GET", "/console/assets/main-gone.js", 404, "no-store", "text/plain; charset=utf-8"},
		"a write":                  {"POST", "/console/", 405, "", "text/plain; charset=utf-8"},
	}
	h := console.Handler()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil))
			got := w.Result()
			defer func() { _ = got.Body.Close() }() // it is in memory
			cache, kind := got.Header.Get("Cache-Control"), got.Header.Get("Content-Type")
			if got.StatusCode != tt.status || cache != tt.cache || kind != tt.kind {
				t.Errorf("%d, %q, %q", got.StatusCode, cache, kind)
			}
			for header, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
			} {
				if got.Header.Get(header) != want {
					t.Errorf("%s = %q, want %q", header, got.Header.Get(header), want)
				}
			}
			p := got.Header.Get("Content-Security-Policy")
			if !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") {
				t.Errorf("the policy is %q", p)
			}
		})
	}
}

// TestCompression checks that clients get the same content with and without gzip.
func TestCompression(t *testing.T) {
	h := console.Handler()
	get := func(accept string) *http.Response {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console/", nil)
		r.Header.Set("Accept-Encoding", accept)
		h.ServeHTTP(w, r)
		return w.Result()
	}
	plain, err := io.ReadAll(get("br").Body)
	if err != nil {
		t.Fatal(err)
	}
	encodings := map[string]string{"gzip, deflate, br": "gzip", "gzip;q=0.5": "gzip", "gzip;q=0": "", "": ""}
	for accept, want := range encodings {
		answer := get(accept)
		if got := answer.Header.Get("Content-Encoding"); got != want {
			t.Errorf("to %q the encoding is %q, want %q", accept, got, want)
		}
		if want == "" {
			continue
		}
		z, err := gzip.NewReader(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("to %q: %v, %d bytes", accept, err, len(got))
		}
	}
}
