package iam

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A MissingReason is the reason why an identity does not hold a capability.
type MissingReason int

// The reasons why an identity does not hold a capability on a resource.
const (
	NoRole              MissingReason = iota + 1 // the identity holds no role on the resource or above it
	RoleLacksCapability                          // no role of the identity has the capability
	RoleNotBegun                                 // a role with the capability begins later
	RoleExpired                                  // a role with the capability has expired
	Deactivated                                  // a directory has deactivated the identity
)

// A MissingCapability explains why an identity does not hold a capability, and what would help. It has only what the
// caller may see.
type MissingCapability struct {
	Reason  MissingReason
	Nearest *resource.BoundRole  // the binding that comes nearest to giving the capability, or nil
	Role    resource.Info        // the smallest role with the capability that can be bound there; zero if there is none
	Givers  []resource.BoundRole // bindings of identities that can give Role, or the capability if Role is zero
}

// maxGivers is the greatest length of MissingCapability.Givers.
const maxGivers = 5

// ExplainMissing explains why an identity does not hold a capability on a resource. CheckAccess must have returned that
// it does not. The caller needs the same authorization as for CheckAccess.
func (s *Service) ExplainMissing(
	ctx context.Context, identity resource.UID, want resource.Capability, target resource.UID,
) (MissingCapability, error) {
	self, err := s.mayAsk(ctx, identity, target)
	if err != nil {
		return MissingCapability{}, err
	}
	m := MissingCapability{Reason: NoRole}
	h, _ := s.holderQuery(ctx, want, target, self)
	held, err := s.store.HeldBy(ctx, identity, h.Groups)
	if err != nil {
		return m, err
	}
	s.redactAll(ctx, held)
	for i := range held {
		if reason := missingReason(held[i].RoleBinding, h.Roles, h.Now); m.nearer(reason, held[i]) {
			m.Reason, m.Nearest = reason, &held[i]
		}
	}
	if s.authz.Suspended(identity) {
		m.Reason = Deactivated
		return m, nil // no role would help
	}
	if !s.authz.Sees(ctx, resource.RoleBindingsList, target) { // then the caller asks about their own identity
		return m, nil
	}
	return m, s.findHelp(ctx, &m, want, target)
}

// missingReason returns the reason why a binding does not give a capability. roles are the roles with the capability,
// sorted. currentMS is the current time in milliseconds.
func missingReason(b resource.RoleBinding, roles []resource.UID, currentMS int64) MissingReason {
	expired := !b.ExpireTime.IsZero() && b.ExpireTime.UnixMilli() <= currentMS
	switch _, has := slices.BinarySearch(roles, b.Role); {
	case has && expired:
		return RoleExpired
	case has:
		return RoleNotBegun
	case expired:
		return NoRole
	}
	return RoleLacksCapability
}

// nearer reports whether a binding comes nearer to the capability than m.Nearest. A binding with the capability that
// has not begun comes nearest, then an expired one with the capability, then one without the capability. Among equal
// ones, the binding on the lowest group comes nearest.
func (m MissingCapability) nearer(reason MissingReason, b resource.BoundRole) bool {
	switch {
	case reason == NoRole:
		return false
	case m.Nearest == nil || m.Reason != reason:
		return m.Nearest == nil || m.Reason == RoleLacksCapability || reason == RoleNotBegun
	}
	return len(b.Group()) > len(m.Nearest.Group())
}

// findHelp finds the smallest role with a capability, and identities that can give it.
func (s *Service) findHelp(
	ctx context.Context, m *MissingCapability, want resource.Capability, target resource.UID,
) error {
	usable, err := s.store.RolesUsableOn(ctx, target, maxCandidates)
	if err != nil {
		return err
	}
	needed, best := resource.NewCapabilities(want), 0
	for _, r := range usable {
		seen := r.UID.IsRoot() || s.authz.Sees(ctx, resource.RolesList, r.UID)
		if n := r.Capabilities.Len(); seen && r.Capabilities.Has(want) && (best == 0 || n < best) {
			needed, best = r.Capabilities, n
			m.Role = resource.Info{UID: r.UID, Name: r.Name, Description: r.Description}
		}
	}
	h, _ := s.holderQuery(ctx, resource.RoleBindingsCreate, target, false)
	holders, err := s.store.Holders(ctx, h, page.Request{Size: maxReasons, Order: iamdb.GroupList.Default})
	if err != nil {
		return err
	}
	s.redactAll(ctx, holders.Items)
	named := map[resource.UID]bool{}
	for _, b := range holders.Items {
		if len(m.Givers) < maxGivers && !named[b.Identity] && s.authz.HoldsAll(b.Identity, needed, target) {
			named[b.Identity] = true
			m.Givers = append(m.Givers, b)
		}
	}
	return nil
}
