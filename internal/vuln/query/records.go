package query

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// addRecords adds the ratings and titles of other records to findings. They come from groups on which the caller has
// advisories.list. If unrated is set, only findings are completed whose severity may change, because a list of many
// findings needs only their severities.
func (s *Service) addRecords(ctx context.Context, findings []*finding.Finding, unrated bool) error {
	var names []string
	for _, v := range findings {
		if !unrated || v.Unrated() {
			names = append(names, v.Names()...)
		}
	}
	if len(names) == 0 {
		return nil
	}
	reach, err := s.authz.Reach(ctx, resource.AdvisoriesList)
	if err != nil {
		return err
	}
	records, err := finding.ReadRecords(ctx, s.advisories, reach, names)
	if err != nil {
		return err
	}
	for _, v := range findings {
		if !unrated || v.Unrated() {
			records.Complete(v)
		}
	}
	return nil
}

// Authors returns the authors of advisories by key. It omits advisories that no longer exist. The keys must be from
// findings that the caller may see.
func (s *Service) Authors(ctx context.Context, keys []int64) (map[int64]string, error) {
	return s.advisories.Authors(ctx, keys)
}
