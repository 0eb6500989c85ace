// Package budget limits what groups may use.
//
// A budget applies to a group and everything below it. Package store checks limits of stored resources, in the
// transaction that adds to them; this package checks rates. The people whom a budget limits cannot raise it: callers
// who may update the parent group set the budget of a folder, and the operator sets the budget of an organization.
package budget

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/budgetdb"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Config has the settings of an operator. The zero value works.
type Config struct {
	Log *slog.Logger // nil discards all messages
	Now func() time.Time
}

// A Service manages budgets and enforces their rates. It is safe for concurrent use.
type Service struct {
	store  *budgetdb.Store
	groups *iamdb.Store
	authz  *authz.Checker
	pages  *page.Tokens
	cfg    Config

	buckets sync.Map // request rates: from the resource.UID of a group with a budget to *bucket
	pulls   pullCounts

	refused    map[resource.Metric]*atomic.Int64
	nearlyUsed map[resource.Metric]*atomic.Int64
}

// New returns a Service over db. The caller must also call Run. New sets db.BudgetHooks, so that errors of the store
// reveal the usage of a group only to callers who may list the group.
func New(db *store.DB, a *authz.Checker, t *page.Tokens, cfg Config) *Service {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Service{store: budgetdb.New(db), groups: iamdb.New(db), authz: a, pages: t, cfg: cfg,
		refused: map[resource.Metric]*atomic.Int64{}, nearlyUsed: map[resource.Metric]*atomic.Int64{}}
	for _, m := range resource.Metrics {
		s.refused[m], s.nearlyUsed[m] = &atomic.Int64{}, &atomic.Int64{}
	}
	s.pulls.days = map[budgetdb.PullDay]*pullCount{}
	db.BudgetHooks = store.BudgetHooks{
		Visible: func(ctx context.Context, group resource.UID) bool { return a.Sees(ctx, resource.GroupsList, group) },
		Refused: func(m resource.Metric) { s.refused[m].Add(1) },
	}
	return s
}

// Refused returns the number of requests that this process has refused because of a metric.
func (s *Service) Refused(m resource.Metric) int64 { return s.refused[m].Load() }

// NearlyUsed returns the number of groups that have used at least nine tenths of a metric's budget. It is counted once
// a minute.
func (s *Service) NearlyUsed(m resource.Metric) int64 { return s.nearlyUsed[m].Load() }

// A Report is a budget with the usage of its group.
type Report struct {
	resource.Budget
	Usage Usage
}

// Usage is the usage of a group.
type Usage struct {
	Stored             map[resource.Metric]int64
	Pulls, PublicPulls int64 // pulls of today; 0 if there is no limit
}

// Get returns the budget and the usage of a group. The caller needs groups.list on the group.
func (s *Service) Get(ctx context.Context, group resource.UID) (Report, error) {
	if _, err := authz.Get(ctx, s.authz, resource.GroupsList, group, s.groups.Group); err != nil {
		return Report{}, err
	}
	return s.read(ctx, group)
}

func (s *Service) read(ctx context.Context, group resource.UID) (Report, error) {
	b, err := s.store.Budget(ctx, group)
	if err != nil {
		return Report{}, err
	}
	return s.report(ctx, b)
}

func (s *Service) report(ctx context.Context, b resource.Budget) (Report, error) {
	stored, err := s.store.Usage(ctx, b.UID)
	if err != nil {
		return Report{}, err
	}
	return s.complete(ctx, Report{b, Usage{Stored: stored}})
}

// complete adds the default limits to a report, and the pulls of today if the budget limits them.
func (s *Service) complete(ctx context.Context, r Report) (_ Report, err error) {
	if r.Budget, err = s.store.WithDefaults(ctx, r.Budget); err != nil {
		return r, err
	}
	b := r.Budget
	if _, ok := b.Limits[resource.PullsPerDay]; !ok {
		return r, nil
	}
	if r.Usage.Pulls, err = s.pullsToday(ctx, b.UID, false); err != nil {
		return r, err
	}
	r.Usage.PublicPulls, err = s.pullsToday(ctx, b.UID, true)
	return r, err
}

// List returns a page of the budgets of the groups on which the caller holds groups.list.
func (s *Service) List(ctx context.Context, f resource.Filter, p page.Params) (page.Page[Report], error) {
	got, err := authz.List(ctx, s.authz, s.pages, budgetdb.List, resource.GroupsList, f, p, s.store.ListBudgets)
	if err != nil {
		return page.Page[Report]{}, err
	}
	var groups []resource.UID
	for _, b := range got.Items {
		groups = append(groups, b.UID)
	}
	stored, err := s.store.UsageOf(ctx, groups)
	if err != nil {
		return page.Page[Report]{}, err
	}
	var reports []Report
	for _, b := range got.Items {
		r, err := s.complete(ctx, Report{b, Usage{Stored: stored[b.UID]}})
		if err != nil {
			return page.Page[Report]{}, err
		}
		reports = append(reports, r)
	}
	return page.With(got, reports), nil
}

// Update applies change to the budget of a folder. The caller needs groups.update on the parent of the folder.
func (s *Service) Update(
	ctx context.Context, group resource.UID, change func(*resource.Budget) error,
) (Report, error) {
	if err := s.requireParent(ctx, group); err != nil {
		return Report{}, err
	}
	return s.Set(ctx, group, change)
}

// Delete removes the budget of a folder. The caller needs groups.update on the parent of the folder.
func (s *Service) Delete(ctx context.Context, group resource.UID) error {
	if err := s.requireParent(ctx, group); err != nil {
		return err
	}
	return s.store.DeleteBudget(ctx, group)
}

// requireParent returns nil if the caller may set the budget of a group. The budget limits everybody who acts in the
// group, including its administrators, so the caller needs groups.update on the parent. An organization has no parent:
// only the operator sets its budget.
func (s *Service) requireParent(ctx context.Context, group resource.UID) error {
	if _, err := authz.RequireCaller(ctx); err != nil {
		return err
	}
	if group.IsRoot() {
		return fault.New(fault.PermissionDenied, "Permission denied: only the operator sets the budget of an organization")
	}
	return s.authz.Require(ctx, resource.GroupsUpdate, group.Parent())
}

// Set applies change to the budget of any group. It authorizes nobody: it is for the operator.
func (s *Service) Set(ctx context.Context, group resource.UID, change func(*resource.Budget) error) (Report, error) {
	b, err := store.Edit(ctx, group, s.store.Budget, s.store.UpdateBudget, func(b *resource.Budget) error {
		before := *b
		if err := change(b); err != nil {
			return err
		}
		b.UID, b.CreateTime, b.UpdateTime = before.UID, before.CreateTime, before.UpdateTime
		return b.Validate()
	})
	if err != nil {
		return Report{}, err
	}
	return s.report(ctx, b)
}

// Show returns the budget and the usage of any group. It authorizes nobody: it is for the operator.
func (s *Service) Show(ctx context.Context, group resource.UID) (Report, error) {
	if _, err := s.groups.Group(ctx, group); err != nil {
		return Report{}, err
	}
	return s.read(ctx, group)
}
