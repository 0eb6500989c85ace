package query

import (
	"context"
	"errors"
	"slices"
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
	listed, err := s.findings(ctx, repo, found)
	if err != nil {
		return r, false, err
	}
	slices.SortFunc(listed, func(a, b finding.Finding) int { return strings.Compare(b.Key(), a.Key()) })
	r = evidence.Report{Scanner: Scanner, Time: store.FromMS(store.MS(time.Now()))}
	for _, v := range listed {
		r.Matches = append(r.Matches, v.Match(Scanner))
	}
	return r, true, nil
}
