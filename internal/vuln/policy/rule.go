package policy

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/findingdb"
)

// CreateRule adds a rule to a group. The caller needs policies.policy.create on the
// group, and advisories.list, because refusals name findings.
func (s *Service) CreateRule(
	ctx context.Context, parent resource.UID, r vuln.PullRule,
) (vuln.PullRule, error) {
	if err := s.requireEach(ctx, parent, resource.PolicyCreate, resource.AdvisoriesList); err != nil {
		return vuln.PullRule{}, err
	}
	r.UID = parent.NewChild()
	r.CreateTime = s.packages.Time()
	r.UpdateTime = r.CreateTime
	if r.Target == "" {
		r.Target = parent
	}
	if err := r.Validate(); err != nil {
		return vuln.PullRule{}, err
	}
	return r, s.packages.InsertPullRule(ctx, r)
}

// requireEach returns nil if the caller holds all capabilities in want. Otherwise it returns an error that names the
// first missing one. So want should begin with the most specific capability.
func (s *Service) requireEach(ctx context.Context, target resource.UID, want ...resource.Capability) error {
	for _, c := range want {
		if err := s.authz.Require(ctx, c, target); err != nil {
			return err
		}
	}
	return nil
}

// GetRule returns a rule. The caller needs policies.policy.list on it.
func (s *Service) GetRule(ctx context.Context, uid resource.UID) (vuln.PullRule, error) {
	return authz.Get(ctx, s.authz, resource.PolicyList, uid, s.packages.PullRule)
}

// ListRules returns a page of the rules on which the caller has policies.policy.list.
func (s *Service) ListRules(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[vuln.PullRule], error) {
	return authz.List(ctx, s.authz, s.pages, findingdb.PullRuleList, resource.PolicyList, f, p, s.packages.PullRules)
}

// UpdateRule changes a rule. The caller needs policies.policy.update and
// advisories.list on it.
func (s *Service) UpdateRule(
	ctx context.Context, uid resource.UID, change func(*vuln.PullRule) error,
) (zero vuln.PullRule, _ error) {
	if err := s.requireEach(ctx, uid, resource.PolicyUpdate, resource.AdvisoriesList); err != nil {
		return zero, err
	}
	return store.Edit(ctx, uid, s.packages.PullRule, s.packages.UpdatePullRule, func(r *vuln.PullRule) error {
		if err := change(r); err != nil {
			return err
		}
		if r.Target == "" {
			r.Target = r.Home()
		}
		return r.Validate()
	})
}

// DeleteRule removes a rule. The caller needs policies.policy.delete on it.
func (s *Service) DeleteRule(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.PolicyDelete, uid, s.packages.DeletePullRule)
}
