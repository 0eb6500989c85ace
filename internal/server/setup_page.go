package server

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/server/config"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	maxForm     = 64 << 10
	setupCookie = "hf_setup"
)

var setupForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`) // form of a code: 32 bytes in base64

var (
	//go:embed setup.html
	setupHTML string

	setupTemplate = template.Must(template.New("setup").Parse(setupHTML))
	setupPolicy   = "default-src 'none'; style-src 'self'; img-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

// A submission is a submitted form.
type submission struct {
	Code string `json:"code"`
	config.FirstOrganization
}

// A setupPage is the data of the template: the form and its errors, or the
// result.
type setupPage struct {
	submission
	BaseURL string
	Problem string            // error of the whole form
	Wrong   map[string]string // errors by field
	Closed  bool              // whether the form can no longer be submitted
	AskCode bool              // whether the form asks only for the code
	In      bool              // whether the owner is signed in with this browser
	Welcome *setupResult
}

// ServeHTTP shows the set-up form, and processes the submitted form. A program can submit
// it as JSON.
func (u *setup) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", setupPolicy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer") // the address contains the code
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if code := r.URL.Query().Get("code"); code != "" {
			u.moveCodeToCookie(w, r, code)
			return
		}
		var form submission
		if c, err := r.Cookie(setupCookie); err == nil {
			form.Code = c.Value
		}
		u.showForm(w, r, form)
	case http.MethodPost:
		u.submit(w, r)
	default:
		h.Set("Allow", "GET, HEAD, POST")
		u.refuse(w, r, submission{},
			fault.New(fault.Unimplemented, "Unimplemented: use GET to read the set-up form and POST to submit it"))
	}
}

// showForm shows the form to a client with a valid code, and asks other clients for
// the code. It checks the code before the form is filled in, so that no input is lost.
func (u *setup) showForm(w http.ResponseWriter, r *http.Request, form submission) {
	err := u.checkOpen(r.Context())
	if err == nil && form.Code != "" {
		_, err = u.check(r.Context(), form.Code, u.s.cfg.Now())
	}
	if err != nil {
		u.refuse(w, r, form, err)
		return
	}
	u.show(w, http.StatusOK, setupPage{submission: form, AskCode: form.Code == ""})
}

// moveCodeToCookie moves the code from the address, where it would stay in the
// browser's history, into a cookie. The form reads it from the cookie, so a form on
// another site does not have the code.
func (u *setup) moveCodeToCookie(w http.ResponseWriter, r *http.Request, code string) {
	if !setupForm.MatchString(code) {
		code = "wrong"
	}
	http.SetCookie(w, &http.Cookie{
		Name: setupCookie, Value: code, Path: "/setup", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(u.s.cfg.BaseURL, "https:"), MaxAge: int(setupLife.Seconds()),
	})
	http.Redirect(w, r, "/setup", http.StatusSeeOther)
}

func (u *setup) submit(w http.ResponseWriter, r *http.Request) {
	form, err := readSubmission(w, r)
	form.Code = cmp.Or(form.Code, r.URL.Query().Get("code")) // a program can post to the printed link
	if err != nil {
		u.refuse(w, r, form, err)
		return
	}
	done, err := u.finish(r.Context(), form.Code, form.FirstOrganization)
	if err != nil {
		u.refuse(w, r, form, err)
		return
	}
	if wantsJSON(r) {
		writeJSON(w, http.StatusOK, done)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: setupCookie, Path: "/setup", MaxAge: -1})
	form.Code, form.Password = "", ""
	u.show(w, http.StatusOK, setupPage{submission: form, Welcome: &done, In: u.signIn(w, r, done.account)})
}

// signIn signs the owner in with the browser that has set up the server, if the
// pages for people are at the same host. It reports whether the owner is signed in.
func (u *setup) signIn(w http.ResponseWriter, r *http.Request, a resource.Account) bool {
	base, auth := hostOf(u.s.cfg.BaseURL), hostOf(u.s.cfg.AuthURL)
	if a.UID == "" || base != auth {
		return false
	}
	if err := u.s.login.StartSession(w, r, a); err != nil {
		u.s.log.WarnContext(r.Context(), "cannot sign in the owner after set-up", "err", err)
		return false
	}
	return true
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Host
}

func readSubmission(w http.ResponseWriter, r *http.Request) (submission, error) {
	var s submission
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if isJSON(r.Header.Get("Content-Type")) {
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&s); err != nil {
			return s, fault.Field("body", "must be an object of code, organization, "+
				"and ownerEmail, ownerName and ownerPassword, or ownerIssuer and ownerSubject")
		}
		return s, nil
	}
	if err := r.ParseForm(); err != nil {
		return s, fault.Field("body", "must be a form of at most 64 KiB")
	}
	field := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	s.Code = field("code")
	s.FirstOrganization = config.FirstOrganization{
		Name: field("organization"), Issuer: field("owner_issuer"), Subject: field("owner_subject"),
		Email: field("owner_email"), Person: field("owner_name"), Password: r.PostForm.Get("owner_password"),
	}
	return s, nil
}

// refuse shows an error, together with the form if it can still be submitted.
func (u *setup) refuse(w http.ResponseWriter, r *http.Request, form submission, err error) {
	f := fault.From(err)
	if f.ServerSide() {
		u.s.log.ErrorContext(r.Context(), "set-up failed", "err", errors.Join(f, f.Cause))
	}
	if wantsJSON(r) {
		writeFault(w, f, u.s.cfg.ErrorDomain)
		return
	}
	form.Password = "" // a page never repeats a password
	page := setupPage{submission: form, Problem: f.Message, Wrong: map[string]string{}}
	page.Closed = f.Code != fault.InvalidArgument && f.Code != fault.ResourceExhausted && f.Code != fault.Unavailable
	for _, v := range f.Fields {
		page.Wrong[v.Subject] = v.Description
	}
	if len(f.Fields) > 0 {
		page.Problem = "Some fields need another value. The set-up code is still valid."
	}
	u.show(w, f.Code.HTTPStatus(), page)
}

func (u *setup) show(w http.ResponseWriter, status int, page setupPage) {
	page.BaseURL = u.s.cfg.BaseURL
	var b strings.Builder
	if err := setupTemplate.Execute(&b, page); err != nil {
		u.s.log.Error("render the set-up page", "err", err)
		http.Error(w, "Internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write([]byte(b.String()))
}

// wantsJSON reports whether the client is a program, by its Accept header or
// else by its Content-Type.
func wantsJSON(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	if strings.Contains(accept, "text/html") {
		return false
	}
	return strings.Contains(accept, "application/json") || isJSON(r.Header.Get("Content-Type"))
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}
