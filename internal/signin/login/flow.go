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
	flowLife   = 15 * time.Minute
	flowCookie = "hf_flow_"
	sealedFlow = "sign-in"
	maxCookie  = 3800 // browsers store 4096 bytes, including name and attributes

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
	return passwordProof{a.UID, base64.RawURLEncoding.EncodeToString(signindb.Digest("halfway " + a.Password)[:12])}
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

// saveFlow stores a flow in its cookie, and reports whether it fits. If the
// browser has too many others, the oldest are deleted.
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
		if o.id, ours = strings.CutPrefix(c.Name, s.site.CookieName(flowCookie)); !ours || o.id == id {
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
			http.SetCookie(w, s.site.Cookie(flowCookie+o.id, "", 0))
		}
	}
}

// deleteFlow ends a flow in its browser.
func (s *Service) deleteFlow(w http.ResponseWriter, f *flow) {
	http.SetCookie(w, s.site.Cookie(flowCookie+f.ID, "", 0))
}

var flowID = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// loadFlow returns the flow of that id, if this is its browser and it has not
// expired.
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

// requestFlow returns the flow that a request names in its query or form. If
// there is none it shows that to the person and returns nil.
func (s *Service) requestFlow(w http.ResponseWriter, r *http.Request) *flow {
	if f := s.loadFlow(r, input.Field(w, r, "flow")); f != nil {
		return f
	}
	_ = s.site.Problem(w, r, http.StatusBadRequest, "This sign-in is over",
		"It took too long, was finished already, or was begun in another browser. "+
			"Start again from the program that sent you here.")
	return nil
}

// withFlow calls next with the flow that a request names.
func (s *Service) withFlow(next func(http.ResponseWriter, *http.Request, *flow) error) http.HandlerFunc {
	return s.site.Handle(func(w http.ResponseWriter, r *http.Request) error {
		if f := s.requestFlow(w, r); f != nil {
			return next(w, r, f)
		}
		return nil
	})
}

// welcome returns the address of the page for whoever has joined a group in this
// flow, or "".
func (f *flow) welcome() string {
	if f.Joined == "" {
		return ""
	}
	return "/account/welcome?group=" + url.QueryEscape(string(f.Joined))
}

// show shows a page of f, or of no flow if f is nil. It returns nil, as site.Show does.
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

const cannotBegin = "This sign-in cannot begin"
