package finding

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// Organizations returns the organizations of groups, each once and in order.
func Organizations(groups []resource.UID) (roots []resource.UID) {
	for _, g := range groups {
		roots = append(roots, g.Root())
	}
	slices.Sort(roots)
	return slices.Compact(roots)
}

// VisibleAdvisories returns the advisories in hits whose groups are in reach, by key.
func VisibleAdvisories(
	ctx context.Context, stored *advisorydb.Store, hits []findingdb.Hit, reach []resource.UID,
) (map[int64]vuln.Advisory, error) {
	var keys []int64
	for _, h := range hits {
		keys = append(keys, h.Advisory)
	}
	slices.Sort(keys)
	found, err := stored.AdvisoriesByKey(ctx, slices.Compact(keys))
	advisories := map[int64]vuln.Advisory{}
	for _, a := range found {
		if store.Covered(reach, a.UID.Parent()) {
			advisories[store.Segment(a.UID)] = a
		}
	}
	return advisories, err
}

// Reach returns the groups and repos under group on which the caller holds all
// capabilities. An empty group means anywhere.
func Reach(
	ctx context.Context, checker *authz.Checker, group resource.UID, want ...resource.Capability,
) (reach []resource.UID, _ error) {
	for i, c := range want {
		under, err := checker.Reach(ctx, c)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			reach = under
		} else {
			reach = store.Overlap(reach, under)
		}
	}
	if group != "" {
		reach = store.Overlap(reach, []resource.UID{group})
	}
	return reach, nil
}
