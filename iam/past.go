package iam

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store/iamdb"
)

// What was granted in the past is told to those who may see it now: a binding on a group to whoever holds
// role_bindings.list there now. A group that is gone keeps its place below others, so that is whoever holds the
// capability above it.

// CheckAccessAt is CheckAccess as of a time. Of their own bindings, too, callers see those on groups whose bindings
// they may see now.
func (s *Service) CheckAccessAt(
	ctx context.Context, identity resource.UID, want resource.Capability, target resource.UID, at time.Time,
) (Access, error) {
	c, err := authz.RequireCaller(ctx)
	if err != nil {
		return Access{}, err
	}
	if c.Identity != identity || !c.Narrowing().IsZero() {
		if err := s.authz.Require(ctx, resource.RoleBindingsList, target); err != nil {
			return Access{}, err
		}
	}
	if err := s.store.RequirePast(ctx, "as_of", at); err != nil {
		return Access{}, err
	}
	allowed, err := s.authz.HeldAt(ctx, identity, want, target, at)
	if err != nil {
		return Access{}, err
	}
	seen, incomplete := s.seenFrom(ctx, target, false)
	q := iamdb.PastQuery{At: at, Groups: seen, Identity: identity}
	got, err := s.pastBindings(ctx, q, want, page.Request{Size: maxReasons, Order: iamdb.PastList.Default})
	return Access{Page: got, Allowed: allowed, Incomplete: incomplete}, err
}

// pastHolders returns a page of the bindings that gave a capability on a resource at a time.
func (s *Service) pastHolders(
	ctx context.Context, want resource.Capability, target resource.UID, at time.Time, req page.Request,
) (Access, error) {
	if err := s.store.RequirePast(ctx, "as_of", at); err != nil {
		return Access{}, err
	}
	seen, incomplete := s.seenFrom(ctx, target, false)
	got, err := s.pastBindings(ctx, iamdb.PastQuery{At: at, Groups: seen}, want, req)
	if err != nil {
		return Access{}, err
	}
	return Access{Page: page.Finish(s.pages, req, got), Allowed: got.Total > 0, Incomplete: incomplete}, nil
}

// pastBindings returns a page of the bindings that a query asks for, of roles that had a capability then, or of all
// if that is 0.
func (s *Service) pastBindings(
	ctx context.Context, q iamdb.PastQuery, want resource.Capability, req page.Request,
) (none page.Page[resource.BoundRole], _ error) {
	roles, counts, err := s.store.RolesHeldAt(ctx, q)
	if err != nil {
		return none, err
	}
	total := int64(0)
	for _, r := range roles {
		if want == 0 || r.Capabilities.Has(want) {
			q.Roles = append(q.Roles, r.UID)
			total += counts[r.UID]
		}
	}
	if total == 0 {
		return none, nil
	}
	got, err := s.store.PastBindings(ctx, q, req)
	got.Total = total
	s.redactAll(ctx, got.Items)
	return got, err
}

// A PastFilter says which bindings ListPastBindings returns: those that counted on Place, made there or above it; those
// of Identity; or those that are both.
type PastFilter struct {
	Place    resource.UID `json:"place,omitempty"`
	Identity resource.UID `json:"identity,omitempty"`
	At       time.Time    `json:"at,omitzero"`
}

// ListPastBindings returns a page of the bindings that counted at a time, in the groups in which the caller holds
// role_bindings.list now. If there is a place, the caller needs it there. A page token has what is left out of the
// filter.
func (s *Service) ListPastBindings(ctx context.Context, f PastFilter, p page.Params) (Access, error) {
	f, req, err := page.Resume(s.pages, iamdb.PastList, f, p)
	if err != nil {
		return Access{}, err
	}
	q := iamdb.PastQuery{At: f.At, Identity: f.Identity}
	var incomplete bool
	switch {
	case f.Place != "":
		if err := s.authz.Require(ctx, resource.RoleBindingsList, f.Place); err != nil {
			return Access{}, err
		}
		q.Groups, incomplete = s.seenFrom(ctx, f.Place, false)
	case f.Identity != "":
		if q.Under, err = s.authz.Reach(ctx, resource.RoleBindingsList); err != nil {
			return Access{}, err
		}
	default:
		return Access{}, fault.Field("place_uid", "or identity_uid is required")
	}
	if f.At.IsZero() {
		return Access{}, fault.Field("as_of", "is required")
	}
	if err := s.store.RequirePast(ctx, "as_of", f.At); err != nil {
		return Access{}, err
	}
	if f.Place == "" && len(q.Under) == 0 {
		return Access{}, nil // of nothing
	}
	got, err := s.pastBindings(ctx, q, 0, req)
	if err != nil {
		return Access{}, err
	}
	return Access{Page: page.Finish(s.pages, req, got), Allowed: got.Total > 0, Incomplete: incomplete}, nil
}

// A PastGroup is a group as it was at a time.
type PastGroup = iamdb.PastGroup

// ListPastGroups returns a page of the groups that were directly in another at a time. The caller needs groups.list on
// that one now.
func (s *Service) ListPastGroups(
	ctx context.Context, parent resource.UID, at time.Time, p page.Params,
) (none page.Page[PastGroup], _ error) {
	f, req, err := page.Resume(s.pages, iamdb.PastGroupList, PastFilter{Place: parent, At: at}, p)
	if err != nil {
		return none, err
	}
	if err := s.authz.Require(ctx, resource.GroupsList, f.Place); err != nil {
		return none, err
	}
	if f.At.IsZero() {
		return none, fault.Field("as_of", "is required")
	}
	if err := s.store.RequirePast(ctx, "as_of", f.At); err != nil {
		return none, err
	}
	got, err := s.store.PastGroups(ctx, f.At, f.Place, req)
	if err != nil {
		return none, err
	}
	return page.Finish(s.pages, req, got), nil
}
