package iam

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	reportEvery  = 7 * 24 * time.Hour // time between two reports of a group
	reportCheck  = time.Hour          // time between two checks for groups that need a report
	reportPage   = 1000               // number of resources that one query reads
	reportMax    = 100_000            // greatest number of resources of one kind that a report considers
	reportListed = 50                 // greatest number of resources that a report lists
)

// runReports reports unused access to groups until ctx ends.
func (s *Service) runReports(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(reportCheck)
	defer tick.Stop()
	for {
		s.reportUnused(ctx, log)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// reportUnused emits a report of unused access for every group with a subscription, once a week. Every replica may run
// it.
func (s *Service) reportUnused(ctx context.Context, log *slog.Logger) {
	earliest, _ := s.store.Clock()
	before := earliest.Add(-reportEvery)
	due, err := s.past.DueReports(ctx, before)
	for _, group := range due {
		var r resource.UnusedReport
		if r, err = s.unusedReport(ctx, group); err == nil {
			_, err = s.past.Report(ctx, r, before)
		}
		if err != nil {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		log.WarnContext(ctx, "report unused access", "error", err)
	}
}

// unusedReport counts the unused resources in a group and below it. The report does not name identities.
func (s *Service) unusedReport(ctx context.Context, group resource.UID) (r resource.UnusedReport, err error) {
	r = resource.UnusedReport{Group: group, Since: DefaultUnused}
	if r.RecordedSince, err = s.past.UsesRecordedSince(ctx); err != nil {
		return r, err
	}
	_, latest := s.store.Clock()
	for _, kind := range unusedKinds {
		total := resource.UnusedTotal{Kind: kind.kind}
		q := unusedQuery{under: []resource.UID{group}, cutoff: latest.Add(-DefaultUnused)}
		q.req = page.Request{Size: reportPage, Order: unusedList.Default}
		for {
			got, err := kind.read(s, ctx, q)
			if err != nil {
				return r, err
			}
			total.Looked = min(total.Looked+reportPage, got.Total)
			total.Unused += int64(len(got.Items))
			for _, u := range got.Items[:min(len(got.Items), reportListed-len(r.First))] {
				r.First = append(r.First, resource.UnusedItem{
					Kind: kind.kind, UID: u.UID, CreateTime: u.CreateTime, LastUse: u.LastUse,
					Capabilities: u.Wider.Len(), PullToken: u.PullToken,
				})
			}
			if q.req.After = got.Last; got.Last == nil || total.Looked >= reportMax {
				total.Incomplete = got.Last != nil
				break
			}
		}
		r.Totals = append(r.Totals, total)
	}
	return r, nil
}
