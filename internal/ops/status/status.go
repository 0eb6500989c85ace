// Package status reports the state of the installation to its operators. Operators are named by
// a setting: no role makes one, because roles are given in organizations, and nobody in an
// organization may look at the others.
package status

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
)

const (
	replicaGone     = 10 * time.Second // without a heartbeat
	budgetsCompared = 200              // of organizations
	budgetsShown    = 20
)

// A Service tells operators how the installation is.
type Service struct {
	db        *store.DB
	issuer    *token.Issuer
	probe     Probe
	operators []resource.UID
}

// A Probe returns what only the server knows.
type Probe func(context.Context) State

// A State is how a replica is.
type State struct {
	Version           string
	StartTime         time.Time
	KeyRotation       time.Duration
	CertificateExpiry time.Time // zero without TLS

	QueuesKnown        bool // the next two were read
	FeedOverdue        time.Duration
	InspectionsWaiting int64
	DeliveriesWaiting  int
	OldestDelivery     time.Time // zero if none waits
	Mail               bool      // messages are sent, and it is known how many wait
	MailsWaiting       int

	Collection Collection
}

// A Collection is how often garbage is collected, and how it went last.
type Collection struct {
	Interval, Grace time.Duration // it never runs by itself if the interval is negative
	Last            time.Time     // zero before the first
	Error           string
	Blobs, Bytes    int64
}

// An Installation is how everything is, as one replica sees it.
type Installation struct {
	State
	Database           store.Health
	KnownSchema        int64
	Connections, Limit int
	Keys               []token.KeyState
	Budgets            []BudgetUse // of organizations, the fullest first
	BudgetCount        int         // of all groups
	BudgetsIncomplete  bool        // more organizations have one than were compared
}

// A BudgetUse is how much of a limit of an organization is used.
type BudgetUse struct {
	Group       resource.UID
	Name        string
	Metric      resource.Metric
	Used, Limit int64
}

// New returns a Service for these operators.
func New(db *store.DB, issuer *token.Issuer, probe Probe, operators []resource.UID) *Service {
	return &Service{db, issuer, probe, slices.Clone(operators)}
}

// Appoint makes an identity an operator. It must not be called once requests are served.
func (s *Service) Appoint(uid resource.UID) { s.operators = append(s.operators, uid) }

// Is reports whether the caller is an operator, with a token that is not narrowed. A nil
// Service has no operators.
func (s *Service) Is(ctx context.Context) bool { return s != nil && s.require(ctx) == nil }

func (s *Service) require(ctx context.Context) error {
	c, err := authz.RequireUnnarrowed(ctx)
	if err == nil && !slices.Contains(s.operators, c.Identity) {
		err = fault.New(fault.PermissionDenied, "Permission denied: only operators of the installation may do this")
	}
	return err
}

// Live reports whether a replica serves.
func Live(r store.ReplicaState) bool { return r.Age <= replicaGone }

// Installation returns how the installation is. The caller must be an operator.
func (s *Service) Installation(ctx context.Context) (in Installation, err error) {
	if err := s.require(ctx); err != nil {
		return in, err
	}
	in.State = s.probe(ctx)
	if in.Database, err = s.db.Inspect(ctx); err != nil {
		return in, err
	}
	if in.KnownSchema, err = store.KnownSchema(); err != nil {
		return in, err
	}
	pool := s.db.PoolStats()
	in.Connections, in.Limit = pool.InUse, pool.MaxOpenConnections
	if in.Keys, err = s.issuer.Keys(ctx); err != nil {
		return in, err
	}
	return in, s.addBudgets(ctx, &in)
}

// addBudgets adds the limits of organizations that are used the most. What is limited by
// time is not among them, because it begins anew.
func (s *Service) addBudgets(ctx context.Context, in *Installation) error {
	budgets, err := s.db.Budgets(ctx)
	if err != nil {
		return err
	}
	all := budgets.All()
	in.BudgetCount = len(all)
	all = slices.DeleteFunc(all, func(b resource.Budget) bool { return !b.UID.IsRoot() })
	if len(all) > budgetsCompared {
		in.BudgetsIncomplete, all = true, all[:budgetsCompared]
	}
	groups := make([]resource.UID, len(all))
	for i, b := range all {
		groups[i] = b.UID
	}
	usage, err := s.db.UsageOf(ctx, groups)
	if err != nil {
		return err
	}
	in.Budgets = fullest(all, usage)
	names, err := iamdb.New(s.db).NamesOfGroups(ctx, groups)
	for i, u := range in.Budgets {
		in.Budgets[i].Name = names[u.Group]
	}
	return err
}

func fullest(all []resource.Budget, usage map[resource.UID]map[resource.Metric]int64) (uses []BudgetUse) {
	for _, b := range all {
		for m, limit := range b.Limits {
			if m != resource.RequestsPerSecond && m != resource.PullsPerDay {
				uses = append(uses, BudgetUse{Group: b.UID, Metric: m, Used: usage[b.UID][m], Limit: limit})
			}
		}
	}
	slices.SortFunc(uses, func(x, y BudgetUse) int {
		return cmp.Or(cmp.Compare(y.share(), x.share()), cmp.Compare(x.Group, y.Group), cmp.Compare(x.Metric, y.Metric))
	})
	return uses[:min(len(uses), budgetsShown)]
}

func (u BudgetUse) share() float64 { return float64(u.Used) / float64(max(u.Limit, 1)) }
