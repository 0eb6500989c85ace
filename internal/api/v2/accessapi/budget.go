package accessapi

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	"github.com/holdfast-dev/holdfast/internal/access/budget"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// limitsOf returns pointers to the limits in a message, by metric.
func limitsOf(p *pb.Budget) map[resource.Metric]**int64 {
	return map[resource.Metric]**int64{
		resource.StoredBytes: &p.StoredBytes, resource.BudgetRepos: &p.Repos, resource.BudgetIdentities: &p.Identities,
		resource.BudgetAdvisories: &p.Advisories, resource.Webhooks: &p.Webhooks,
		resource.BudgetGroups: &p.Groups, resource.BudgetBindings: &p.Bindings,
		resource.RequestsPerSecond: &p.RequestsPerSecond, resource.PullsPerDay: &p.PullsPerDay,
	}
}

// budgetOf converts a budget to a message, without its usage.
func budgetOf(b resource.Budget) *pb.Budget {
	p := &pb.Budget{Uid: string(b.UID), CreateTime: wire.Time(b.CreateTime), UpdateTime: wire.Time(b.UpdateTime)}
	for m, field := range limitsOf(p) {
		if limit, ok := b.Limits[m]; ok {
			*field = &limit
		}
	}
	return p
}

func readBudget(p *pb.Budget, b *resource.Budget) error {
	b.Limits = map[resource.Metric]int64{}
	for m, field := range limitsOf(p) {
		if *field != nil {
			b.Limits[m] = **field
		}
	}
	return nil
}

func budgetReportOf(r budget.Report) *pb.Budget {
	p := budgetOf(r.Budget)
	stored := r.Usage.Stored
	p.Usage = &pb.BudgetUsage{
		StoredBytes: stored[resource.StoredBytes], Repos: stored[resource.BudgetRepos],
		Identities: stored[resource.BudgetIdentities], Advisories: stored[resource.BudgetAdvisories],
		Webhooks: stored[resource.Webhooks], PullsToday: r.Usage.Pulls, PublicPullsToday: r.Usage.PublicPulls,
		Groups: stored[resource.BudgetGroups], Bindings: stored[resource.BudgetBindings],
	}
	return p
}

func (s *server) GetBudget(ctx context.Context, r *pb.GetBudgetRequest) (*pb.Budget, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Budgets.Get, budgetReportOf)
}

func (s *server) ListBudgets(ctx context.Context, r *pb.ListBudgetsRequest) (*pb.ListBudgetsResponse, error) {
	p, err := wire.List(ctx, r, resource.Filter{UIDs: wire.UIDFilter(r.GetUidp())}, s.Budgets.List, budgetReportOf)
	return &pb.ListBudgetsResponse{Budgets: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}

func (s *server) UpdateBudget(ctx context.Context, r *pb.UpdateBudgetRequest) (*pb.Budget, error) {
	return wire.UpdateTo(ctx, r.GetUpdateMask(), "budget", r.GetBudget(), readBudget, budgetOf, s.Budgets.Update,
		budgetReportOf)
}

func (s *server) DeleteBudget(ctx context.Context, r *pb.DeleteBudgetRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Budgets.Delete)
}
