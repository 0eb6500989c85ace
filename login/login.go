// Package login lets people in: with the provider of their organization, or
// with an account that is kept here. It serves the pages, and hands what a
// person has signed in for over to the program that waits for it.
//
// A sign-in under way is kept in a sealed cookie of the browser it runs in
// (flow.go), so that nobody who has not proved anything makes the service
// remember them. What must happen once is spent in the store.
package login

import (
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/seal"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/sts"
)

// Config is what a Service is told.
type Config struct {
	Issuer      string        // our own address, which the pages are under
	BaseURL     string        // the API, which tokens are for unless asked otherwise
	Key         seal.Key      // that cookies and secrets are sealed with
	Client      *http.Client  // for providers, whose addresses others choose
	SessionIdle time.Duration // of a browser; 0 is 7 days
	SessionLife time.Duration // 0 is 30 days
	PollEvery   time.Duration // how often a device may ask; 0 is 5 seconds
	Hashes      int           // passwords hashed at once; 0 is half the processors
	Log         *slog.Logger
	Now         func() time.Time // nil is time.Now
}

// A Service signs people in.
type Service struct {
	store     *store.Store
	authz     *authz.Checker
	sts       *sts.Service
	pages     *page.Tokens
	cfg       Config
	log       *slog.Logger
	origin    *url.URL // of Issuer
	templates templates
	hashes    *hasher
	limits    *limits
	upstream  *upstream
	webauthn  *webauthn.WebAuthn // nil where browsers have no passkeys
}

const (
	defaultIdle = 7 * 24 * time.Hour
	defaultLife = 30 * 24 * time.Hour
	defaultPoll = 5 * time.Second
)

// New returns a service. Sessions and tokens are made by s.
func New(db *store.Store, checker *authz.Checker, s *sts.Service, pages *page.Tokens, cfg Config) (*Service, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.SessionIdle == 0 {
		cfg.SessionIdle = defaultIdle
	}
	if cfg.SessionLife == 0 {
		cfg.SessionLife = defaultLife
	}
	if cfg.PollEvery == 0 {
		cfg.PollEvery = defaultPoll
	}
	if cfg.Hashes == 0 {
		cfg.Hashes = max(1, runtime.GOMAXPROCS(0)/2)
	}
	origin, err := url.Parse(cfg.Issuer)
	if err != nil {
		return nil, err
	}
	l := &Service{
		store: db, authz: checker, sts: s, pages: pages, cfg: cfg, log: cfg.Log, origin: origin, hashes: newHasher(cfg.Hashes),
	}
	if l.limits, err = newLimits(cfg.Now); err != nil {
		return nil, err
	}
	if l.upstream, err = newUpstream(cfg.Client, cfg.Now); err != nil {
		return nil, err
	}
	if l.templates, err = parsePages(cfg.Now); err != nil {
		return nil, err
	}
	if l.webauthn, err = newWebAuthn(origin); err != nil {
		return nil, err
	}
	return l, nil
}

// now is the time, as precise as it is kept.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

// at is the public address of one of our paths.
func (s *Service) at(path string) string { return strings.TrimSuffix(s.cfg.Issuer, "/") + path }

// Routes are the patterns that Handler serves.
var Routes = []string{
	"/oauth", "/oauth/", "/orgcheck", "/join", "/device", "/link", "/account", "/account/", "/signin", "/signin/", "/signout",
}

// Handler serves the pages, and the endpoints of programs.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oauth", s.begin)
	mux.HandleFunc("GET /oauth/callback/{provider}", s.callback)
	mux.HandleFunc("GET /orgcheck", s.orgcheck)
	mux.HandleFunc("GET /join", s.beginJoin)
	mux.HandleFunc("GET /device", s.showDevice)
	mux.HandleFunc("POST /device", s.enterDevice)
	mux.HandleFunc("GET /signin", s.showSignIn)
	mux.HandleFunc("POST /signin/organization", s.chooseOrganization)
	mux.HandleFunc("GET /signin/provider", s.chooseProvider)
	mux.HandleFunc("POST /signin/provider", s.chooseProvider)
	mux.HandleFunc("POST /signin/password", s.password)
	mux.HandleFunc("POST /signin/account", s.chooseAccount)
	mux.HandleFunc("POST /signin/totp", s.totp)
	mux.HandleFunc("POST /signin/recovery", s.recovery)
	mux.HandleFunc("POST /signin/passkey/start", s.passkeyStart)
	mux.HandleFunc("POST /signin/passkey", s.passkey)
	mux.HandleFunc("POST /signin/join/start", s.showJoin)
	mux.HandleFunc("POST /signin/join", s.join)
	mux.HandleFunc("POST /signin/confirm", s.confirm)
	mux.HandleFunc("POST /signin/other", s.switchUser)
	mux.HandleFunc("GET /link", s.showLink)
	mux.HandleFunc("POST /link", s.followLink)
	s.accountRoutes(mux)
	s.assetRoutes(mux)
	cross := http.NewCrossOriginProtection() // a form of another site is not taken, whatever cookies come with it
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.problem(w, r, http.StatusForbidden, "This form was sent from another site", "Start again from here.")
	}))
	pages := s.withActor(s.withReadableQuery(cross.Handler(mux)))
	programs := http.NewServeMux() // these come from no browser and carry no cookie
	programs.HandleFunc("POST /oauth/token", s.tokenEndpoint)
	programs.HandleFunc("POST /oauth/device_authorization", s.deviceEndpoint)
	programs.Handle("/", pages)
	return programs
}

// withActor puts what a request changes down to where it comes from.
func (s *Service) withActor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(resource.WithActor(r.Context(), resource.Actor{RequestID: newID(), Remote: remote(r)})))
	})
}
