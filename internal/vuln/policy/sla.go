package policy

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

// GetSLA returns the SLA that applies to a group. The caller needs policies.policy.list on it.
func (s *Service) GetSLA(ctx context.Context, group resource.UID) (vuln.SLA, error) {
	if err := s.authz.Require(ctx, resource.PolicyList, group); err != nil {
		return vuln.SLA{}, err
	}
	if err := s.packages.CheckGroup(ctx, group); err != nil {
		return vuln.SLA{}, err
	}
	return s.packages.SLA(ctx, group)
}

// SetSLA sets the SLA of a group. The caller needs policies.policy.update on it.
func (s *Service) SetSLA(ctx context.Context, v vuln.SLA) (vuln.SLA, error) {
	if err := s.authz.Require(ctx, resource.PolicyUpdate, v.UID); err != nil {
		return vuln.SLA{}, err
	}
	if err := v.Validate(); err != nil {
		return vuln.SLA{}, err
	}
	return s.packages.SetSLA(ctx, v)
}

// DeleteSLA removes the SLA of a group. The caller needs policies.policy.delete on it.
func (s *Service) DeleteSLA(ctx context.Context, group resource.UID) error {
	if err := s.authz.Require(ctx, resource.PolicyDelete, group); err != nil {
		return err
	}
	return s.packages.DeleteSLA(ctx, group)
}
