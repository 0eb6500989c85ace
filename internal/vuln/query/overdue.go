package query

import (
	"context"
	"maps"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// slas contains the SLAs of groups, by group.
type slas map[resource.UID]vuln.SLA

// readSLAs reads the SLAs that apply to the repos in reach.
func (s *Service) readSLAs(ctx context.Context, reach []resource.UID) (slas, error) {
	read := slas{}
	for _, place := range reach {
		found, err := s.packages.SLAsFor(ctx, place)
		if err != nil {
			return nil, err
		}
		maps.Copy(read, found)
	}
	return read, nil
}

// over returns the SLA of the nearest group above a repo that has one. If there is none, it returns an SLA without
// limits.
func (s slas) over(repo resource.UID) vuln.SLA {
	if len(s) == 0 {
		return vuln.SLA{}
	}
	for group := repo.Parent(); group != ""; group = group.Parent() {
		if v, ok := s[group]; ok {
			return v
		}
	}
	return vuln.SLA{}
}

// longest returns the longest time within which a finding must be fixed.
func (s slas) longest() (longest time.Duration) {
	for _, v := range s {
		for _, days := range v.Days() {
			longest = max(longest, time.Duration(days)*day)
		}
	}
	return longest
}
