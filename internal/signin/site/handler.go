package site

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
)

// WithActor gives each request an id and a trace span, and attributes its changes to
// the address that sent it.
func (s *Site) WithActor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := trace.Begin(r.Context(), "page", r.Header.Get(trace.Header))
		defer span.End(nil)
		actor := resource.Actor{RequestID: rand.Text(), Remote: input.Remote(r)}
		r = r.WithContext(resource.WithActor(ctx, actor))
		next.ServeHTTP(w, r)
		span.Name(r.Pattern)
	})
}

// WithReadableQuery refuses requests whose query is not valid text.
func (s *Site) WithReadableQuery(next http.Handler) http.Handler {
	return s.Handle(func(w http.ResponseWriter, r *http.Request) error {
		if text, err := url.QueryUnescape(r.URL.RawQuery); err == nil && !input.Readable(text) {
			return s.Problem(w, r, http.StatusBadRequest, "This address is malformed",
				"Start again from the program that sent you here.")
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// Redirect redirects the browser to an address, which is a path of this site unless it
// has a host. It returns nil, so that a handler can end with it.
func Redirect(w http.ResponseWriter, r *http.Request, address string) error {
	SecureHeaders(w, "")
	http.Redirect(w, r, address, http.StatusSeeOther)
	return nil
}

// AssetRoutes adds the routes of the files that pages refer to.
func (s *Site) AssetRoutes(mux *http.ServeMux) {
	for name, kind := range map[string]string{
		"style.css": "text/css; charset=utf-8", "signin.js": "text/javascript; charset=utf-8",
		"icon.svg": "image/svg+xml",
	} {
		content, err := files.ReadFile("pages/" + name)
		if err != nil {
			continue
		}
		sum := sha256.Sum256(content)
		tag := `"` + hex.EncodeToString(sum[:8]) + `"`
		serve := func(w http.ResponseWriter, r *http.Request) {
			SecureHeaders(w, "")
			h := w.Header()
			h.Set("Content-Type", kind)
			h.Set("Cache-Control", "public, max-age=3600")
			h.Set("ETag", tag)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		}
		mux.HandleFunc("GET /signin/"+name, serve)
		if name == "icon.svg" { // browsers request this file on their own
			mux.HandleFunc("GET /favicon.ico", serve)
		}
	}
}

// URL returns the public address of one of our paths.
func (s *Site) URL(path string) string { return strings.TrimSuffix(s.cfg.Issuer, "/") + path }

// WantsPage reports whether a person opens an address in a browser. A program requests
// JSON or any type, or sends a token.
func WantsPage(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Authorization") == "" &&
		strings.Contains(r.Header.Get("Accept"), "text/html")
}

// ServeMissing shows the page for an address that does not exist. Programs get a plain
// 404.
func (s *Site) ServeMissing(w http.ResponseWriter, r *http.Request) error {
	if !WantsPage(r) {
		http.NotFound(w, r)
		return nil
	}
	return s.Problem(w, r, http.StatusNotFound, "There is nothing here",
		"Check the address, or start from the first page of this server.")
}

// Missing serves addresses that do not exist.
func (s *Site) Missing() http.Handler { return s.WithActor(s.Handle(s.ServeMissing)) }
