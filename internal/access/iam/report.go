package iam

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	reportEvery = 7 * 24 * time.Hour
	lookEvery   = time.Hour // for groups that are due
	reportPage  = 1000
	reportMost  = 100_000 // of a kind that are looked at for one report
	reportFirst = 50      // that are listed in one
)

// runReports tells groups what is not used until ctx ends.
func (s *Service) runReports(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(lookEvery)
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

// reportUnused tells every group with a subscription once a week what is not used there. Every replica may run it.
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
		log.WarnContext(ctx, "a group was not told what is unused", "error", err)
	}
}

// unusedReport counts what is not used in a group and below it. Whom that concerns is not in it.
func (s *Service) unusedReport(ctx context.Context, group resource.UID) (r resource.UnusedReport, err error) {
	r = resource.UnusedReport{Group: group, Since: DefaultUnused}
	if r.RecordedSince, err = s.past.UsesRecordedSince(ctx); err != nil {
		return r, err
	}
	_, now := s.store.Clock()
	for _, kind := range unusedKinds {
		total := resource.UnusedTotal{Kind: kind.kind}
		req := page.Request{Size: reportPage, Order: unusedList.Default}
		for {
			got, err := kind.read(s, ctx, unusedQuery{under: []resource.UID{group}, req: req, cutoff: now.Add(-DefaultUnused)})
			if err != nil {
				return r, err
			}
			total.Looked = min(total.Looked+reportPage, got.Total)
			total.Unused += int64(len(got.Items))
			for _, u := range got.Items[:min(len(got.Items), reportFirst-len(r.First))] {
				r.First = append(r.First, resource.UnusedItem{
					Kind: kind.kind, UID: u.UID, CreateTime: u.CreateTime, LastUse: u.LastUse,
					Capabilities: u.Wider.Len(), PullToken: u.PullToken,
				})
			}
			if req.After = got.Last; got.Last == nil || total.Looked >= reportMost {
				total.Incomplete = got.Last != nil
				break
			}
		}
		r.Totals = append(r.Totals, total)
	}
	return r, nil
}
