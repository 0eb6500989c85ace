package registry

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/token"
)

// LoginName is the user that a client logs in as, beside a token as the
// password.
const LoginName = "_token"

// A Credential lets a client log in to the registry.
type Credential struct {
	Host, Token string
	Expires     time.Time
}

// Host is where images are pushed to and pulled from.
func (s *Service) Host() string { return s.cfg.Host }

// CreateCredential makes a token for the registry out of the caller's for the
// API: for the same identity and sign-in, narrowed in the same way. It ends no
// later, so that a token that was lost does not live on as another.
func (s *Service) CreateCredential(ctx context.Context) (Credential, error) {
	c, ok := authz.CallerFrom(ctx)
	if !ok {
		return Credential{}, fault.New(fault.Unauthenticated, "Unauthenticated: a token is required")
	}
	raw, err := s.issuer.Mint(ctx, token.Claims{
		Subject: c.Identity, Audience: []string{s.cfg.Host}, Act: c.Act, Email: c.Email, EmailVerified: c.EmailVerified,
		Session: c.Session, Caps: c.Caps, Scopes: c.Scopes, Until: c.Expires,
	})
	if err != nil {
		return Credential{}, err
	}
	made, err := s.issuer.Verify(ctx, raw, s.cfg.Host) // which also remembers it: it is about to be used
	return Credential{Host: s.cfg.Host, Token: raw, Expires: made.Expires}, err
}
