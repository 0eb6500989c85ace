package query

import (
	"context"
	"maps"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// readSLAs reads the SLAs that apply to the repos in reach.
func (s *Service) readSLAs(ctx context.Context, reach []resource.UID) (vuln.SLAs, error) {
	read := vuln.SLAs{}
	for _, place := range reach {
		found, err := s.packages.SLAsFor(ctx, place)
		if err != nil {
			return nil, err
		}
		maps.Copy(read, found)
	}
	return read, nil
}
