// Package status reports the state of the installation to its operators. A setting names the operators. No role
// makes an identity an operator, because roles are granted in organizations, and no member of an organization
// may see the others.
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
	"github.com/holdfast-dev/holdfast/internal/store/health"
)

const (
	replicaGone     = 10 * time.Second // a replica without a heartbeat for this long is not live
	budgetsCompared = 200              // maximum number of organizations whose budgets are compared with their usage
	budgetsShown    = 20               // maximum number of limits in a report
)

// A Service reports the state of the installation to operators.
type Service struct {
	db        *store.DB
	issuer    *token.Issuer
	probe     Probe
	operators []resource.UID
}

// A Probe returns the state of this replica, which only the server knows.
type Probe func(context.Context) State

// A State is the state of a replica.
type State struct {
	Version           string
	StartTime         time.Time
	KeyRotation       time.Duration
	CertificateExpiry time.Time // expiry of the TLS certificate; zero without TLS

	QueuesKnown        bool // whether the numbers of waiting tasks could be read
	FeedOverdue        time.Duration
	FeedsFailing       int
	SinksFailing       int // number of subscriptions whose sinks do not accept events
	InspectionsWaiting int64
	OldestInspection   time.Time // time of the oldest push that waits for its first inspection; zero if none waits
	DeliveriesWaiting  int
	OldestDelivery     time.Time // time of the oldest waiting delivery; zero if no delivery waits
	Mail               bool      // whether mail is configured and MailsWaiting could be read
	MailsWaiting       int
	OldestMail         time.Time // zero if no message waits

	Collection Collection
}

// A Collection is the schedule of the garbage collector, and the result of its last run.
type Collection struct {
	Interval, Grace time.Duration // if Interval is negative, the collector is not scheduled
	Last            time.Time     // time of the last run; zero before the first run
	Error           string
	Blobs, Bytes    int64
}

// An Installation is the state of the installation, as one replica sees it.
type Installation struct {
	State
	Database           health.Database
	KnownSchema        int64
	Connections, Limit int
	Keys               []token.KeyState
	Budgets            []BudgetUse // usage of the budgets of organizations, the highest usage first
	BudgetCount        int         // number of groups that have a budget
	BudgetsIncomplete  bool        // more than budgetsCompared organizations have a budget
}

// A BudgetUse is the usage of one limit of an organization.
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

// Appoint makes an identity an operator. It must not be called after the server has begun to serve requests.
func (s *Service) Appoint(uid resource.UID) { s.operators = append(s.operators, uid) }

// Is reports whether the caller is an operator, with a token that is not narrowed (see authz.RequireUnnarrowed). A nil
// Service has no operators.
func (s *Service) Is(ctx context.Context) bool { return s != nil && s.require(ctx) == nil }

func (s *Service) require(ctx context.Context) error {
	c, err := authz.RequireUnnarrowed(ctx)
	if err == nil && !slices.Contains(s.operators, c.Identity) {
		err = fault.New(fault.PermissionDenied, "Permission denied: only operators of the installation may do this")
	}
	return err
}

// Live reports whether a replica has sent a heartbeat recently.
func Live(r health.Replica) bool { return r.Age <= replicaGone }

// Installation returns the state of the installation. It returns fault.PermissionDenied unless the caller is an
// operator.
func (s *Service) Installation(ctx context.Context) (in Installation, err error) {
	if err := s.require(ctx); err != nil {
		return in, err
	}
	in.State = s.probe(ctx)
	if in.Database, err = health.Inspect(ctx, s.db); err != nil {
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

// addBudgets adds the fullest limits of organizations. It leaves out the limits per second and per day, because their
// usage starts again after each period.
func (s *Service) addBudgets(ctx context.Context, in *Installation) error {
	budgets, err := s.db.Budgets(ctx)
	if err != nil {
		return err
	}
	orgs := budgets.All()
	in.BudgetCount = len(orgs)
	orgs = slices.DeleteFunc(orgs, func(b resource.Budget) bool { return !b.UID.IsRoot() })
	if len(orgs) > budgetsCompared {
		in.BudgetsIncomplete, orgs = true, orgs[:budgetsCompared]
	}
	groups := make([]resource.UID, len(orgs))
	for i, b := range orgs {
		groups[i] = b.UID
	}
	usage, err := s.db.UsageOf(ctx, groups)
	if err != nil {
		return err
	}
	in.Budgets = fullest(orgs, usage)
	names, err := iamdb.New(s.db).NamesOfGroups(ctx, groups)
	for i, u := range in.Budgets {
		in.Budgets[i].Name = names[u.Group]
	}
	return err
}

func fullest(budgets []resource.Budget, usage map[resource.UID]map[resource.Metric]int64) (uses []BudgetUse) {
	for _, b := range budgets {
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
