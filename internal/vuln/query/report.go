package query

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// Scanner is the name of this server in the reports that it returns.
const Scanner = "holdfast"

// Report returns the findings of an image as a scanner's report. The caller needs repo.list on the repo, and the
// capability list, which is the capability to list such reports.
//
// ok is false, and err is nil, if there is no answer. This is the case if the caller lacks the capabilities, if the
// image does not exist or cannot be read, or if the caller sees no advisories for any of its packages. An empty report
// would wrongly say that the image has no findings.
func (s *Service) Report(
	ctx context.Context, repo resource.UID, digest string, list resource.Capability,
) (r evidence.Report, ok bool, _ error) {
	err := s.authz.RequireAll(ctx, resource.NewCapabilities(resource.RepoList, list), repo)
	if errors.Is(err, fault.PermissionDenied) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	k, found, err := s.look(ctx, finding.Image{Repo: repo, Reference: digest})
	if errors.Is(err, fault.NotFound) || err == nil && k.unavailable() != nil {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	c, err := s.coverage(ctx, found)
	if err != nil || c.Covered == 0 {
		return r, false, err
	}
	listed, err := s.findings(ctx, found)
	if err != nil {
		return r, false, err
	}
	slices.SortFunc(listed, func(a, b finding.Finding) int { return strings.Compare(b.Key(), a.Key()) })
	r = evidence.Report{Scanner: Scanner, Time: store.FromMS(store.MS(time.Now()))}
	for _, v := range listed {
		r.Matches = append(r.Matches, matchOf(v))
	}
	return r, true, nil
}

var reportSeverities = map[finding.Severity]evidence.Severity{
	finding.SeverityUnknown: evidence.Unknown, finding.SeverityLow: evidence.Low, finding.SeverityMedium: evidence.Medium,
	finding.SeverityHigh: evidence.High, finding.SeverityCritical: evidence.Critical,
}

// matchOf converts a finding to the form of a scanner's report.
func matchOf(v finding.Finding) evidence.Match {
	m := evidence.Match{
		ID: v.ID, Aliases: v.Aliases, Source: Scanner, Description: v.Summary, Severity: reportSeverities[v.Severity],
		Package: evidence.Package{ID: v.Package.PURL, Name: v.Package.Name, Version: v.Package.Version, PURL: v.Package.PURL},
	}
	if v.Package.Place != "" {
		m.Locations = []string{v.Package.Place}
	}
	if v.Score > 0 {
		m.Scores = []evidence.Score{{Score: strconv.FormatFloat(v.Score, 'f', 1, 64)}}
	}
	if len(v.Fixed) > 0 {
		m.Fix = evidence.Fix{State: evidence.Fixed, Versions: v.Fixed}
	}
	return m
}
