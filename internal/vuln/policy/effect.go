package policy

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// Ineffective returns why a rule cannot refuse anything at present, or "" if it can. A rule needs data in a group that
// contains images of its target: in a group on the path from the organization to the target, or below the target. It
// does not authorize the caller, who must be allowed to read the rule.
func (s *Service) Ineffective(ctx context.Context, r vuln.PullRule) (string, error) {
	if r.Unsigned || r.RefuseUnknown {
		return "", nil
	}
	path := append(r.Target.Ancestors(), r.Target)
	if r.KEV {
		lists, err := s.advisories.ExploitLists(ctx, []resource.UID{r.Target.Root()})
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(lists, func(l vuln.ExploitList) bool {
			return l.Format == vuln.KEV && l.Count > 0 && (r.Target.Covers(l.Group) || slices.Contains(path, l.Group))
		}) {
			return "no catalog of known exploited vulnerabilities is stored in a group that contains the images", nil
		}
	}
	has, err := s.advisories.HasAdvisories(ctx, path)
	if err != nil || has {
		return "", err
	}
	below, err := s.advisories.Advisories(ctx, store.Reach{Under: []resource.UID{r.Target}}, vuln.AdvisoryFilter{},
		page.Request{Size: 1, Order: page.Order{Field: "uid"}}, false)
	if err != nil || below.Total > 0 {
		return "", err
	}
	return "no advisories are stored in a group that contains the images", nil
}
