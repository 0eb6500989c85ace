// Package site renders the sign-in and account pages. It also contains the functions
// that their handlers share: cookies, the session of the browser, error pages, and
// limits of attempts. The HTML is in pages/.
package site

import (
	"log/slog"
	"net/url"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
)

// Config configures a Site. All fields but Metrics and Refusals are required.
type Config struct {
	Issuer      string        // our own address, and the base of the pages
	Key         secret.Key    // seals cookies
	SessionIdle time.Duration // life of an unused browser session
	Metrics     metric.Metrics
	Refusals    *denials.Recorder // nil records no refusals
	Log         *slog.Logger
	Now         func() time.Time
}

// A Site renders pages. It is safe for concurrent use.
type Site struct {
	cfg       Config
	store     *iamdb.Store
	log       *slog.Logger
	origin    *url.URL // parsed Issuer
	templates templates
	limits    *limits
}

// New returns a site. store has the sessions of browsers.
func New(store *iamdb.Store, cfg Config) (*Site, error) {
	origin, err := url.Parse(cfg.Issuer)
	if err != nil {
		return nil, err
	}
	pages, err := parsePages(cfg.Now)
	if err != nil {
		return nil, err
	}
	return &Site{
		cfg: cfg, store: store, log: cfg.Log, origin: origin, templates: pages, limits: newLimits(cfg.Now),
	}, nil
}

// Origin returns the parsed address of the site.
func (s *Site) Origin() *url.URL { return s.origin }
