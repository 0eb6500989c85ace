package iam

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// An Access has the bindings that give a capability on a resource. It leaves out bindings on groups whose bindings the
// caller must not see.
type Access struct {
	page.Page[resource.BoundRole]
	Allowed    bool
	Incomplete bool // whether there are groups whose bindings the caller must not see
}

// maxReasons is the greatest number of bindings that CheckAccess returns.
const maxReasons = page.MaxSize

// CheckAccess reports whether an identity holds a capability on a resource, and through which bindings. The
// caller needs role_bindings.list on the resource, unless the caller asks about their own identity.
func (s *Service) CheckAccess(
	ctx context.Context, identity resource.UID, want resource.Capability, target resource.UID,
) (Access, error) {
	self, err := s.mayAsk(ctx, identity, target)
	if err != nil {
		return Access{}, err
	}
	h, incomplete := s.holderQuery(ctx, want, target, self)
	a := Access{Allowed: s.authz.Holds(identity, want, target), Incomplete: incomplete}
	if !a.Allowed {
		return a, nil
	}
	held, err := s.store.HeldBy(ctx, identity, h.Groups)
	for _, b := range held {
		active := b.State(store.FromMS(h.Now)) == resource.BindingActive
		if active && slices.Contains(h.Roles, b.Role) && len(a.Items) < maxReasons {
			a.Items = append(a.Items, s.Redact(ctx, b))
		}
	}
	a.Total = int64(len(a.Items))
	return a, err
}

// Verdict is CheckAccessAt without the bindings. For the present, it does not query the database.
func (s *Service) Verdict(
	ctx context.Context, identity resource.UID, want resource.Capability, target resource.UID, asOf time.Time,
) (Access, error) {
	if !asOf.IsZero() {
		a, err := s.CheckAccessAt(ctx, identity, want, target, asOf)
		return Access{Allowed: a.Allowed}, err
	}
	if _, err := s.mayAsk(ctx, identity, target); err != nil {
		return Access{}, err
	}
	return Access{Allowed: s.authz.Holds(identity, want, target)}, nil
}

// mayAsk checks that the caller may ask about the access of an identity to a resource. It reports whether the identity
// is the caller's own.
func (s *Service) mayAsk(ctx context.Context, identity, target resource.UID) (self bool, _ error) {
	c, err := authz.RequireCaller(ctx)
	if err != nil {
		return false, err
	}
	if c.Identity == identity && c.Narrowing().IsZero() {
		return true, nil
	}
	return false, s.authz.Require(ctx, resource.RoleBindingsList, target)
}

// ListAccess returns a page of the bindings on a resource and above it that give a
// capability. The caller needs role_bindings.list on the resource. A page token
// replaces want and target if they are missing.
func (s *Service) ListAccess(
	ctx context.Context, want resource.Capability, target resource.UID, p page.Params,
) (Access, error) {
	return s.ListAccessAt(ctx, want, target, time.Time{}, p)
}

// ListAccessAt is ListAccess for a time in the past, or for the present if asOf is zero. The caller's present
// capabilities decide what the caller may see.
func (s *Service) ListAccessAt(
	ctx context.Context, want resource.Capability, target resource.UID, asOf time.Time, p page.Params,
) (Access, error) {
	want, target, asOf, req, err := s.resumeAccess(want, target, asOf, p)
	if err != nil {
		return Access{}, err
	}
	if err := s.authz.Require(ctx, resource.RoleBindingsList, target); err != nil {
		return Access{}, err
	}
	if !asOf.IsZero() {
		return s.pastHolders(ctx, want, target, asOf, req)
	}
	h, incomplete := s.holderQuery(ctx, want, target, false)
	got, err := s.store.Holders(ctx, h, req)
	if err != nil {
		return Access{}, err
	}
	s.redactAll(ctx, got.Items)
	return Access{Page: page.Finish(s.pages, req, got), Allowed: got.Total > 0, Incomplete: incomplete}, nil
}

// resumeAccess returns the parameters of ListAccessAt, completed by the page token. The token of a list of the present
// has two parts. The token of a list of the past has the time as a third part.
func (s *Service) resumeAccess(
	want resource.Capability, target resource.UID, asOf time.Time, p page.Params,
) (resource.Capability, resource.UID, time.Time, page.Request, error) {
	filter := []string{"", string(target)}
	if want != 0 {
		filter[0] = want.String()
	}
	if !asOf.IsZero() {
		filter = append(filter, asOf.UTC().Format(time.RFC3339Nano))
	}
	got, req, err := page.Resume(s.pages, iamdb.AccessList, filter, p)
	if err != nil && asOf.IsZero() && p.Token != "" { // the token may belong to a list of the past
		if past, pastReq, pastErr := page.Resume(s.pages, iamdb.AccessList, append(filter, ""), p); pastErr == nil {
			got, req, err = past, pastReq, nil
		}
	}
	if err != nil {
		return 0, "", asOf, req, err
	}
	if len(got) > 2 {
		if asOf, err = time.Parse(time.RFC3339Nano, got[2]); err != nil {
			return 0, "", asOf, req, fault.Field("page_token", "belongs to a list with another filter or order")
		}
	}
	want, _ = resource.ParseCapability(got[0]) // no role has an unknown capability; in this case the list is empty
	return want, resource.UID(got[1]), asOf, req, nil
}

// holderQuery returns the query for the bindings of roles that have a capability, on a resource and on the groups above
// it whose bindings the caller may see. If all is true, the caller may see all of them.
func (s *Service) holderQuery(
	ctx context.Context, want resource.Capability, target resource.UID, all bool,
) (h iamdb.HolderQuery, incomplete bool) {
	h.Groups, incomplete = s.visibleAncestors(ctx, target, all)
	h.Roles = s.authz.RolesWith(want)
	_, latest := s.store.Clock()
	h.Now = latest.UnixMilli()
	return h, incomplete
}

// visibleAncestors returns the resource and the groups above it whose bindings the caller may see, or all of them if
// all is true. incomplete reports whether it has left out a group.
func (s *Service) visibleAncestors(
	ctx context.Context, target resource.UID, all bool,
) (seen []resource.UID, incomplete bool) {
	for _, g := range append(target.Ancestors(), target) {
		if all || s.authz.Require(ctx, resource.RoleBindingsList, g) == nil {
			seen = append(seen, g)
		} else {
			incomplete = true
		}
	}
	return seen, incomplete
}
