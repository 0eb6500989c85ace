// Package manual serves the documentation at /docs: the pages of docs/ and the reference of the API, with a search. The
// pages have no scripts and no content from other servers.
package manual

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/api/reference"
)

// Prefix begins the paths of all pages.
const Prefix = "/docs/"

const (
	apiFolder  = "reference/" // the pages of the API's services
	searchPage = "search"     // the results of a search
	stylePage  = "style.css"
)

//go:embed *.html style.css
var assets embed.FS

// Handler serves the pages in files, and the reference of an OpenAPI document. It renders them once, at the first
// request, because most servers get none.
func Handler(files fs.FS, openapi []byte) http.Handler {
	made := sync.OnceValues(func() (*manual, error) { return newManual(files, openapi) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := made()
		if err != nil {
			http.Error(w, "the documentation cannot be rendered", http.StatusInternalServerError)
			return
		}
		m.ServeHTTP(w, r)
	})
}

// A manual has everything that is served.
type manual struct {
	files     fs.FS
	style     []byte
	templates *template.Template
	order     []*page // the pages of docs/; the first page has the path ""
	contents  []chapter
	entries   []entry
	reference reference.Reference
	written   map[string][]byte // HTML of the pages and services, by path below Prefix
}

func newManual(files fs.FS, openapi []byte) (m *manual, err error) {
	m = &manual{files: files, written: map[string][]byte{}}
	if m.style, err = assets.ReadFile(stylePage); err != nil {
		return nil, err
	}
	if m.templates, err = template.ParseFS(assets, "*.html"); err != nil {
		return nil, fmt.Errorf("read the templates: %w", err)
	}
	if m.reference, err = reference.Read(openapi); err != nil {
		return nil, err
	}
	if err := m.readPages(); err != nil {
		return nil, err
	}
	m.entries = m.index()
	return m, m.writeAll()
}

// A view is what a template shows. Only one of the last fields is set.
type view struct {
	Title, Path string
	Contents    []chapter
	Page        *page
	Reference   *reference.Reference
	Service     *reference.Service
	Search      *results
}

// writeAll writes the pages that are the same for every request.
func (m *manual) writeAll() error {
	views := map[string]view{apiFolder: {Title: "API reference", Reference: &m.reference}}
	for _, p := range m.order {
		views[p.Path] = view{Title: p.Title, Page: p}
	}
	for i := range m.reference.Services {
		s := &m.reference.Services[i]
		views[apiFolder+s.Name] = view{Title: s.Name, Service: s}
	}
	for name, v := range views {
		v.Path = name
		text, err := m.write(v)
		if err != nil {
			return err
		}
		m.written[name] = text
	}
	return nil
}

func (m *manual) write(v view) ([]byte, error) {
	v.Contents = m.contents
	var b bytes.Buffer
	err := m.templates.ExecuteTemplate(&b, "layout.html", v)
	return b.Bytes(), err
}

func (m *manual) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, strings.TrimSuffix(Prefix, "/")), "/")
	query := r.URL.Query().Get("q")
	switch ext := path.Ext(name); {
	case name == "" && query != "":
		http.Redirect(w, r, Prefix+searchPage+"?"+r.URL.RawQuery, http.StatusFound) // the search of earlier versions
	case name == searchPage:
		m.serve(w, r, http.StatusOK, view{Title: "Search", Path: name, Search: m.search(query)})
	case name == stylePage:
		send(w, r, http.StatusOK, "text/css; charset=utf-8", m.style)
	case ext == ".md":
		m.redirect(w, r, strings.TrimSuffix(name, ext))
	case ext == ".png", ext == ".svg":
		m.servePicture(w, r, name)
	case m.written[name] != nil:
		send(w, r, http.StatusOK, htmlType, m.written[name])
	case strings.HasSuffix(name, "/"), m.written[name+"/"] != nil:
		m.redirect(w, r, strings.TrimSuffix(name, "/"))
	default:
		m.serveMissing(w, r, name)
	}
}

// redirect leads to a page if there is one with this path, or with the path and a slash.
func (m *manual) redirect(w http.ResponseWriter, r *http.Request, name string) {
	if path.Base(name) == indexName {
		name = strings.TrimSuffix(name, indexName)
	}
	for _, target := range []string{name, name + "/"} {
		if m.written[target] != nil && target != strings.TrimPrefix(r.URL.Path, Prefix) {
			http.Redirect(w, r, Prefix+target, http.StatusMovedPermanently)
			return
		}
	}
	m.serveMissing(w, r, name)
}

// serveMissing answers a request for a page that does not exist with a search for the words of its path.
func (m *manual) serveMissing(w http.ResponseWriter, r *http.Request, name string) {
	found := m.search(strings.Join(wordsOf(name), " "))
	found.Missing = true
	m.serve(w, r, http.StatusNotFound, view{Title: "Page not found", Path: name, Search: found})
}

func (m *manual) serve(w http.ResponseWriter, r *http.Request, status int, v view) {
	text, err := m.write(v)
	if err != nil {
		http.Error(w, "the page cannot be written", http.StatusInternalServerError)
		return
	}
	send(w, r, status, htmlType, text)
}

func (m *manual) servePicture(w http.ResponseWriter, r *http.Request, name string) {
	content, err := fs.ReadFile(m.files, name)
	if err != nil {
		m.serveMissing(w, r, name)
		return
	}
	setHeaders(w.Header())
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

const htmlType = "text/html; charset=utf-8"

func send(w http.ResponseWriter, r *http.Request, status int, contentType string, content []byte) {
	setHeaders(w.Header())
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(content) // fails only if the client has disconnected
	}
}

func setHeaders(head http.Header) {
	head.Set("Content-Security-Policy", "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self'; "+
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'") // pictures have styles in them
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-cache")
}
