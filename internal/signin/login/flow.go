package login

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	flowLife   = 15 * time.Minute
	flowCookie = "hf_flow_"
	sealedFlow = "sign-in"
	maxCookie  = 3800 // browsers store 4096 bytes, including name and attributes
	maxForm    = 64 << 10

	// A browser sends the cookies of all its current sign-ins with every request.
	// Most proxies accept 8 KiB of them.
	maxFlows     = 8
	maxFlowBytes = 5 << 10
)

// The purposes of a sign-in.
const (
	forCommand  = "command"  // a program on this computer that listens on a port
	forHeadless = "headless" // a program elsewhere that has shown a public key
	forDevice   = "device"   // a program elsewhere that has shown a user code
	forBrowser  = "browser"  // the browser itself
	forTrial    = "trial"    // a test of a provider; nobody is signed in
)

// A flow is the state of a sign-in. It is stored in a sealed cookie named for
// its id, so knowing the id is of no use in another browser.
type flow struct {
	ID      string `json:"id"`
	Expires int64  `json:"exp"` // in seconds
	Purpose string `json:"for"`

	Redirect       string   `json:"redirect,omitempty"`  // address where the command listens
	State          string   `json:"state,omitempty"`     // state that the command gets back
	Challenge      string   `json:"challenge,omitempty"` // PKCE code challenge of the command
	Client         string   `json:"client,omitempty"`
	Audience       []string `json:"aud,omitempty"`
	Scopes         []string `json:"scopes,omitempty"`
	Identity       string   `json:"identity,omitempty"` // identity to assume
	Refresh        bool     `json:"refresh,omitempty"`
	RegisteredOnly bool     `json:"known,omitempty"` // admit only people who are registered already
	Invite         string   `json:"invite,omitempty"`
	Headless       string   `json:"headless,omitempty"`
	UserCode       string   `json:"userCode,omitempty"`
	Return         string   `json:"return,omitempty"` // view of the console to go to; see returnTo
	Again          bool     `json:"again,omitempty"`  // they must prove who they are though there is a session

	Organization  resource.UID `json:"org,omitempty"` // organization that was chosen
	Provider      resource.UID `json:"idp,omitempty"` // provider that the browser was sent to
	UpstreamState string       `json:"leg,omitempty"` // state parameter of the request to the provider
	Nonce         string       `json:"nonce,omitempty"`
	Verifier      string       `json:"verifier,omitempty"`

	Proofs         []passwordProof `json:"accounts,omitempty"` // accounts with the right password, to choose from
	PasswordDigest string          `json:"halfway,omitempty"`  // digest of the password hash of Account
	Account        resource.UID    `json:"account,omitempty"`  // account whose second factor is missing
	WebAuthn       json.RawMessage `json:"webauthn,omitempty"` // the WebAuthn ceremony
	Session        string          `json:"session,omitempty"`  // session that this sign-in started
	Joined         resource.UID    `json:"joined,omitempty"`   // group that it has joined with an invite
	Method         string          `json:"method,omitempty"`   // how the person has signed in so far, for the audit log
	Factor         string          `json:"factor,omitempty"`
}

// A passwordProof records that the password of an account was right. It is
// void if the password is changed in the meantime.
type passwordProof struct {
	Account  resource.UID `json:"account"`
	Password string       `json:"password"` // digest of the password hash
}

func proofFor(a resource.Account) passwordProof {
	return passwordProof{a.UID, base64.RawURLEncoding.EncodeToString(digest("halfway " + a.Password)[:12])}
}

// setPasswordProof records that the password of an account was right.
func (f *flow) setPasswordProof(a resource.Account) {
	f.Account, f.PasswordDigest = a.UID, proofFor(a).Password
}

// provesPassword reports whether the password of an account was right in this
// flow and has not changed since.
func (f *flow) provesPassword(a resource.Account) bool {
	return f.Account == a.UID && f.PasswordDigest == proofFor(a).Password
}

func newID() string { return rand.Text() }

func digest(text string) []byte {
	d := sha256.Sum256([]byte(text))
	return d[:]
}

// cookie returns a cookie that scripts cannot read, that other sites do not
// send along with forms, and that over https no other host can set. An empty
// value deletes the cookie.
func (s *Service) cookie(name, value string, life time.Duration) *http.Cookie {
	c := &http.Cookie{
		Name: s.cookieName(name), Value: value, Path: "/",
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: s.origin.Scheme == "https",
	}
	if c.MaxAge = int(life.Seconds()); value == "" {
		c.MaxAge = -1
	}
	return c
}

func (s *Service) cookieName(name string) string {
	if s.origin.Scheme == "https" {
		return "__Host-" + name
	}
	return name
}

// sealedCookie returns a cookie that only openCookie with the same purpose can
// read.
func (s *Service) sealedCookie(name, purpose string, plain []byte, life time.Duration) *http.Cookie {
	return s.cookie(name, base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal(purpose, plain)), life)
}

// openCookie returns the content of a sealed cookie, or false if there is none.
func (s *Service) openCookie(r *http.Request, name, purpose string) ([]byte, bool) {
	c, err := r.Cookie(s.cookieName(name))
	if err != nil {
		return nil, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return nil, false
	}
	plain, err := s.cfg.Key.Open(purpose, sealed)
	return plain, err == nil
}

// saveFlow stores a flow in its cookie, and reports whether it fits. If the
// browser has too many others, the oldest are deleted.
func (s *Service) saveFlow(w http.ResponseWriter, r *http.Request, f *flow) bool {
	b, err := json.Marshal(f)
	if err != nil {
		return false
	}
	c := s.sealedCookie(flowCookie+f.ID, sealedFlow, b, flowLife)
	if len(c.Value) > maxCookie {
		return false
	}
	s.deleteOldestFlows(w, r, f.ID, len(c.Value))
	http.SetCookie(w, c)
	return true
}

// deleteOldestFlows deletes flows of the browser, the oldest first, until
// there is room for the flow of that id and size. It also deletes cookies that
// are not flows, or no longer.
func (s *Service) deleteOldestFlows(w http.ResponseWriter, r *http.Request, id string, size int) {
	type other struct {
		id      string
		expires int64
		size    int
	}
	var others []other
	for _, c := range r.Cookies() {
		o := other{size: len(c.Value)}
		var ours bool
		if o.id, ours = strings.CutPrefix(c.Name, s.cookieName(flowCookie)); !ours || o.id == id {
			continue
		}
		if f := s.loadFlow(r, o.id); f != nil {
			o.expires = f.Expires
		}
		others = append(others, o)
	}
	slices.Reverse(others) // browsers send the oldest first: among those of one second, the newest comes first now
	slices.SortStableFunc(others, func(a, b other) int { return cmp.Compare(b.expires, a.expires) })
	for i, o := range others {
		if size += o.size; o.expires == 0 || i+1 >= maxFlows || size > maxFlowBytes {
			http.SetCookie(w, s.cookie(flowCookie+o.id, "", 0))
		}
	}
}

// deleteFlow ends a flow in its browser.
func (s *Service) deleteFlow(w http.ResponseWriter, f *flow) {
	http.SetCookie(w, s.cookie(flowCookie+f.ID, "", 0))
}

var flowID = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// loadFlow returns the flow of that id, if this is its browser and it has not
// expired.
func (s *Service) loadFlow(r *http.Request, id string) *flow {
	if !flowID.MatchString(id) {
		return nil
	}
	b, ok := s.openCookie(r, flowCookie+id, sealedFlow)
	var f flow
	if !ok || json.Unmarshal(b, &f) != nil || f.ID != id || s.cfg.Now().Unix() >= f.Expires {
		return nil
	}
	return &f
}

// requestFlow returns the flow that a request names in its query or form. If
// there is none it shows that to the person and returns nil.
func (s *Service) requestFlow(w http.ResponseWriter, r *http.Request) *flow {
	if f := s.loadFlow(r, s.field(w, r, "flow")); f != nil {
		return f
	}
	_ = s.problem(w, r, http.StatusBadRequest, "This sign-in is over",
		"It took too long, was finished already, or was begun in another browser. "+
			"Start again from the program that sent you here.")
	return nil
}

// withFlow calls next with the flow that a request names.
func (s *Service) withFlow(next func(http.ResponseWriter, *http.Request, *flow) error) http.HandlerFunc {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		if f := s.requestFlow(w, r); f != nil {
			return next(w, r, f)
		}
		return nil
	})
}

// field returns a field of a form, or of the query of a GET request.
func (s *Service) field(w http.ResponseWriter, r *http.Request, name string) string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return r.URL.Query().Get(name)
	}
	if r.PostForm == nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		_ = r.ParseForm() // fields that cannot be read are empty
	}
	if text := r.PostForm.Get(name); readable(text) {
		return text
	}
	return ""
}

// readable reports whether a text can be used in a query of the database:
// UTF-8 without NUL. Browsers send no other text by themselves.
func readable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// withReadableQuery refuses requests whose query is not readable.
func (s *Service) withReadableQuery(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		if text, err := url.QueryUnescape(r.URL.RawQuery); err == nil && !readable(text) {
			return s.problem(w, r, http.StatusBadRequest, "This address is malformed",
				"Start again from the program that sent you here.")
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// loopback parses an address and reports whether it is a loopback address,
// where a program on this computer can listen. Nothing is ever delivered to
// another host.
func loopback(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	if err != nil || len(text) > 1024 || u.Scheme != "http" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return nil, false
	}
	return u, isLoopbackHost(u.Hostname()) && !strings.ContainsAny(text, "\\\r\n")
}
