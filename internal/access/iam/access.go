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

// An Access says who holds a capability and through which bindings. Bindings on groups that the caller must not
// see are left out, and Incomplete reports that there are such groups.
type Access struct {
	page.Page[resource.BoundRole]
	Allowed    bool
	Incomplete bool
}

// maxReasons is how many bindings CheckAccess returns.
const maxReasons = page.MaxSize

// CheckAccess reports whether an identity holds a capability on a resource, and through which bindings. The
// caller needs role_bindings.list there, or is the identity.
func (s *Service) CheckAccess(
	ctx context.Context, identity resource.UID, want resource.Capability, target resource.UID,
) (Access, error) {
	self, err := s.mayAsk(ctx, identity, target)
	if err != nil {
		return Access{}, err
	}
	h, incomplete := s.holding(ctx, want, target, self)
	a := Access{Allowed: s.authz.Holds(identity, want, target), Incomplete: incomplete}
	if !a.Allowed {
		return a, nil
	}
	held, err := s.store.HeldBy(ctx, identity, h.Groups)
	for _, b := range held {
		if b.State(store.FromMS(h.Now)) == resource.BindingActive && slices.Contains(h.Roles, b.Role) && len(a.Items) < maxReasons {
			a.Items = append(a.Items, s.Redact(ctx, b))
		}
	}
	a.Total = int64(len(a.Items))
	return a, err
}

// Verdict is CheckAccessAt without the bindings. About now it reads nothing.
func (s *Service) Verdict(
	ctx context.Context, identity resource.UID, want resource.Capability, target resource.UID, at time.Time,
) (Access, error) {
	if !at.IsZero() {
		a, err := s.CheckAccessAt(ctx, identity, want, target, at)
		return Access{Allowed: a.Allowed}, err
	}
	if _, err := s.mayAsk(ctx, identity, target); err != nil {
		return Access{}, err
	}
	return Access{Allowed: s.authz.Holds(identity, want, target)}, nil
}

// mayAsk checks that the caller may ask what an identity can do to a resource, and reports whether they are the identity.
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

// ListAccess returns a page of the bindings that give a capability on a
// resource, made there or above. The caller needs role_bindings.list there. A page
// token has what is left out of both.
func (s *Service) ListAccess(
	ctx context.Context, want resource.Capability, target resource.UID, p page.Params,
) (Access, error) {
	return s.ListAccessAt(ctx, want, target, time.Time{}, p)
}

// ListAccessAt is ListAccess as of a time, or of now if that is zero. What the caller may see is decided by what they
// hold now.
func (s *Service) ListAccessAt(
	ctx context.Context, want resource.Capability, target resource.UID, at time.Time, p page.Params,
) (Access, error) {
	want, target, at, req, err := s.resumeAccess(want, target, at, p)
	if err != nil {
		return Access{}, err
	}
	if err := s.authz.Require(ctx, resource.RoleBindingsList, target); err != nil {
		return Access{}, err
	}
	if !at.IsZero() {
		return s.pastHolders(ctx, want, target, at, req)
	}
	h, incomplete := s.holding(ctx, want, target, false)
	got, err := s.store.Holders(ctx, h, req)
	if err != nil {
		return Access{}, err
	}
	s.redactAll(ctx, got.Items)
	return Access{Page: page.Finish(s.pages, req, got), Allowed: got.Total > 0, Incomplete: incomplete}, nil
}

// resumeAccess returns what ListAccessAt is asked, completed by its page token. A question about now has no third
// part, because tokens of the version before have none.
func (s *Service) resumeAccess(
	want resource.Capability, target resource.UID, at time.Time, p page.Params,
) (resource.Capability, resource.UID, time.Time, page.Request, error) {
	of := []string{"", string(target)}
	if want != 0 {
		of[0] = want.String()
	}
	if !at.IsZero() {
		of = append(of, at.UTC().Format(time.RFC3339Nano))
	}
	got, req, err := page.Resume(s.pages, iamdb.AccessList, of, p)
	if err != nil && at.IsZero() && p.Token != "" {
		if past, again, no := page.Resume(s.pages, iamdb.AccessList, append(of, ""), p); no == nil {
			got, req, err = past, again, nil
		}
	}
	if err != nil {
		return 0, "", at, req, err
	}
	if len(got) > 2 {
		if at, err = time.Parse(time.RFC3339Nano, got[2]); err != nil {
			return 0, "", at, req, fault.Field("page_token", "belongs to a list with another filter or order")
		}
	}
	want, _ = resource.ParseCapability(got[0]) // what is not one gives nothing
	return want, resource.UID(got[1]), at, req, nil
}

// holding returns which bindings to look for: those of the roles that have a capability, on a resource and on
// the groups above it whose bindings the caller may see, or on all of them if all is true.
func (s *Service) holding(
	ctx context.Context, want resource.Capability, target resource.UID, all bool,
) (h iamdb.HolderQuery, incomplete bool) {
	h.Groups, incomplete = s.seenFrom(ctx, target, all)
	h.Roles = s.authz.RolesWith(want)
	_, now := s.store.Clock()
	h.Now = now.UnixMilli()
	return h, incomplete
}

// seenFrom returns a resource and the groups above it whose bindings the caller may see, or all of them if all is true,
// and whether there are others.
func (s *Service) seenFrom(ctx context.Context, target resource.UID, all bool) (seen []resource.UID, incomplete bool) {
	for _, g := range append(target.Ancestors(), target) {
		if all || s.authz.Require(ctx, resource.RoleBindingsList, g) == nil {
			seen = append(seen, g)
		} else {
			incomplete = true
		}
	}
	return seen, incomplete
}
