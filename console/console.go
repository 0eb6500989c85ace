// Package console is the console in the browser: a single-page app over the public
// JSON API, built from src with Vite. What was built, dist, is committed, so nobody
// needs Node to build the server.
package console

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed dist/index.html dist/assets
var dist embed.FS

// policy lets the app run its own scripts and call its own server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"frame-ancestors 'none'; form-action 'self'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types are the media types of the files in dist. The types that the operating system knows may differ.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// A file is a file of dist, which is served at its path.
type file struct {
	contentType string
	path        string        // in dist
	zipped      func() []byte // compressed at the first request; nil if that is not smaller
}

// Handler serves the app below /console/. Every path outside assets/ is a view of the app and gets index.html.
func Handler() http.Handler {
	served := files()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this path takes GET, HEAD", http.StatusMethodNotAllowed)
			return
		}
		name := strings.TrimPrefix(r.URL.Path, "/console/")
		if !strings.HasPrefix(name, "assets/") {
			h.Set("Cache-Control", "no-cache")
			served["index.html"].send(w, r)
			return
		}
		f, ok := served[name]
		if !ok {
			h.Set("Cache-Control", "no-store") // another replica may have it
			http.NotFound(w, r)
			return
		}
		h.Set("Cache-Control", "public, max-age=31536000, immutable") // its name has its digest
		f.send(w, r)
	})
}

func (f *file) send(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Vary", "Accept-Encoding")
	var body []byte
	if acceptsGzip(r) {
		body = f.zipped()
	}
	if body != nil {
		h.Set("Content-Encoding", "gzip")
	} else {
		body = read(f.path)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // fails only if the client has gone
	}
}

// acceptsGzip reports whether a client names gzip and does not refuse it.
func acceptsGzip(r *http.Request) bool {
	for _, line := range r.Header.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(line, ",") {
			coding, weight, _ := strings.Cut(part, ";")
			if strings.TrimSpace(coding) == "gzip" {
				return weight == "" || strings.Trim(weight, " q=.0") != ""
			}
		}
	}
	return false
}

// files returns all files by their names below dist.
var files = sync.OnceValue(func() map[string]*file {
	byName := map[string]*file{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			zipped := sync.OnceValue(func() []byte { return zip(name) })
			byName[strings.TrimPrefix(name, "dist/")] = &file{types[path.Ext(name)], name, zipped}
		}
		return err
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	return byName
})

func read(name string) []byte {
	plain, err := dist.ReadFile(name)
	if err != nil {
		panic(err) // the files are part of the program
	}
	return plain
}

// zip returns a file compressed, or nil if that is not smaller.
func zip(name string) []byte {
	plain := read(name)
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // fails only for another level
	if _, err := w.Write(plain); err != nil {
		return nil
	}
	if err := w.Close(); err != nil || b.Len() >= len(plain) {
		return nil
	}
	return b.Bytes()
}
