package site

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

//go:embed all:pages
var files embed.FS

// A Frame holds the data that all pages share.
type Frame struct {
	Page    string            // name of the page
	Flow    string            // id of the flow; a hidden field of every sign-in form
	CSRF    string            // CSRF token; a hidden field of every form of a session
	Problem string            // error that concerns the whole form
	Wrong   map[string]string // errors by field
	Host    string            // host of the service
	FormsTo string            // another origin to which forms may lead, or ""
}

// PageFrame implements Page.
func (f *Frame) PageFrame() *Frame { return f }

// Wrong returns a frame with an error of one field.
func Wrong(field, problem string) Frame { return Frame{Wrong: map[string]string{field: problem}} }

// SetError adds an error to the frame. It is shown at the fields that it names, or at
// the top.
func (f *Frame) SetError(err *fault.Error) {
	if len(err.Fields) == 0 {
		f.Problem = PlainText(err)
		return
	}
	f.Wrong = map[string]string{}
	for _, v := range err.Fields {
		f.Wrong[v.Subject] = "It " + v.Description + "."
	}
}

// A Page is the data of a page. A type implements it by embedding a Frame.
type Page interface{ PageFrame() *Frame }

// A problemPage shows an error.
type problemPage struct {
	Frame
	Title, Request string
}

// A DonePage shows that a sign-in or sign-out is finished.
type DonePage struct {
	Frame
	Purpose, Text string
	Welcome       string // address of the welcome page for a person who has just joined, or ""
	Denied        bool
}

// templates maps the names of pages to their templates.
type templates map[string]*template.Template

func parsePages(now func() time.Time) (templates, error) {
	names, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		return nil, err
	}
	parsed := templates{}
	for _, name := range names {
		base := strings.TrimSuffix(path.Base(name), ".html")
		if base == "layout" || strings.HasPrefix(base, "_") {
			continue
		}
		t := template.New(base).Funcs(template.FuncMap{
			"ago": func(t time.Time) string { return ago(now().Sub(t)) }, "date": date,
		})
		if t, err = t.ParseFS(files, "pages/layout.html", "pages/_*.html", name); err != nil {
			return nil, fmt.Errorf("page %s: %w", base, err)
		}
		parsed[base] = t
	}
	return parsed, nil
}

func date(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04 UTC")
}

// ago describes a time in the past, for example "2 days ago".
func ago(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if n := int(d / unit.length); n > 1 {
			return strconv.Itoa(n) + " " + unit.name + "s ago"
		} else if n == 1 {
			return "1 " + unit.name + " ago"
		}
	}
	return "just now"
}

// policy returns the Content-Security-Policy of a page. All resources must come from
// this host. Forms may also lead to the origin formsTo, if it is not "".
func policy(formsTo string) string {
	if formsTo != "" {
		formsTo = " " + formsTo
	}
	return "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"form-action 'self'" + formsTo + "; base-uri 'none'; frame-ancestors 'none'"
}

// SecureHeaders sets the security headers of a response. Forms of the page may also lead
// to the origin formsTo, if it is not "".
func SecureHeaders(w http.ResponseWriter, formsTo string) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy(formsTo))
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// Show writes the page of that name. It returns nil, so that a handler can end
// with it, as do Redirect and Problem.
func (s *Site) Show(w http.ResponseWriter, r *http.Request, status int, name string, data Page) error {
	fr := data.PageFrame()
	fr.Page, fr.Host = name, s.origin.Host
	var b bytes.Buffer
	if err := s.templates[name].ExecuteTemplate(&b, "layout", data); err != nil {
		s.log.ErrorContext(r.Context(), "render a page", "page", name, "err", err)
		http.Error(w, "Internal error", http.StatusInternalServerError)
		return nil
	}
	SecureHeaders(w, fr.FormsTo)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
	return nil
}

// Problem shows an error page. It returns nil, so that a handler can end with it.
func (s *Site) Problem(w http.ResponseWriter, r *http.Request, status int, title, text string) error {
	p := &problemPage{Frame: Frame{Problem: text}, Title: title}
	if status >= http.StatusInternalServerError || s.MayLog(r) {
		actor := resource.ActorFrom(r.Context())
		p.Request = trace.Reference(r.Context(), actor.RequestID)
		s.log.InfoContext(r.Context(), "error page", "status", status, "title", title, "page", r.Pattern,
			"request", actor.RequestID, "remote", actor.Remote, "identity", actor.Subject)
	}
	return s.Show(w, r, status, "problem", p)
}

// A TitledError is an error with the title of its error page.
type TitledError struct {
	error
	title string
}

func (e *TitledError) Unwrap() error { return e.error }

// Titled returns err with the title of its error page.
func Titled(title string, err error) error { return &TitledError{err, title} }

// Handle returns a handler that calls h and shows its error on an error page.
func (s *Site) Handle(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		title := "This sign-in cannot go on"
		if t, ok := errors.AsType[*TitledError](err); ok {
			title = t.title
		}
		f := s.Report(r, err)
		_ = s.Problem(w, r, f.Code.HTTPStatus(), title, PlainText(f))
	}
}

// Report returns err as a fault, and logs it if the failure is on our side.
func (s *Site) Report(r *http.Request, err error) *fault.Error {
	f := fault.From(err)
	if f.ServerSide() {
		s.log.ErrorContext(r.Context(), "sign-in", "path", r.URL.Path, "err", errors.Join(f, f.Cause),
			"request", resource.ActorFrom(r.Context()).RequestID)
	}
	return f
}

// LogError logs an error that is shown to nobody, if the failure is on our side.
func (s *Site) LogError(r *http.Request, err error) { _ = s.Report(r, err) }

// PlainText returns the message of an error as a sentence, without the prefix for
// programs.
func PlainText(f *fault.Error) string {
	text := f.Message
	if _, rest, ok := strings.Cut(text, ": "); ok && f.Code != fault.Internal {
		text = rest
	}
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// RetryAfter sets the Retry-After header.
func RetryAfter(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", fault.RetryAfter(wait))
}
