// Package simulation reports what changes to access control would do, without making them.
package simulation

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/grantlog"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/platform/fairlimit"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// The bounds of a simulation.
const (
	MaxChanges = 20 // changes

	simulationShown    = 50                  // of each list
	simulationPeriod   = 30 * 24 * time.Hour // in which use and pulls count
	simulationTime     = 5 * time.Second     // then the answer is what was found until then
	rehearsalTime      = 3 * time.Second     // to make the changes and to read what they did
	maxSimIdentities   = 2000
	maxSimPairs        = 200_000 // of an identity and a capability on a group
	maxSimPullers      = 100     // whose pulls are looked at
	maxPullsOfOne      = 2000
	reasonTime         = "TIME: the answer took too long; what was found until then is here"
	reasonIdentities   = "IDENTITIES: the changes are about too many identities; the first 2000 were looked at"
	reasonPairs        = "CHANGES: too many capabilities are gained and lost; not all were counted"
	reasonPulls        = "PULLS: there are too many pulls to look at; the newest were"
	reasonUnknownUsers = "UNKNOWN: who comes through a mapping, a provider or an invite is known only then"
)

// Config is what a Service needs besides the database. The zero value works.
type Config struct {
	Now func() time.Time // nil is time.Now

	// Pulls returns the repos of an organization that an identity has pulled from since a time, by its newest n pulls.
	// all is false if there are more. If it is nil, nothing is told about pulls.
	Pulls func(ctx context.Context, org, identity resource.UID, since time.Time, n int) (_ []PulledRepo, all bool, _ error)
}

// A Service simulates changes to access control.
type Service struct {
	store *iamdb.Store
	past  *grantlog.Store
	iam   *iam.Service
	authz *authz.Checker
	cfg   Config
	turns *fairlimit.Limiter
}

// New returns a Service over db. i decides which people and bindings a caller may see.
func New(db *store.DB, a *authz.Checker, i *iam.Service, cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{store: iamdb.New(db), past: grantlog.New(db), iam: i, authz: a, cfg: cfg,
		turns: fairlimit.YieldToWriters()}
}

// A PulledRepo is a repo that an identity has pulled from.
type PulledRepo struct {
	Repo   resource.UID
	Path   string // the names of its groups and its own
	Public bool   // anybody can pull from it
	Count  int64
	Last   time.Time
}

// Consequences are what changes would do.
type Consequences struct {
	Gained, Lost AccessChanges
	Workloads    Affected[resource.IdentityInfo] // that could no longer exchange
	Sessions     Affected[EndedSessions]
	Pulls        Affected[RefusedPulls]
	Incomplete   []string // why there may be more
}

// AccessChanges are capabilities that identities would gain or lose.
type AccessChanges struct {
	Affected[AccessChange]
	Identities int // whom it is about
	Used       int // of all, those used in the last 30 days
}

// Affected are the first of those that the caller may see, how many there are altogether, and how many of these the caller
// may not see.
type Affected[T any] struct {
	Shown         []T
	Total, Hidden int
}

// An AccessChange is a capability that an identity would gain or lose on a group.
type AccessChange struct {
	Identity   resource.IdentityInfo
	Capability resource.Capability
	Group      resource.Info
	LastUse    time.Time // zero if it is not known
}

// EndedSessions are the sessions of somebody that would end.
type EndedSessions struct {
	Identity resource.IdentityInfo
	Count    int
}

// RefusedPulls are pulls of the last 30 days from a repo that would have been refused.
type RefusedPulls struct {
	Identity resource.IdentityInfo
	PulledRepo
}

// Changes are what to simulate.
type Changes struct {
	Apply     func(context.Context) error // makes the changes; it may be called again
	Providers []resource.UID              // whose mappings are deleted
	Open      bool                        // somebody unknown may gain something later
}

// Run reports what changes would do, and makes none of them. They are made in a transaction that is rolled back, by
// the methods that would make them, with their authorization and their errors. What the caller may not see is counted.
func (s *Service) Run(ctx context.Context, sim Changes) (out Consequences, _ error) {
	caller, err := authz.RequireCaller(ctx)
	if err != nil {
		return out, err
	}
	end, err := s.turns.Acquire(ctx, caller.Identity.Root())
	if err != nil {
		return out, err
	}
	defer end()
	ends := time.Now().Add(simulationTime)
	d, err := s.rehearse(ctx, sim)
	if err != nil {
		return out, err
	}
	d.ends = ends
	if sim.Open {
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
