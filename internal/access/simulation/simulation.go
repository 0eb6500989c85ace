// Package simulation reports the consequences of changes to access control without making the changes.
package simulation

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"
	"github.com/holdfast-dev/holdfast/internal/registry"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The bounds of a simulation.
const (
	MaxChanges = 20 // greatest number of changes in one simulation

	maxShown       = 50                  // greatest number of items in each list of the result
	pullPeriod     = 30 * 24 * time.Hour // how far back pulls are considered
	maxChanges     = 200_000             // greatest number of capabilities that identities gain and lose on groups
	maxPullers     = 100                 // greatest number of identities whose pulls are read
	maxPullsOfUser = 2000                // greatest number of pulls that are read for one identity, newest first
)

// limits are the bounds that depend on the number of changes.
type limits struct {
	total      time.Duration // time after which the result is returned, even if it is incomplete
	apply      time.Duration // timeout for applying the changes and reading their effect
	identities int           // greatest number of affected identities
	usePeriod  time.Duration // how far back uses are considered
}

var (
	fewLimits  = limits{5 * time.Second, 3 * time.Second, 2000, 30 * 24 * time.Hour}
	manyLimits = limits{100 * time.Second, 90 * time.Second, 20_000, 90 * 24 * time.Hour}
)

// The reasons why a result is incomplete.
const (
	reasonTime         = "TIME: the simulation took too long; the result has only what was found until then"
	reasonIdentities   = "IDENTITIES: the changes affect too many identities; the result does not cover all of them"
	reasonChanges      = "CHANGES: identities gain and lose too many capabilities; the result does not count all of them"
	reasonPulls        = "PULLS: there are too many pulls; the result considers only the newest"
	reasonUnknownUsers = "UNKNOWN: people who will come through a mapping, a provider or an invite are not known yet"
)

// Config is what a Service needs besides the database. The zero value works.
type Config struct {
	Now func() time.Time // nil is time.Now

	Pulls PullRecords // nil: the result has no pulls
}

// PullRecords are the records of pulls from the registry.
type PullRecords interface {
	// PulledBy returns the repos of an organization from which an identity has pulled since a time. It considers the
	// newest n pulls; complete is false if there are more.
	PulledBy(
		ctx context.Context, org, identity resource.UID, since time.Time, n int,
	) (repos []registry.PulledRepo, complete bool, _ error)
}

// A Service simulates changes to access control. It is safe for concurrent use.
type Service struct {
	store   *iamdb.Store
	past    *grantlog.Store
	iam     *iam.Service
	authz   *authz.Checker
	cfg     Config
	limiter *fairlimit.Limiter
}

// New returns a Service over db. i decides which people and bindings a caller may see.
func New(db *store.DB, a *authz.Checker, i *iam.Service, cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{store: iamdb.New(db), past: grantlog.New(db), iam: i, authz: a, cfg: cfg,
		limiter: fairlimit.YieldToWriters()}
}

// Consequences are the effects that changes would have.
type Consequences struct {
	Gained, Lost AccessChanges
	Workloads    Affected[resource.IdentityInfo] // workloads that could no longer exchange their tokens
	Sessions     Affected[EndedSessions]
	Pulls        Affected[RefusedPulls]
	Incomplete   []string // reasons why there may be more consequences
}

// AccessChanges are the capabilities that identities would gain or lose.
type AccessChanges struct {
	Affected[AccessChange]
	Identities int // number of affected identities
	Used       int // how many of the Total capabilities were used in the last 30 days, or 90: see Changes.Many
}

// Affected has the first items that the caller may see, the total number of items, and the number of items that the
// caller may not see.
type Affected[T any] struct {
	Shown         []T
	Total, Hidden int
}

// An AccessChange is a capability that an identity would gain or lose on a group.
type AccessChange struct {
	Identity   resource.IdentityInfo
	Capability resource.Capability
	Group      resource.Info
	LastUse    time.Time // time of the last use; zero if unknown
}

// EndedSessions are the sessions of an identity that would end.
type EndedSessions struct {
	Identity resource.IdentityInfo
	Count    int
}

// RefusedPulls are the pulls of an identity from a repo in the last 30 days that would have been refused.
type RefusedPulls struct {
	Identity resource.IdentityInfo
	registry.PulledRepo
}

// Changes are the changes to simulate.
type Changes struct {
	Apply        func(context.Context) error // makes the changes; may be called more than once
	Providers    []resource.UID              // identity providers whose mappings are deleted
	UnknownUsers bool                        // whether people who have never signed in may gain access later
	Many         bool                        // whether there may be thousands; then uses of 90 days are considered
}

// Run returns the consequences of changes. It makes the changes in a transaction, by calling the methods that make
// them for real, and rolls the transaction back. So it returns the errors of these methods, including their
// authorization errors. It counts consequences that the caller may not see, but does not show them. It returns
// fault.ResourceExhausted if the changes take too long.
func (s *Service) Run(ctx context.Context, c Changes) (out Consequences, _ error) {
	if _, err := authz.RequireCaller(ctx); err != nil {
		return out, err
	}
	release, err := s.limiter.Acquire(ctx, s.authz.Tenant(ctx))
	if err != nil {
		return out, err
	}
	defer release()
	limits := fewLimits
	if c.Many {
		limits = manyLimits
	}
	deadline := time.Now().Add(limits.total)
	d, err := s.apply(ctx, c, limits)
	if err != nil {
		return out, err
	}
	d.deadline = deadline
	if c.UnknownUsers {
		d.incomplete(reasonUnknownUsers)
	}
	gained, lost := d.compare()
	if err := s.readUses(ctx, d, lost); err != nil {
		return out, err
	}
	if out.Gained, err = s.nameChanges(ctx, d, gained); err != nil {
		return out, err
	}
	if out.Lost, err = s.nameChanges(ctx, d, lost); err != nil {
		return out, err
	}
	if out.Workloads, err = s.lostWorkloads(ctx, d); err != nil {
		return out, err
	}
	if out.Sessions, err = s.endedSessions(ctx, d); err != nil {
		return out, err
	}
	if out.Pulls, err = s.refusedPulls(ctx, d, lost); err != nil {
		return out, err
	}
	out.Incomplete = d.reasons
	return out, nil
}
