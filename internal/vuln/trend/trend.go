// Package trend counts the findings of groups every day, and returns the counts of the last two years.
package trend

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
)

const (
	countEvery  = time.Hour        // time between two counts of an organization; the last count of a day remains
	checkEvery  = 15 * time.Second // time between two searches for organizations that are due
	defaultDays = 90
)

// A Service counts the findings of groups, and returns the counts. It is safe for concurrent use.
type Service struct {
	packages *findingdb.Store
	queries  *query.Service
	authz    *authz.Checker
	log      *slog.Logger
}

// NewService returns a Service over a database.
func NewService(packages *findingdb.Store, queries *query.Service, c *authz.Checker, log *slog.Logger) *Service {
	return &Service{packages, queries, c, log}
}

// Run counts the findings of each organization every hour, until ctx is done. Replicas share the work: each count is
// made by one of them.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		for hasNext := true; hasNext && ctx.Err() == nil; {
			var err error
			if hasNext, err = s.CountNext(ctx); err != nil && ctx.Err() == nil {
				s.log.ErrorContext(ctx, "findings not counted", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// CountNext counts the findings of one organization that is due. It reports whether there was one.
func (s *Service) CountNext(ctx context.Context) (bool, error) {
	counted := s.packages.Time()
	root, ok, err := s.packages.ClaimDayRun(ctx, counted, counted.Add(countEvery))
	if err != nil || !ok {
		return false, err
	}
	days, err := s.queries.CountDay(ctx, root)
	if err != nil {
		return true, err
	}
	return true, s.packages.PutDays(ctx, root, days)
}

// Days returns the counts of a group on the last days, the oldest first. A day without a count is left out. 0 means 90
// days. The counts include all images and all advisories of the organization. So the caller needs repo.list and
// vuln_report.list on the group, and advisories.list on its organization.
func (s *Service) Days(ctx context.Context, group resource.UID, days int) ([]vuln.FindingDay, error) {
	if err := s.authz.RequireAll(
		ctx, resource.NewCapabilities(resource.RepoList, resource.ReportsList), group); err != nil {
		return nil, err
	}
	if err := s.authz.Require(ctx, resource.AdvisoriesList, group.Root()); err != nil {
		return nil, err
	}
	if days == 0 {
		days = defaultDays
	}
	if days < 1 || days > vuln.KeepFindingDays {
		return nil, fault.Field("days", "must be from 1 to %d", vuln.KeepFindingDays)
	}
	if err := s.packages.CheckGroup(ctx, group); err != nil {
		return nil, err
	}
	return s.packages.Days(ctx, group, vuln.DayOf(s.packages.Time())-vuln.Day(days)+1)
}
