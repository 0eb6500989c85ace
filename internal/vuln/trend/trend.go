// Package trend counts the findings of groups every day, and returns the counts of the last two years.
package trend

import (
	"context"
	"errors"
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
	claim       = 15 * time.Minute // longest time of a count
	retryAfter  = time.Minute      // time after which a failed count is repeated
	defaultDays = 90

	failureBusy     = "too many queries about the organization were running; the count is repeated every minute"
	failureInternal = "the server had an internal error; the count is repeated every minute"
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

// CountNext counts the findings of one organization that is due. It reports whether there was one. If the count fails,
// it is repeated: after a minute if the reason may pass soon, and otherwise with the next count.
func (s *Service) CountNext(ctx context.Context) (bool, error) {
	counted := s.packages.Time()
	root, ok, err := s.packages.ClaimDayRun(ctx, counted, counted.Add(claim))
	if err != nil || !ok {
		return false, err
	}
	next, failure := counted.Add(countEvery), ""
	err = s.count(ctx, root)
	switch {
	case errors.Is(err, fault.FailedPrecondition): // too many images; the message says how many are too many
		failure, err = err.Error(), nil
	case errors.Is(err, fault.ResourceExhausted): // the organization has too many queries at the moment
		next, failure, err = counted.Add(retryAfter), failureBusy, nil
	case err != nil:
		next, failure = counted.Add(retryAfter), failureInternal
	}
	return true, errors.Join(err, s.packages.FinishDayRun(context.WithoutCancel(ctx), root, next, failure))
}

// count counts the findings of an organization, and stores the counts.
func (s *Service) count(ctx context.Context, root resource.UID) error {
	ctx, cancel := context.WithTimeout(ctx, claim)
	defer cancel()
	last, err := s.packages.LastDay(ctx, root)
	if err != nil {
		return err
	}
	if last >= vuln.DayOf(s.packages.Time()) {
		last = 0 // the changes of earlier days were counted before
	}
	today, closed, err := s.queries.CountDay(ctx, root, last)
	if err != nil {
		return err
	}
	return s.packages.PutDays(ctx, root, today, closed)
}

// A Trend contains the counts of a group.
type Trend struct {
	Days    []vuln.FindingDay // the oldest first
	Failure string            // why the last count failed; "" if it did not
}

// Days returns the counts of a group on the last days; 0 means 90 days. The caller needs repo.list, vuln_report.list
// and advisories.list on the group. The stored counts include all advisories of the organization, so they are returned
// only if the caller has advisories.list on the organization. A day without a stored count is left out. Other callers
// get numbers that are computed from the advisories that they may list, for at most 90 days.
func (s *Service) Days(ctx context.Context, group resource.UID, days int) (t Trend, _ error) {
	if err := s.authz.RequireAll(ctx, resource.NewCapabilities(
		resource.RepoList, resource.ReportsList, resource.AdvisoriesList), group); err != nil {
		return t, err
	}
	if days == 0 {
		days = defaultDays
	}
	if days < 1 || days > vuln.KeepFindingDays {
		return t, fault.Field("days", "must be from 1 to %d", vuln.KeepFindingDays)
	}
	if err := s.packages.CheckGroup(ctx, group); err != nil {
		return t, err
	}
	err := s.authz.Require(ctx, resource.AdvisoriesList, group.Root())
	if errors.Is(err, fault.PermissionDenied) {
		t.Days, err = s.queries.ComputeDays(ctx, group, days)
		return t, err
	}
	if err != nil {
		return t, err
	}
	if t.Failure, err = s.packages.DayFailure(ctx, group.Root()); err != nil {
		return t, err
	}
	t.Days, err = s.packages.Days(ctx, group, vuln.DayOf(s.packages.Time())-vuln.Day(days)+1)
	return t, err
}
