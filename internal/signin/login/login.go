// Package login signs people in with an identity provider of their organization or
// with a local account. It serves the sign-in pages, and delivers tokens to the
// program for which a person has signed in.
//
// The state of a sign-in, the flow, is stored in a sealed cookie of the browser
// (flow.go). Therefore strangers cannot fill the database. The store records only
// steps that must not happen twice.
package login

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/factor"
	"github.com/holdfast-dev/holdfast/internal/signin/password"
	"github.com/holdfast-dev/holdfast/internal/signin/provider"
	"github.com/holdfast-dev/holdfast/internal/signin/selfservice"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/signin/site"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Config configures a Service.
type Config struct {
	Issuer  string     // our own address, and the base address of the pages
	BaseURL string     // address of the API, the default audience of tokens
	Key     secret.Key // seals cookies and secrets
	// client for requests to identity providers, whose addresses tenants choose
	Client      *http.Client
	SessionIdle time.Duration // life of an unused browser session; 0 is 7 days
	SessionLife time.Duration // longest life of a session; 0 is 30 days
	PollEvery   time.Duration // shortest interval between two polls of a device; 0 is 5 seconds
	Mail        *mail.Queue   // nil sends no messages
	Metrics     metric.Metrics
	Refusals    *denials.Recorder // nil records no refusals
	Log         *slog.Logger
	Now         func() time.Time // nil is time.Now
}

// A Service signs people in. It is safe for concurrent use.
type Service struct {
	site      *site.Site
	store     *iamdb.Store
	accounts  *signindb.Store
	people    *admission.Store
	authz     *authz.Checker
	sts       *sts.Service
	admin     *accounts.Service
	account   *selfservice.Service
	factors   *factor.Checker
	providers *provider.Client
	hashes    *password.Hasher
	cfg       Config
	log       *slog.Logger
	tried     *lru.Cache[triedKey, []target] // accounts for which a password was tried, by organization and e-mail address
}

// New returns a service. s issues its sessions and tokens, and admin creates
// accounts for people with an invite.
func New(
	db *store.DB, checker *authz.Checker, s *sts.Service, admin *accounts.Service, cfg Config,
) (*Service, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	cfg.SessionIdle = cmp.Or(cfg.SessionIdle, 7*24*time.Hour)
	cfg.SessionLife = cmp.Or(cfg.SessionLife, 30*24*time.Hour)
	cfg.PollEvery = cmp.Or(cfg.PollEvery, 5*time.Second)
	l := &Service{
		store: iamdb.New(db), accounts: signindb.New(db), people: admission.New(db), authz: checker, sts: s,
		admin: admin, hashes: admin.Hasher(), cfg: cfg, log: cfg.Log, tried: newTried(),
	}
	var err error
	l.site, err = site.New(l.store, site.Config{
		Issuer: cfg.Issuer, Key: cfg.Key, SessionIdle: cfg.SessionIdle, Metrics: cfg.Metrics, Refusals: cfg.Refusals,
		Log: cfg.Log, Now: cfg.Now,
	})
	if err != nil {
		return nil, err
	}
	if l.factors, err = factor.New(l.accounts, l.site.Origin(), cfg.Key, cfg.Now); err != nil {
		return nil, err
	}
	l.providers = provider.New(l.accounts, provider.Config{
		Issuer: cfg.Issuer, Key: cfg.Key, Client: cfg.Client, Now: cfg.Now,
	})
	l.account = selfservice.New(db, checker, l.site, admin, l.factors, cfg.BaseURL)
	return l, nil
}

// now returns the current time in the precision of the store.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }
