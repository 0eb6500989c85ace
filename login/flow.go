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

	"github.com/holdfast-dev/holdfast/resource"
)

const (
	flowLife   = 15 * time.Minute
	flowCookie = "hf_flow_"
	sealedFlow = "sign-in"
	maxCookie  = 3800 // browsers keep 4096 bytes with the name and the attributes
	maxForm    = 64 << 10

	// A browser sends the cookies of all its sign-ins under way with every
	// request. Proxies take 8 KiB of them, as a rule.
	maxFlows     = 8
	maxFlowBytes = 5 << 10
)

// What a sign-in is for.
const (
	forCommand  = "command"  // a program on this computer, which waits on a port
	forHeadless = "headless" // a program elsewhere, which has shown a key
	forDevice   = "device"   // a program elsewhere, which has shown a code
	forBrowser  = "browser"  // the browser itself
	forTrial    = "trial"    // nothing: a provider is tried
)

// A flow is a sign-in under way. It lives in a sealed cookie that is named for
// it: who knows its id but is another browser has nothing.
type flow struct {
	ID      string `json:"id"`
	Expires int64  `json:"exp"` // in seconds
	Purpose string `json:"for"`

	Redirect       string   `json:"redirect,omitempty"`  // where a command waits
	State          string   `json:"state,omitempty"`     // that it wants back
	Challenge      string   `json:"challenge,omitempty"` // of the secret it will redeem a code with
	Client         string   `json:"client,omitempty"`
	Audience       []string `json:"aud,omitempty"`
	Scopes         []string `json:"scopes,omitempty"`
	Identity       string   `json:"identity,omitempty"` // to assume
	Refresh        bool     `json:"refresh,omitempty"`
	RegisteredOnly bool     `json:"known,omitempty"` // only people who are registered
	Invite         string   `json:"invite,omitempty"`
	Headless       string   `json:"headless,omitempty"`
	UserCode       string   `json:"userCode,omitempty"`

	Organization  resource.UID `json:"org,omitempty"` // that was chosen
	Provider      resource.UID `json:"idp,omitempty"` // that is being asked
	UpstreamState string       `json:"leg,omitempty"` // the state of the question
	Nonce         string       `json:"nonce,omitempty"`
	Verifier      string       `json:"verifier,omitempty"`

	Proofs         []passwordProof `json:"accounts,omitempty"` // whose password was right; which one is meant is to be said
	PasswordDigest string          `json:"halfway,omitempty"`  // with Account, the digest of its password
	Account        resource.UID    `json:"account,omitempty"`  // whose password was right; the second factor is to come
	WebAuthn       json.RawMessage `json:"webauthn,omitempty"` // the question to a passkey
	Session        string          `json:"session,omitempty"`  // that this sign-in began
}

// A passwordProof is an account whose password was right, and which password that was:
// one that is changed in the meantime counts no more.
type passwordProof struct {
	Account  resource.UID `json:"account"`
	Password string       `json:"password"` // the digest of its hash
}

func proofFor(a resource.Account) passwordProof {
	return passwordProof{a.UID, base64.RawURLEncoding.EncodeToString(digest("halfway " + a.Password)[:12])}
}

// setPasswordProof notes that the password of an account was right.
func (f *flow) setPasswordProof(a resource.Account) {
	f.Account, f.PasswordDigest = a.UID, proofFor(a).Password
}

// provesPassword reports whether the password of an account was right in this flow, and
// still is its password.
func (f *flow) provesPassword(a resource.Account) bool {
	return f.Account == a.UID && f.PasswordDigest == proofFor(a).Password
}

func newID() string { return rand.Text() }

func digest(text string) []byte {
	d := sha256.Sum256([]byte(text))
	return d[:]
}

// cookie returns a cookie of ours. Scripts do not see it, other sites do not
// send it along with forms, and over https no other host can set it.
func (s *Service) cookie(name, value string, life time.Duration) *http.Cookie {
	c := &http.Cookie{Name: s.cookieName(name), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: s.origin.Scheme == "https"}
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

// saveFlow puts a flow into its cookie. It tells whether it fits. Where the browser
// has too many others, the oldest are dropped.
func (s *Service) saveFlow(w http.ResponseWriter, r *http.Request, f *flow) bool {
	b, err := json.Marshal(f)
	if err != nil {
		return false
	}
	value := base64.RawURLEncoding.EncodeToString(s.cfg.Key.Seal(sealedFlow, b))
	if len(value) > maxCookie {
		return false
	}
	s.deleteOldestFlows(w, r, f.ID, len(value))
	http.SetCookie(w, s.cookie(flowCookie+f.ID, value, flowLife))
	return true
}

// deleteOldestFlows drops flows of the browser, the oldest first, until there is room
// for the flow of that id and size. Cookies that are no flow, or no longer, go,
// too.
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
	slices.Reverse(others) // browsers send the oldest first: of those of one second, the youngest comes first now
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

// loadFlow returns the flow of that id, if this is its browser and it is not over.
func (s *Service) loadFlow(r *http.Request, id string) *flow {
	if !flowID.MatchString(id) {
		return nil
	}
	c, err := r.Cookie(s.cookieName(flowCookie + id))
	if err != nil {
		return nil
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return nil
	}
	b, err := s.cfg.Key.Open(sealedFlow, sealed)
	if err != nil {
		return nil
	}
	var f flow
	if json.Unmarshal(b, &f) != nil || f.ID != id || s.cfg.Now().Unix() >= f.Expires {
		return nil
	}
	return &f
}

// requestFlow returns the flow a request names in its query or form. Where there is
// none, it says so to the person and returns nil.
func (s *Service) requestFlow(w http.ResponseWriter, r *http.Request) *flow {
	if f := s.loadFlow(r, s.field(w, r, "flow")); f != nil {
		return f
	}
	s.problem(w, r, http.StatusBadRequest, "This sign-in is over",
		"It took too long, was finished already, or was begun in another browser. Start again from the program that sent you here.")
	return nil
}

// field returns a field of a form, or of the query of a GET.
func (s *Service) field(w http.ResponseWriter, r *http.Request, name string) string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return r.URL.Query().Get(name)
	}
	if r.PostForm == nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		_ = r.ParseForm() // what cannot be read is not there
	}
	if text := r.PostForm.Get(name); readable(text) {
		return text
	}
	return ""
}

// readable tells whether a text is one that a database can look for: UTF-8, and
// no NUL in it. No browser sends another by itself.
func readable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// withReadableQuery refuses requests whose query has other texts.
func (s *Service) withReadableQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, err := url.QueryUnescape(r.URL.RawQuery); err == nil && !readable(text) {
			s.problem(w, r, http.StatusBadRequest, "This address is malformed", "Start again from the program that sent you here.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback returns the address where a program on this computer waits, if it is
// one: nothing is ever handed to another host.
func loopback(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	if err != nil || len(text) > 1024 || u.Scheme != "http" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return nil, false
	}
	switch u.Hostname() {
	case "localhost", "127.0.0.1", "::1":
	default:
		return nil, false
	}
	return u, !strings.ContainsAny(text, "\\\r\n")
}

func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
