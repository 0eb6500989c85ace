// Package scim lets the directory of an identity provider manage the people who sign in with it: SCIM 2.0 (RFC 7643 and
// 7644). It serves the protocol, manages the tokens of directories, and links the users of a directory to people.
package scim

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The life of a token.
const (
	defaultLife    = 365 * 24 * time.Hour
	longestLife    = 2 * defaultLife
	defaultOverlap = time.Hour
	longestOverlap = 24 * time.Hour
)

// Prefix is the beginning of the address at which directories call this service. The last segment of the provider's UID
// follows.
const Prefix = "/scim/v2/"

// TokenPrefix is the beginning of every token of a directory, so that scanners for secrets recognize it.
const TokenPrefix = "hfscim_"

// minOwners is the number of owners whom an administrator must have assigned before a directory is enabled, so that a
// mistake in the directory does not take the organization away from everybody.
const minOwners = 2

// Config configures a Service.
type Config struct {
	BaseURL string           // public address of the service
	Log     *slog.Logger     // nil is slog.Default()
	Now     func() time.Time // nil is time.Now

	// Operator reports whether the caller is an operator of the installation. Nil means that there are none.
	Operator func(ctx context.Context) bool
}

// A Service manages the directories of identity providers. It is safe for concurrent use.
type Service struct {
	store   *scimdb.Store
	iam     *iamdb.Store
	authz   *authz.Checker
	limiter *fairlimit.Limiter
	cfg     Config
}

// New returns a Service over db.
func New(db *store.DB, checker *authz.Checker, cfg Config) *Service {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{
		store: scimdb.New(db), iam: iamdb.New(db), authz: checker, cfg: cfg,
		limiter: fairlimit.New(fairlimit.Limits{
			Total: maxRunning, PerTenant: maxPerTenant, QueuedPerTenant: maxQueued, Wait: longestWait,
			Busy: fairlimit.Busy("too many requests of this directory at once"),
		}),
	}
}

func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

// Endpoint returns the address at which the directory of a provider calls this service.
func (s *Service) Endpoint(provider resource.UID) string {
	segment := provider[strings.LastIndexByte(string(provider), '/')+1:]
	return strings.TrimSuffix(s.cfg.BaseURL, "/") + Prefix + string(segment)
}

// require checks that the caller may manage the directory of a provider.
func (s *Service) require(ctx context.Context, provider resource.UID) error {
	if err := s.authz.Require(ctx, resource.IdentityProvidersScimManage, provider); err != nil {
		return err
	}
	return s.authz.Require(ctx, resource.IdentityProvidersList, provider)
}

// Directory returns the directory of a provider. The caller needs identity_providers.list on it.
func (s *Service) Directory(ctx context.Context, provider resource.UID) (resource.Directory, error) {
	return authz.Get(ctx, s.authz, resource.IdentityProvidersList, provider, s.store.Directory)
}

// State returns the state of a directory's tokens.
func (s *Service) State(d resource.Directory) resource.CredentialState {
	return d.CredentialState(s.now())
}

// A Life is the requested life of a token.
type Life struct {
	Expires time.Time // zero means a year from now
	Never   bool      // the token does not expire
}

// expiry returns the expiry of a token that is created now, or zero if it does not expire.
func (l Life) expiry(now time.Time) (time.Time, error) {
	switch {
	case l.Never && !l.Expires.IsZero():
		return time.Time{}, fault.Field("expire_time", "cannot be combined with never_expires")
	case l.Never:
		return time.Time{}, nil
	case l.Expires.IsZero():
		return now.Add(defaultLife), nil
	case !l.Expires.After(now):
		return time.Time{}, fault.Field("expire_time", "must be in the future")
	case l.Expires.After(now.Add(longestLife)):
		return time.Time{}, fault.Field("expire_time", "must be within two years")
	}
	return l.Expires.UTC().Truncate(time.Millisecond), nil
}

func newToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return TokenPrefix + hex.EncodeToString(b[:])
}

func digestOf(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// GenerateToken returns the first token of a directory, which is stored only as a digest. The caller needs
// identity_providers.scim.manage and identity_providers.list on the provider. It returns fault.FailedPrecondition if
// the directory has a token.
func (s *Service) GenerateToken(
	ctx context.Context, provider resource.UID, life Life,
) (token string, d resource.Directory, _ error) {
	if err := s.require(ctx, provider); err != nil {
		return "", d, err
	}
	created := s.now()
	expires, err := life.expiry(created)
	if err != nil {
		return "", d, err
	}
	token = newToken()
	d, err = s.store.EditDirectory(ctx, provider, resource.ScimTokenGenerated,
		func(tx *store.Tx, d *resource.Directory) error {
			if err := s.maySeeToken(ctx, tx, provider); err != nil {
				return err
			}
			if d.Digest != nil {
				return fault.Unmet("TOKEN_EXISTS", "the directory has a token; regenerate it or revoke it first")
			}
			d.Digest, d.CreateTime, d.ExpireTime, d.RevokeTime = digestOf(token), created, expires, time.Time{}
			return nil
		})
	return token, d, err
}

// RegenerateToken replaces the token of a directory. The previous token remains valid for the duration overlap, at most
// a day; nil means an hour. etag must be the current one of the directory. RegenerateToken returns fault.NotFound if
// there is no token, and fault.Aborted if the directory has another etag.
func (s *Service) RegenerateToken(
	ctx context.Context, provider resource.UID, life Life, overlap *time.Duration, etag string,
) (token string, d resource.Directory, _ error) {
	if err := s.require(ctx, provider); err != nil {
		return "", d, err
	}
	created := s.now()
	expires, err := life.expiry(created)
	if err != nil {
		return "", d, err
	}
	keep := defaultOverlap
	if overlap != nil {
		keep = *overlap
	}
	if keep < 0 {
		return "", d, fault.Field("overlap", "must not be negative")
	}
	if etag == "" {
		return "", d, fault.Field("etag", "is required")
	}
	token = newToken()
	d, err = s.store.EditDirectory(ctx, provider, resource.ScimTokenRegenerated,
		func(tx *store.Tx, d *resource.Directory) error {
			if err := s.maySeeToken(ctx, tx, provider); err != nil {
				return err
			}
			if d.Digest == nil {
				return fault.Missing("SCIM token", string(provider))
			}
			if err := checkETag(*d, etag); err != nil {
				return err
			}
			ends := created.Add(min(keep, longestOverlap))
			if !d.ExpireTime.IsZero() && d.ExpireTime.Before(ends) {
				ends = d.ExpireTime
			}
			d.PreviousDigest, d.PreviousExpireTime = d.Digest, ends
			if !ends.After(created) {
				d.PreviousDigest, d.PreviousExpireTime = nil, time.Time{}
			}
			d.Digest, d.CreateTime, d.ExpireTime = digestOf(token), created, expires
			return nil
		})
	return token, d, err
}

func checkETag(d resource.Directory, etag string) error {
	if d.ETag() != etag {
		return fault.New(fault.Aborted, "Aborted: the directory has changed since; read the provider again")
	}
	return nil
}

// RevokeToken makes the tokens of a directory void, at the latest when it returns. The directory stays enabled, so that
// a new token can be generated for it. The caller needs the permissions of GenerateToken.
func (s *Service) RevokeToken(ctx context.Context, provider resource.UID) (resource.Directory, error) {
	if err := s.require(ctx, provider); err != nil {
		return resource.Directory{}, err
	}
	revoked := s.now()
	return s.store.EditDirectory(ctx, provider, resource.ScimTokenRevoked,
		func(_ *store.Tx, d *resource.Directory) error {
			d.Digest, d.PreviousDigest = nil, nil
			d.ExpireTime, d.PreviousExpireTime, d.RevokeTime = time.Time{}, time.Time{}, revoked
			return nil
		})
}

// SetEnabled enables or disables the directory of a provider. etag must be the current one of the directory. The
// caller needs the permissions of GenerateToken. Enabling it needs two owners whom an administrator has assigned, and
// a provider that the operator does not trust for all organizations. SetEnabled returns fault.FailedPrecondition if
// these conditions do not hold, and fault.Aborted if the directory has another etag.
func (s *Service) SetEnabled(
	ctx context.Context, provider resource.UID, enabled bool, etag string,
) (resource.Directory, error) {
	if err := s.require(ctx, provider); err != nil {
		return resource.Directory{}, err
	}
	if etag == "" {
		return resource.Directory{}, fault.Field("etag", "is required")
	}
	return s.store.EditDirectory(ctx, provider, resource.ScimEnabledUpdated,
		func(tx *store.Tx, d *resource.Directory) error {
			if err := checkETag(*d, etag); err != nil {
				return err
			}
			if d.Enabled = enabled; !enabled {
				return nil
			}
			p, err := iamdb.In(tx).HoldProvider(ctx, provider)
			if err != nil {
				return err
			}
			if p.Trusted {
				return errTrusted()
			}
			owners, err := iamdb.In(tx).AssignedOwners(ctx, provider.Root())
			if err == nil && owners < minOwners {
				err = fault.Unmet("TOO_FEW_OWNERS", "the organization needs %d owners whose role an administrator has "+
					"assigned and which does not expire, because the directory may deactivate any of them; it has %d",
					minOwners, owners)
			}
			return err
		})
}

// errTrusted returns the error for a provider whose people belong to the whole installation.
func errTrusted() error {
	return fault.Unmet("TRUSTED_PROVIDER", "the operator trusts this provider for all organizations, so the directory of "+
		"one organization cannot manage its people")
}
