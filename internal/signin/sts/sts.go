// Package sts is the security token service. It exchanges credentials of other
// issuers for our tokens, explains refusals, and monitors the issuers that
// identities trust.
package sts

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Config configures a Service.
type Config struct {
	BaseURL      string        // address of the API: an audience of new tokens, and of our tokens that can be exchanged
	RegistryHost string        // host of the registry: an audience of new tokens
	SessionIdle  time.Duration // life of a refresh token; 0 is 7 days
	SessionLife  time.Duration // longest life of a session; 0 is 30 days
	WatchEvery   time.Duration // interval between two checks of an issuer; 0 is an hour
	AWS          AWS
	Clouds       Clouds
	Metrics      metric.Metrics
	Log          *slog.Logger     // nil is slog.Default()
	Now          func() time.Time // nil is time.Now
}

// A Service exchanges credentials for tokens. It is safe for concurrent use.
type Service struct {
	store     *iamdb.Store
	records   *tokendb.Store // exchanges, denials, and the states of issuers
	users     *scimdb.Store  // who is in the directories of providers
	authz     *authz.Checker
	issuer    *token.Issuer
	trust     *issuers.Issuers
	cfg       Config
	audiences []string // audiences that a credential may have if its identity names none
	log       *slog.Logger
	now       func() time.Time

	principals *principalCache
	denials    chan resource.Denial
	exchanged  exchangeQueue
	client     *http.Client // for requests to AWS and the other clouds
}

// New returns a service. It caches identities, and drops a cached identity when
// checker reports a change. Run writes the recent exchanges and denials, and
// monitors the issuers.
func New(db *store.DB, checker *authz.Checker, issuer *token.Issuer, issuers *issuers.Issuers, cfg Config) *Service {
	cfg.SessionIdle = cmp.Or(cfg.SessionIdle, sessionIdle)
	cfg.SessionLife = cmp.Or(cfg.SessionLife, sessionLife)
	x := &Service{
		store: iamdb.New(db), records: tokendb.New(db), users: scimdb.New(db), authz: checker, issuer: issuer,
		trust: issuers, cfg: cfg, now: cfg.Now,
		log: cmp.Or(cfg.Log, slog.Default()), client: cmp.Or(cfg.AWS.Client, outbound.Client(outbound.Config{})),
		principals: newPrincipalCache(), denials: make(chan resource.Denial, denialsWaiting),
		audiences: []string{issuer.Address()},
	}
	if u, err := url.Parse(issuer.Address()); err == nil && u.Host != "" {
		x.audiences = append(x.audiences, u.Host, strings.TrimSuffix(issuer.Address(), "/")+"/")
	}
	if x.now == nil {
		x.now = time.Now
	}
	x.principals.lookups = cfg.Metrics.Cache("identities")
	checker.OnChange(x.principals.invalidate)
	return x
}

// A Token is one of our tokens and its expiry.
type Token struct {
	Text   string
	Expiry time.Time

	class string // class of the credential's issuer, for metrics
}

// TokenParams are the requested properties of a token.
type TokenParams struct {
	Audience []string // audiences of the token
	Caps     []string // names of the capabilities to which the token is narrowed
	Scopes   []string // UIDs of the groups to which the token is narrowed
}

// maxViolations is the greatest number of violations that one response lists. Clients read at most 4 KiB of an error.
const maxViolations = 20

// claims returns the claims that w requests. It returns fault.InvalidArgument with
// the parameters that are not allowed, up to maxViolations. The current time becomes the
// issue time of the token, so claims must be called before the credential is verified.
func (s *Service) claims(w TokenParams) (c token.Claims, _ error) {
	c.Issued = s.now()
	var bad []fault.Violation
	add := func(name, text string) {
		if len(bad) < maxViolations {
			bad = append(bad, fault.Violation{Subject: name, Description: text})
		}
	}
	for _, aud := range w.Audience {
		known, ok := s.audience(aud)
		if !ok {
			add("aud", "must be the address of the API or the host of the registry")
			continue
		}
		c.Audience = append(c.Audience, known)
	}
	if len(w.Audience) == 0 {
		add("aud", "is required: the address of the API or the host of the registry")
	}
	if len(w.Caps) > 0 {
		c.Caps = &resource.Capabilities{}
	}
	for _, name := range w.Caps {
		capability, ok := resource.ParseCapability(name)
		if !ok {
			add("cap", "is not a capability: "+truncated(name))
			continue
		}
		c.Caps.Add(capability)
	}
	for _, scope := range w.Scopes {
		uid, err := resource.ParseUID("scope", scope)
		if err != nil {
			add("scope", "must be the uid of a group")
			continue
		}
		c.Scopes = append(c.Scopes, uid)
	}
	if len(bad) > 0 {
		return c, fault.Fields(bad)
	}
	return c, nil
}

// audience returns an audience in the spelling that our tokens use.
func (s *Service) audience(aud string) (string, bool) {
	for _, known := range []string{s.cfg.BaseURL, s.cfg.RegistryHost} {
		if known != "" && strings.TrimSuffix(aud, "/") == strings.TrimSuffix(known, "/") {
			return known, true
		}
	}
	return "", false
}

// mint returns a new token. It expires an hour after c.Issued, at end if end is not zero,
// or when the last grant that the token could use ends, whichever is first. mint returns
// fault.Unauthenticated if the access was revoked after c.Issued.
func (s *Service) mint(ctx context.Context, c token.Claims, end time.Time) (Token, error) {
	expiry := c.Issued.Add(token.DefaultLife)
	if !end.IsZero() && end.Before(expiry) {
		expiry = end
	}
	last := s.authz.EndOf(c.Subject, resource.Narrowing{Caps: c.Caps, Scopes: c.Scopes})
	if !last.IsZero() && last.Before(expiry) {
		expiry = last
	}
	c.Until = expiry // the token and the response must have the same expiry
	text, err := s.issuer.MintAdmitted(ctx, c, s.authz)
	if err == nil {
		resource.ClaimFrom(ctx).Proven = c.Subject
	}
	return Token{Text: text, Expiry: expiry.UTC().Truncate(time.Second)}, err
}

// refused returns the error for an invalid credential.
func refused(claim, why string) error {
	if claim != "" {
		return fault.New(fault.Unauthenticated, "Unauthenticated: invalid %q: %s", claim, why)
	}
	return fault.New(fault.Unauthenticated, "Unauthenticated: %s", why)
}

const maxShown = 256 // greatest number of bytes of a value that are shown or stored

func truncated(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

// Check returns fault.InvalidArgument if w contains parameters that are not allowed.
func (s *Service) Check(w TokenParams) error {
	_, err := s.claims(w)
	return err
}
