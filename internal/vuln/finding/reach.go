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
func Organizations(groups []resource.UID) (all []resource.UID) {
	for _, g := range groups {
		all = append(all, g.Root())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// VisibleAdvisories reads the advisories of hits whose groups are in reach, by key.
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
) (all []resource.UID, _ error) {
	for i, c := range want {
		under, err := checker.Reach(ctx, c)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			all = under
		} else {
			all = store.Overlap(all, under)
		}
	}
	if group != "" {
		all = store.Overlap(all, []resource.UID{group})
	}
	return all, nil
}
