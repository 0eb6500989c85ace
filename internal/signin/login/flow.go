package login

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
)

const (
	flowLife   = 15 * time.Minute // time in which a sign-in must be finished
	flowCookie = "hf_flow_"
	sealedFlow = "sign-in"
	maxCookie  = 3800 // browsers store up to 4096 bytes, including name and attributes

	// A browser sends the cookies of all its current sign-ins with every request. Most proxies accept 8 KiB of cookies.
	maxFlows     = 8
	maxFlowBytes = 5 << 10
)

// The purposes of a sign-in.
const (
	forCommand  = "command"  // a program on the same computer that listens on a port
	forHeadless = "headless" // a program on another computer that has shown a public key
	forDevice   = "device"   // a program on another computer that has shown a user code
	forBrowser  = "browser"  // the browser itself
	forTrial    = "trial"    // a test of a provider, which signs in nobody
)

// A flow is the state of a sign-in. It is stored in a sealed cookie whose name contains
// its id. Therefore the id alone is useless in another browser.
type flow struct {
	account *resource.Account // local account to which the request signs in; nil in a flow that is read from a cookie

	ID      string `json:"id"`
	Expires int64  `json:"exp"` // in seconds since 1970
	Purpose string `json:"for"`

	Redirect       string   `json:"redirect,omitempty"`  // address at which the command listens
	State          string   `json:"state,omitempty"`     // state that is returned to the command
	Challenge      string   `json:"challenge,omitempty"` // PKCE code challenge of the command
	Client         string   `json:"client,omitempty"`
	Audience       []string `json:"aud,omitempty"`
	Scopes         []string `json:"scopes,omitempty"`
	Identity       string   `json:"identity,omitempty"` // identity to assume
	Refresh        bool     `json:"refresh,omitempty"`
	RegisteredOnly bool     `json:"known,omitempty"` // whether only registered people are admitted
	Invite         string   `json:"invite,omitempty"`
	Headless       string   `json:"headless,omitempty"`
	UserCode       string   `json:"userCode,omitempty"`
	Return         string   `json:"return,omitempty"` // address in the console to return to; see returnTo
	Again          bool     `json:"again,omitempty"`  // whether the person must sign in again although there is a session

	Organization  resource.UID `json:"org,omitempty"` // chosen organization
	Provider      resource.UID `json:"idp,omitempty"` // provider to which the browser was redirected
	UpstreamState string       `json:"leg,omitempty"` // state parameter of the request to the provider
	Nonce         string       `json:"nonce,omitempty"`
	Verifier      string       `json:"verifier,omitempty"`

	Proofs         []passwordProof `json:"accounts,omitempty"` // accounts with the right password, to choose from
	PasswordDigest string          `json:"halfway,omitempty"`  // digest of the password hash of Account
	Account        resource.UID    `json:"account,omitempty"`  // account whose password was right
	WebAuthn       json.RawMessage `json:"webauthn,omitempty"` // state of the WebAuthn ceremony
	Session        string          `json:"session,omitempty"`  // session that this sign-in has started
	Joined         resource.UID    `json:"joined,omitempty"`   // group that the person has joined with an invite
	Method         string          `json:"method,omitempty"`   // method of the sign-in, for the audit log
	Factor         string          `json:"factor,omitempty"`
}

// A passwordProof records that the password of an account was right. A change of the
// password voids it.
type passwordProof struct {
	Account  resource.UID `json:"account"`
	Password string       `json:"password"` // digest of the password hash
}

func proofFor(a resource.Account) passwordProof {
	return passwordProof{a.UID, base64.RawURLEncoding.EncodeToString(signindb.Digest("halfway " + a.Password)[:12])}
}

// setPasswordProof records in the flow that the password of an account was right.
func (f *flow) setPasswordProof(a resource.Account) {
	f.Account, f.PasswordDigest = a.UID, proofFor(a).Password
}

// provesPassword reports whether the password of an account was right in this
// flow and has not changed since.
func (f *flow) provesPassword(a resource.Account) bool {
	return f.Account == a.UID && f.PasswordDigest == proofFor(a).Password
}

// issuesToken reports whether the flow ends with a token for a program.
func (f *flow) issuesToken() bool {
	switch f.Purpose {
	case forCommand, forHeadless, forDevice:
		return true
	}
	return false
}

// needsCredential reports whether the person must enter a credential in this flow, here or
// at a provider. A session of the provider is not enough then.
func (f *flow) needsCredential() bool { return f.Again || f.issuesToken() }

// mustSignInAgain reports whether the person of a session must sign in again in a flow. No
// program gets a token if the last credential was entered a while ago, because another person
// may use the browser now.
func (s *Service) mustSignInAgain(r *http.Request, f *flow, n resource.Session) bool {
	return f.Again || f.issuesToken() && !s.site.IsFresh(r, n)
}

// saveFlow stores a flow in its cookie, and reports whether it fits. If the browser has
// too many flows, saveFlow deletes the oldest.
func (s *Service) saveFlow(w http.ResponseWriter, r *http.Request, f *flow) bool {
	b, err := json.Marshal(f)
	if err != nil {
		return false
	}
	c := s.site.SealedCookie(flowCookie+f.ID, sealedFlow, b, flowLife)
	if len(c.Value) > maxCookie {
		return false
	}
	s.deleteOldestFlows(w, r, f.ID, len(c.Value))
	http.SetCookie(w, c)
	return true
}

// deleteOldestFlows deletes the oldest flows of the browser until there is room for the
// flow with that id and size. It also deletes flows that are invalid or expired.
func (s *Service) deleteOldestFlows(w http.ResponseWriter, r *http.Request, id string, size int) {
	type cookie struct {
		id      string
		expires int64
		size    int
	}
	var cookies []cookie
	for _, c := range r.Cookies() {
		o := cookie{size: len(c.Value)}
		var isFlow bool
		if o.id, isFlow = strings.CutPrefix(c.Name, s.site.CookieName(flowCookie)); !isFlow || o.id == id {
			continue
		}
		if f := s.loadFlow(r, o.id); f != nil {
			o.expires = f.Expires
		}
		cookies = append(cookies, o)
	}
	slices.Reverse(cookies) // now the newest first, also within one second; browsers send the oldest first
	slices.SortStableFunc(cookies, func(a, b cookie) int { return cmp.Compare(b.expires, a.expires) })
	for i, o := range cookies {
		if size += o.size; o.expires == 0 || i+1 >= maxFlows || size > maxFlowBytes {
			http.SetCookie(w, s.site.Cookie(flowCookie+o.id, "", 0))
		}
	}
}

// deleteFlow deletes the cookie of a flow.
func (s *Service) deleteFlow(w http.ResponseWriter, f *flow) {
	http.SetCookie(w, s.site.Cookie(flowCookie+f.ID, "", 0))
}

var flowID = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// loadFlow returns the flow with that id. It returns nil if the browser does not have its
// cookie, or if the flow has expired.
func (s *Service) loadFlow(r *http.Request, id string) *flow {
	if !flowID.MatchString(id) {
		return nil
	}
	b, ok := s.site.OpenCookie(r, flowCookie+id, sealedFlow)
	var f flow
	if !ok || json.Unmarshal(b, &f) != nil || f.ID != id || s.cfg.Now().Unix() >= f.Expires {
		return nil
	}
	return &f
}

// requestFlow returns the flow that a request names in its query or form. If there is
// none, it shows an error page and returns nil.
func (s *Service) requestFlow(w http.ResponseWriter, r *http.Request) *flow {
	if f := s.loadFlow(r, input.Field(w, r, "flow")); f != nil {
		return f
	}
	_ = s.site.Problem(w, r, http.StatusBadRequest, "This sign-in is over",
		"It took too long, was finished already, or was begun in another browser. "+
			"Start again from the program that sent you here.")
	return nil
}

// withFlow returns a handler that calls next with the flow that a request names.
func (s *Service) withFlow(next func(http.ResponseWriter, *http.Request, *flow) error) http.HandlerFunc {
	return s.site.Handle(func(w http.ResponseWriter, r *http.Request) error {
		if f := s.requestFlow(w, r); f != nil {
			return next(w, r, f)
		}
		return nil
	})
}

// welcome returns the address of the welcome page of the group that the person has
// joined in this flow, or "".
func (f *flow) welcome() string {
	if f.Joined == "" {
		return ""
	}
	return "/account/welcome?group=" + url.QueryEscape(string(f.Joined))
}

// show shows a page of the flow f, which may be nil. It returns nil, as site.Show does.
func (s *Service) show(w http.ResponseWriter, r *http.Request, status int, name string, f *flow, p site.Page) error {
	if f != nil {
		frame := p.PageFrame()
		frame.Flow = f.ID
		if u, ok := input.Loopback(f.Redirect); ok {
			frame.FormsTo = u.Scheme + "://" + u.Host
		}
	}
	return s.site.Show(w, r, status, name, p)
}

const cannotBegin = "This sign-in cannot begin" // title of error pages
