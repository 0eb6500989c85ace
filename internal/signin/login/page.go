package login

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
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

// A Frame is what all pages have in common.
type Frame struct {
	Page    string            // name of the page
	Flow    string            // id of the flow; hidden in every form of a sign-in
	CSRF    string            // hidden in every form of a session
	Problem string            // error that concerns the whole form
	Wrong   map[string]string // errors of fields
	Host    string            // host of the service
}

func (f *Frame) frame() *Frame { return f }

// wrong returns a frame with an error of one field.
func wrong(field, why string) Frame { return Frame{Wrong: map[string]string{field: why}} }

// setError shows an error in the frame: beside the fields it names, or at the
// top.
func (f *Frame) setError(err *fault.Error) {
	if len(err.Fields) == 0 {
		f.Problem = plainText(err)
		return
	}
	f.Wrong = map[string]string{}
	for _, v := range err.Fields {
		f.Wrong[v.Subject] = "It " + v.Description + "."
	}
}

type framed interface{ frame() *Frame }

// A Choice is a provider or an account that a person can continue with.
type Choice struct{ UID, Name, Organization string }

// An Invite describes what somebody was invited to.
type Invite struct {
	Organization, Group, Role, Email string
	May                              string // what the role allows, in words

	root resource.UID // the organization
}

type (
	signInPage struct {
		Frame
		Purpose, Organization string
		Providers             []Choice
		Local, Passkeys       bool
		Email                 string
		Asked                 string // the organization that was asked for, if there is none
		Invite                *Invite
		CanJoin               bool
		Again                 bool // they are signed in, and asked again
	}
	homePage struct {
		Frame
		Name    string // of who is signed in
		BaseURL string
		SetUp   bool // there is an organization
	}
	choosePage struct {
		Frame
		Email    string
		Accounts []Choice // accounts and their organizations
	}
	factorPage struct {
		Frame
		Email                   string
		TOTP, Passkey, Recovery bool
	}
	joinPage struct {
		Frame
		Invite *Invite
		Email  string
		Name   string
		Fixed  bool
	}
	confirmPage struct {
		Frame
		Purpose, Name, Email, Code string
		Organization               string    // organization of the account, if it is kept here
		Client, Agent, Address     string    // the requesting program, as it describes itself, and its address
		Asked                      time.Time // when it asked
		May, For                   string    // what its token would allow, and for how long
		Since                      time.Time // start of the session
		Invite                     *Invite
	}
	devicePage struct {
		Frame
		Code string
	}
	donePage struct {
		Frame
		Purpose, Text string
		Welcome       string // address of the page for those who have just joined, or ""
		Denied        bool
	}
	// A Claim is a claim about a person from a provider.
	Claim     struct{ Name, Value string }
	trialPage struct {
		Frame
		Provider, Redirect      string
		Claims                  []Claim
		Verified                bool
		Groups, Roles, Warnings []string
	}
	problemPage struct {
		Frame
		Title, Request string
	}
	linkPage struct {
		Frame
		Email, Organization string
		Reset               bool
	}
	// A shownRole is a role that a person holds.
	shownRole struct {
		Name, Place string // Place is the path of the group
		May, Source string // what it allows and where it comes from, in words
		Since       time.Time
	}
	welcomePage struct {
		Frame
		Name, Place string
		Roles       []shownRole
		Commands    []string // to run next
	}
	shownPasskey struct {
		ID, Name      string
		Created, Used time.Time
	}
	shownSession struct {
		ID, Agent, Address     string
		Created, Used, Expires time.Time
		Current                bool
	}
	accountPage struct {
		Frame
		Name, Email, Organization, Identity string
		Provider                            string // provider that vouched for the person
		Roles                               []shownRole
		MoreRoles                           int // that are not shown
		Local                               bool
		Passkeys                            []shownPasskey
		CanPasskey                          bool
		TOTP                                bool
		Factor                              bool // has a second factor, which recovery codes can replace
		RecoveryCodes                       int
		PasswordAlone                       bool // passkeys are not asked for after the password
		Added                               bool // a passkey, just now
		Sessions                            []shownSession
		Notice                              string
	}
	recoveryPage struct {
		Frame
		Email, Notice string
		Codes         []string
		Download      template.URL // the codes as a file
	}
	totpPage struct {
		Frame
		Secret   string
		QR, Link template.URL
	}
)

// templates are the pages by name.
type templates map[string]*template.Template

func parsePages(now func() time.Time) (templates, error) {
	names, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		return nil, err
	}
	all := templates{}
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
		all[base] = t
	}
	return all, nil
}

func date(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04 UTC")
}

// ago describes how long ago something was.
func ago(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if n := int(d / unit.of); n > 1 {
			return strconv.Itoa(n) + " " + unit.name + "s ago"
		} else if n == 1 {
			return "1 " + unit.name + " ago"
		}
	}
	return "just now"
}

// policy returns the Content-Security-Policy of a page: everything comes from
// this host, and forms may also lead to formsTo.
func policy(formsTo string) string {
	return "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"form-action 'self'" + formsTo + "; base-uri 'none'; frame-ancestors 'none'"
}

func secureHeaders(w http.ResponseWriter, formsTo string) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy(formsTo))
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// show writes a page. f is the flow it belongs to, or nil. It returns nil, so
// that a handler can end with it, as do redirect, problem and refuse.
func (s *Service) show(w http.ResponseWriter, r *http.Request, status int, name string, f *flow, data framed) error {
	fr := data.frame()
	fr.Page, fr.Host = name, s.origin.Host
	formsTo := ""
	if f != nil {
		fr.Flow = f.ID
		if u, ok := loopback(f.Redirect); ok {
			formsTo = " " + u.Scheme + "://" + u.Host
		}
	}
	var b bytes.Buffer
	if err := s.templates[name].ExecuteTemplate(&b, "layout", data); err != nil {
		s.log.ErrorContext(r.Context(), "render a page", "page", name, "err", err)
		http.Error(w, "Internal error", http.StatusInternalServerError)
		return nil
	}
	secureHeaders(w, formsTo)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
	return nil
}

// problem shows an error page.
func (s *Service) problem(w http.ResponseWriter, r *http.Request, status int, title, text string) error {
	p := &problemPage{Frame: Frame{Problem: text}, Title: title}
	if status >= http.StatusInternalServerError || s.mayLog(r) {
		actor := resource.ActorFrom(r.Context())
		p.Request = trace.Reference(r.Context(), actor.RequestID)
		s.log.InfoContext(r.Context(), "error page", "status", status, "title", title, "page", r.Pattern,
			"request", actor.RequestID, "remote", actor.Remote, "identity", actor.Subject)
	}
	return s.show(w, r, status, "problem", nil, p)
}

// A titledError is an error that is shown under a title of its own.
type titledError struct {
	error
	title string
}

func (e *titledError) Unwrap() error { return e.error }

func titled(title string, err error) error { return &titledError{err, title} }

const cannotBegin = "This sign-in cannot begin"

// handle serves h. It shows an error of h on an error page.
func (s *Service) handle(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		title := "This sign-in cannot go on"
		if t, ok := errors.AsType[*titledError](err); ok {
			title = t.title
		}
		f := s.report(r, err)
		_ = s.problem(w, r, f.Code.HTTPStatus(), title, plainText(f))
	}
}

// report returns err as a fault, and logs it if it is a failure of ours.
func (s *Service) report(r *http.Request, err error) *fault.Error {
	f := fault.From(err)
	if f.ServerSide() {
		s.log.ErrorContext(r.Context(), "sign-in", "path", r.URL.Path, "err", errors.Join(f, f.Cause),
			"request", resource.ActorFrom(r.Context()).RequestID)
	}
	return f
}

// logError logs an error that is not shown to anybody.
func (s *Service) logError(r *http.Request, err error) { _ = s.report(r, err) }

// plainText returns the message of an error without its prefix, which is for
// programs.
func plainText(f *fault.Error) string {
	text := f.Message
	if _, rest, ok := strings.Cut(text, ": "); ok && f.Code != fault.Internal {
		text = rest
	}
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// retryAfter sets the Retry-After header.
func retryAfter(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", fault.RetryAfter(wait))
}

// assetRoutes serves the files that pages refer to.
func (s *Service) assetRoutes(mux *http.ServeMux) {
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
			secureHeaders(w, "")
			h := w.Header()
			h.Set("Content-Type", kind)
			h.Set("Cache-Control", "public, max-age=3600")
			h.Set("ETag", tag)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		}
		mux.HandleFunc("GET /signin/"+name, serve)
		if name == "icon.svg" { // browsers ask for it without being told to
			mux.HandleFunc("GET /favicon.ico", serve)
		}
	}
}

// remote returns the host that a request comes from.
func remote(r *http.Request) string { return resource.HostOf(r.RemoteAddr) }

// network returns the network that the attempts of a request are counted for.
func network(r *http.Request) string { return resource.NetworkOf(remote(r)) }

const longestAgent = 256

// agent returns the User-Agent header of a request, sanitized.
func agent(r *http.Request) string {
	text := strings.ToValidUTF8(strings.ReplaceAll(r.UserAgent(), "\x00", ""), "")
	if len(text) > longestAgent {
		text = strings.ToValidUTF8(text[:longestAgent], "")
	}
	return text
}

// Program returns a short name for the program of a User-Agent header: the
// browser and its system, or the name that a command gives itself.
func Program(agent string) string {
	if !strings.HasPrefix(agent, "Mozilla/") {
		return agent
	}
	name, system := "A browser", ""
	for _, b := range []struct{ mark, name string }{ // first those that contain the marks of others, too
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"FxiOS/", "Firefox"},
		{"CriOS/", "Chrome"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"},
	} {
		if strings.Contains(agent, b.mark) {
			name = b.name
			break
		}
	}
	for _, s := range []struct{ mark, name string }{
		{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"CrOS", "ChromeOS"},
		{"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"Linux", "Linux"},
	} {
		if strings.Contains(agent, s.mark) {
			system = " on " + s.name
			break
		}
	}
	return name + system
}
