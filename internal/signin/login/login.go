// Package login signs people in, with the provider of their organization or
// with an account here. It serves the sign-in and account pages, and delivers
// tokens to the program that a person has signed in for.
//
// The state of a sign-in is kept in a sealed cookie of the browser (flow.go),
// so that nobody who has not proved anything makes the service store
// something. What must happen only once is recorded in the store.
package login

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Config configures a Service.
type Config struct {
	Issuer      string        // our own address, and the base of the pages
	BaseURL     string        // address of the API, the default audience of tokens
	Key         secret.Key    // seals cookies and secrets
	Client      *http.Client  // for providers, whose addresses others choose
	SessionIdle time.Duration // life of an unused browser session; 0 is 7 days
	SessionLife time.Duration // longest life of a session; 0 is 30 days
	PollEvery   time.Duration // how often a device may poll; 0 is 5 seconds
	Hashes      int           // passwords hashed in parallel; 0 is half the processors
	Mail        *mail.Queue   // nil sends no messages
	Metrics     metric.Metrics
	Refusals    *denials.Recorder // nil records none
	Log         *slog.Logger
	Now         func() time.Time // nil is time.Now
}

// A Service signs people in.
type Service struct {
	store     *iamdb.Store
	accounts  *signindb.Store
	people    *admission.Store
	authz     *authz.Checker
	sts       *sts.Service
	pages     *page.Tokens
	cfg       Config
	log       *slog.Logger
	origin    *url.URL // parsed Issuer
	templates templates
	hashes    *hasher
	limits    *limits
	tried     *lru.Cache[counterKey, []target] // accounts that an e-mail address was tried with, for acquireAttempt
	upstream  *upstream
	webauthn  *webauthn.WebAuthn // nil if browsers do not support passkeys at this address
}

// New returns a service. s issues its sessions and tokens.
func New(db *store.DB, checker *authz.Checker, s *sts.Service, pages *page.Tokens, cfg Config) (*Service, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	cfg.SessionIdle = cmp.Or(cfg.SessionIdle, 7*24*time.Hour)
	cfg.SessionLife = cmp.Or(cfg.SessionLife, 30*24*time.Hour)
	cfg.PollEvery = cmp.Or(cfg.PollEvery, 5*time.Second)
	cfg.Hashes = cmp.Or(cfg.Hashes, max(1, runtime.GOMAXPROCS(0)/2))
	origin, err := url.Parse(cfg.Issuer)
	if err != nil {
		return nil, err
	}
	l := &Service{
		store: iamdb.New(db), accounts: signindb.New(db), people: admission.New(db), authz: checker, sts: s, pages: pages,
		cfg: cfg, log: cfg.Log, origin: origin, hashes: newHasher(cfg.Hashes), limits: newLimits(cfg.Now),
		upstream: newUpstream(cfg.Client, cfg.Now), tried: newTried(),
	}
	if l.templates, err = parsePages(cfg.Now); err != nil {
		return nil, err
	}
	if l.webauthn, err = newWebAuthn(origin); err != nil {
		return nil, err
	}
	return l, nil
}

// now returns the time in the precision of the store.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

// at returns the public address of one of our paths.
func (s *Service) at(path string) string { return strings.TrimSuffix(s.cfg.Issuer, "/") + path }

// Routes are the patterns that Handler serves.
var Routes = []string{
	"/oauth", "/oauth/", "/orgcheck", "/join", "/device", "/link", "/account", "/account/",
	"/signin", "/signin/", "/signout", "GET /favicon.ico",
}

// Handler serves the pages, and the OAuth endpoints for programs.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oauth", s.handle(s.begin))
	mux.HandleFunc("GET "+SharedRedirect, s.handle(s.callback))
	mux.HandleFunc("GET "+SharedRedirect+"/{provider}", s.handle(s.callback))
	mux.HandleFunc("GET /orgcheck", s.orgcheck)
	mux.HandleFunc("GET /join", s.handle(s.beginJoin))
	mux.HandleFunc("GET /device", s.handle(s.showDevice))
	mux.HandleFunc("POST /device", s.handle(s.enterDevice))
	mux.HandleFunc("GET /signin", s.handle(s.showSignIn))
	mux.HandleFunc("POST /signin/organization", s.withFlow(s.chooseOrganization))
	mux.HandleFunc("GET /signin/provider", s.withFlow(s.chooseProvider))
	mux.HandleFunc("POST /signin/provider", s.withFlow(s.chooseProvider))
	mux.HandleFunc("POST /signin/password", s.withFlow(s.password))
	mux.HandleFunc("POST /signin/account", s.withFlow(s.chooseAccount))
	mux.HandleFunc("POST /signin/totp", s.withPassword(s.totp))
	mux.HandleFunc("POST /signin/recovery", s.withPassword(s.recovery))
	mux.HandleFunc("POST /signin/passkey/start", s.handleScript(s.passkeyStart))
	mux.HandleFunc("POST /signin/passkey", s.handleScript(s.passkey))
	mux.HandleFunc("POST /signin/join/start", s.withFlow(s.showJoin))
	mux.HandleFunc("POST /signin/join", s.withFlow(s.join))
	mux.HandleFunc("POST /signin/confirm", s.withFlow(s.confirm))
	mux.HandleFunc("POST /signin/other", s.withFlow(s.switchUser))
	mux.HandleFunc("GET /link", s.handle(s.showLink))
	mux.HandleFunc("POST /link", s.handle(s.followLink))
	mux.HandleFunc("GET /", s.handle(s.missing))
	s.accountRoutes(mux)
	s.assetRoutes(mux)
	cross := http.NewCrossOriginProtection() // refuses forms of other sites, whatever cookies come with them
	cross.SetDenyHandler(s.handle(func(w http.ResponseWriter, r *http.Request) error {
		return s.problem(w, r, http.StatusForbidden, "This form was sent from another site", "Start again from here.")
	}))
	programs := http.NewServeMux() // not for browsers, and without cookies
	programs.HandleFunc("POST /oauth/token", s.handleOAuth(s.tokenEndpoint))
	programs.HandleFunc("POST /oauth/device_authorization", s.handleOAuth(s.deviceEndpoint))
	programs.Handle("/", s.withReadableQuery(cross.Handler(mux)))
	return s.withActor(programs)
}

// count counts a credential of a person that was checked.
func (s *Service) count(kind string, err error) {
	outcome := metric.OK
	switch {
	case errors.Is(err, fault.Unauthenticated), errors.Is(err, fault.PermissionDenied):
		outcome = metric.Denied
	case err != nil:
		outcome = metric.Failed
	}
	s.cfg.Metrics.SignIns.Add(1, kind, outcome)
}

// errWrong is for a code that is not the right one.
var errWrong = fault.New(fault.Unauthenticated, "Unauthenticated: the code is wrong")

// withActor attributes the changes that a request makes to where it comes
// from.
func (s *Service) withActor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := trace.Begin(r.Context(), "page", r.Header.Get(trace.Header))
		defer span.End(nil)
		actor := resource.Actor{RequestID: newID(), Remote: remote(r)}
		r = r.WithContext(resource.WithActor(ctx, actor))
		next.ServeHTTP(w, r)
		span.Name(r.Pattern)
	})
}
