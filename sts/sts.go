// Package sts is the security token service: it gives tokens of ours for the
// credentials of others, says why it does not, and watches those whose word it
// takes.
package sts

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/iamdb"
	"github.com/holdfast-dev/holdfast/token"
	"github.com/holdfast-dev/holdfast/trust"
)

// Config is what a Service is told.
type Config struct {
	BaseURL      string        // the API: tokens may be for it, and ours for it are taken in exchange
	RegistryHost string        // the registry: tokens may be for it
	SessionIdle  time.Duration // how long a refresh token lives; 0 is 7 days
	SessionLife  time.Duration // how long a session can be kept alive; 0 is 30 days
	WatchEvery   time.Duration // how often issuers are looked at; 0 is an hour
	AWS          AWS
	Clouds       Clouds
	Log          *slog.Logger     // nil is slog's default
	Now          func() time.Time // nil is time.Now
}

// A Service exchanges credentials for tokens.
type Service struct {
	store     *iamdb.Store
	authz     *authz.Checker
	issuer    *token.Issuer
	trust     *trust.Issuers
	cfg       Config
	audiences []string // what a credential may be for, unless its identity says otherwise
	log       *slog.Logger
	now       func() time.Time

	known   *memory
	denials chan resource.Denial
	client  *http.Client // of AWS
}

// New returns a service. It remembers identities, and forgets them as checker
// learns that they have changed. Run keeps the denials and watches the issuers.
func New(db *store.DB, checker *authz.Checker, issuer *token.Issuer, issuers *trust.Issuers, cfg Config) (*Service, error) {
	known, err := newMemory()
	if err != nil {
		return nil, err
	}
	x := &Service{
		store: iamdb.New(db), authz: checker, issuer: issuer, trust: issuers, cfg: cfg, log: cfg.Log, now: cfg.Now,
		known: known, denials: make(chan resource.Denial, denialsWaiting), client: cfg.AWS.client(),
		audiences: []string{issuer.Address()},
	}
	if u, err := url.Parse(issuer.Address()); err == nil && u.Host != "" {
		x.audiences = append(x.audiences, u.Host, strings.TrimSuffix(issuer.Address(), "/")+"/")
	}
	if x.log == nil {
		x.log = slog.Default()
	}
	if x.now == nil {
		x.now = time.Now
	}
	checker.OnChange(known.forget)
	return x, nil
}

// A Token is one of ours, and when it ends.
type Token struct {
	Text   string
	Expiry time.Time
}

// A Wish is what the token that is asked for should be like.
type Wish struct {
	Audience []string // what it is for
	Caps     []string // capabilities to narrow it to, by name
	Scopes   []string // groups to narrow it to
}

// claims returns what the wish says of a token. It returns fault.InvalidArgument
// with everything that cannot be had.
func (s *Service) claims(w Wish) (c token.Claims, _ error) {
	var bad []fault.Violation
	for _, aud := range w.Audience {
		known, ok := s.audience(aud)
		if !ok {
			bad = append(bad, fault.Violation{Subject: "aud", Description: "must be the address of the API or the host of the registry"})
			continue
		}
		c.Audience = append(c.Audience, known)
	}
	if len(w.Audience) == 0 {
		bad = append(bad, fault.Violation{Subject: "aud", Description: "is required: the address of the API or the host of the registry"})
	}
	if len(w.Caps) > 0 {
		c.Caps = &resource.Capabilities{}
	}
	for _, name := range w.Caps {
		capability, ok := resource.ParseCapability(name)
		if !ok {
			bad = append(bad, fault.Violation{Subject: "cap", Description: "is not a capability: " + shortened(name)})
			continue
		}
		c.Caps.Add(capability)
	}
	for _, scope := range w.Scopes {
		uid, err := resource.ParseUID("scope", scope)
		if err != nil {
			bad = append(bad, fault.Violation{Subject: "scope", Description: "must be the uid of a group"})
			continue
		}
		c.Scopes = append(c.Scopes, uid)
	}
	if len(bad) > 0 {
		return c, fault.Fields(bad)
	}
	return c, nil
}

// audience returns an audience as our tokens have it.
func (s *Service) audience(aud string) (string, bool) {
	for _, known := range []string{s.cfg.BaseURL, s.cfg.RegistryHost} {
		if known != "" && strings.TrimSuffix(aud, "/") == strings.TrimSuffix(known, "/") {
			return known, true
		}
	}
	return "", false
}

// mint makes a token that lives for an hour, or until end if that is sooner.
func (s *Service) mint(ctx context.Context, c token.Claims, end time.Time) (Token, error) {
	expiry := s.now().Add(token.DefaultLife)
	if !end.IsZero() && end.Before(expiry) {
		expiry = end
	}
	c.Until = expiry // what is told is what the token says, though a second may begin in between
	text, err := s.issuer.Mint(ctx, c)
	return Token{text, expiry.UTC().Truncate(time.Second)}, err
}

// refused is the error of a credential that is none: whoever sent it is not
// known.
func refused(claim, why string) error {
	if claim != "" {
		return fault.New(fault.Unauthenticated, "Unauthenticated: invalid %q: %s", claim, why)
	}
	return fault.New(fault.Unauthenticated, "Unauthenticated: %s", why)
}

const longest = 256 // of a value that is told or kept

func shortened(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "…"
}

// Check returns fault.InvalidArgument for a wish that cannot be.
func (s *Service) Check(w Wish) error {
	_, err := s.claims(w)
	return err
}
