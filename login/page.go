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
	"math"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

//go:embed all:page
var files embed.FS

// A Frame is what every page shows.
type Frame struct {
	Page    string            // its name
	Flow    string            // the sign-in under way; hidden in every form of it
	CSRF    string            // hidden in every form of somebody signed in
	Problem string            // with the whole
	Wrong   map[string]string // with a field
	Host    string            // of the service
}

func (f *Frame) frame() *Frame { return f }

type framed interface{ frame() *Frame }

// A Choice is a provider that one can continue with.
type Choice struct{ UID, Name, Organization string }

// An Invite is what somebody was invited to.
type Invite struct{ Organization, Group, Role, Email string }

type (
	signInPage struct {
		Frame
		Purpose, Organization string
		Providers             []Choice
		Local, Passkeys       bool
		Email                 string
		Invite                *Invite
		CanJoin               bool
	}
	choosePage struct {
		Frame
		Email    string
		Accounts []Choice // of the account and its organization
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
		Organization               string    // of the account, if it is kept here
		Client, Agent, Address     string    // what asks, as it says itself, and from where
		Asked                      time.Time // when it did
		May, For                   string    // what it could do, and how long
		Since                      time.Time // one is signed in
		Invite                     *Invite
	}
	devicePage struct {
		Frame
		Code string
	}
	donePage struct {
		Frame
		Purpose, Text string
		Denied        bool
	}
	// A Claim is what a provider says of a person.
	Claim     struct{ Name, Value string }
	trialPage struct {
		Frame
		Provider                string
		Claims                  []Claim
		Verified                bool
		Groups, Roles, Warnings []string
	}
	problemPage struct {
		Frame
		Title, Request, Again string
	}
	linkPage struct {
		Frame
		Email, Organization string
		Reset               bool
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
		Provider                            string // that vouched for the person
		Local                               bool
		Passkeys                            []shownPasskey
		CanPasskey                          bool
		TOTP                                bool
		Factor                              bool // there is something to recover from the loss of
		RecoveryCodes                       int
		Sessions                            []shownSession
		Notice                              string
	}
	recoveryPage struct {
		Frame
		Email, Notice string
		Codes         []string
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
	names, err := fs.Glob(files, "page/*.html")
	if err != nil {
		return nil, err
	}
	all := templates{}
	for _, name := range names {
		base := strings.TrimSuffix(path.Base(name), ".html")
		if base == "layout" || strings.HasPrefix(base, "_") {
			continue
		}
		t := template.New(base).Funcs(template.FuncMap{"ago": func(t time.Time) string { return ago(now().Sub(t)) }, "date": date})
		if t, err = t.ParseFS(files, "page/layout.html", "page/_*.html", name); err != nil {
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

// ago says in words how long something lies back.
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

// policy is what a browser lets a page do: nothing but what comes from here,
// with forms that go here and to where the sign-in leads.
func policy(formsTo string) string {
	return "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'" +
		formsTo + "; base-uri 'none'; frame-ancestors 'none'"
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

// show writes a page. f is the sign-in it belongs to, or nil.
func (s *Service) show(w http.ResponseWriter, r *http.Request, status int, name string, f *flow, data framed) {
	fr := data.frame()
	fr.Page, fr.Host = name, s.origin.Host
	formsTo := ""
	if f != nil {
		fr.Flow = f.ID
		if f.Redirect != "" {
			formsTo = " " + originOf(f.Redirect)
		}
	}
	var b bytes.Buffer
	if err := s.templates[name].ExecuteTemplate(&b, "layout", data); err != nil {
		s.log.ErrorContext(r.Context(), "render a page", "page", name, "err", err)
		http.Error(w, "Internal error", http.StatusInternalServerError)
		return
	}
	secureHeaders(w, formsTo)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// problem shows that it does not go on.
func (s *Service) problem(w http.ResponseWriter, r *http.Request, status int, title, text string) {
	s.show(w, r, status, "problem", nil, &problemPage{
		Frame: Frame{Problem: text}, Title: title, Request: resource.ActorFrom(r.Context()).RequestID,
	})
}

// fail shows an error: what it says, if it is for people, or else only that it
// is logged.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, title string, err error) {
	f := s.report(r, err)
	s.problem(w, r, statusOf(f), title, plainText(f))
}

// report logs an error that is ours.
func (s *Service) report(r *http.Request, err error) *fault.Error {
	f := fault.From(err)
	if f.Code == fault.Internal || f.Code == fault.Unavailable {
		s.log.ErrorContext(r.Context(), "sign-in", "path", r.URL.Path, "err", errors.Join(f, f.Cause), "request", resource.ActorFrom(r.Context()).RequestID)
	}
	return f
}

// logError logs an error that nobody is told.
func (s *Service) logError(r *http.Request, err error) { _ = s.report(r, err) }

// plainText is an error without the prefix that programs go by.
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

func statusOf(f *fault.Error) int {
	switch f.Code {
	case fault.InvalidArgument, fault.FailedPrecondition:
		return http.StatusBadRequest
	case fault.Unauthenticated:
		return http.StatusUnauthorized
	case fault.PermissionDenied:
		return http.StatusForbidden
	case fault.NotFound:
		return http.StatusNotFound
	case fault.AlreadyExists:
		return http.StatusConflict
	case fault.ResourceExhausted:
		return http.StatusTooManyRequests
	case fault.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// retryAfter tells a client how long to wait.
func retryAfter(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}

// assetRoutes serves what pages refer to.
func (s *Service) assetRoutes(mux *http.ServeMux) {
	for name, kind := range map[string]string{
		"style.css": "text/css; charset=utf-8", "signin.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		content, err := files.ReadFile("page/" + name)
		if err != nil {
			continue
		}
		sum := sha256.Sum256(content)
		tag := `"` + hex.EncodeToString(sum[:8]) + `"`
		mux.HandleFunc("GET /signin/"+name, func(w http.ResponseWriter, r *http.Request) {
			secureHeaders(w, "")
			h := w.Header()
			h.Set("Content-Type", kind)
			h.Set("Cache-Control", "public, max-age=3600")
			h.Set("ETag", tag)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		})
	}
}

// remote is the address a request comes from.
func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

const longestAgent = 256

// agent is the program a request comes from, as it says itself.
func agent(r *http.Request) string {
	text := strings.ToValidUTF8(strings.ReplaceAll(r.UserAgent(), "\x00", ""), "")
	if len(text) > longestAgent {
		text = strings.ToValidUTF8(text[:longestAgent], "")
	}
	return text
}
