package iam

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// A LackKind is what is nearest to a capability that somebody lacks.
type LackKind int

// Kinds of lacks.
const (
	LackRole       LackKind = iota + 1 // they hold no role there or above
	LackCapability                     // they hold roles, and none has it
	LackStart                          // a role that has it has not begun
	LackTime                           // a role that has it is over
)

// A Lack says why an identity does not hold a capability, and what would help, as far as the caller may see that.
type Lack struct {
	Kind    LackKind
	Nearest *resource.BoundRole // the binding that comes nearest, or nil
	Role    resource.Info       // the smallest role that has the capability and can be bound there; zero if there is none
	Givers  []resource.BoundRole
}

// maxGivers is how many of those are named who could give a role.
const maxGivers = 5

// ExplainLack says why an identity does not hold a capability on a resource, of which CheckAccess has said so. It
// authorizes the caller as that does.
func (s *Service) ExplainLack(
	ctx context.Context, identity resource.UID, want resource.Capability, target resource.UID,
) (Lack, error) {
	self, err := s.mayAsk(ctx, identity, target)
	if err != nil {
		return Lack{}, err
	}
	lack := Lack{Kind: LackRole}
	h, _ := s.holding(ctx, want, target, self)
	all, err := s.store.HeldBy(ctx, identity, h.Groups)
	if err != nil {
		return lack, err
	}
	s.redactAll(ctx, all)
	for i := range all {
		if kind := lackOf(all[i].RoleBinding, h.Roles, h.Now); lack.nearer(kind, all[i]) {
			lack.Kind, lack.Nearest = kind, &all[i]
		}
	}
	if !s.authz.Sees(ctx, resource.RoleBindingsList, target) { // they asked about themselves
		return lack, nil
	}
	return lack, s.findHelp(ctx, &lack, want, target)
}

// lackOf says why a binding does not give a capability that some roles have.
func lackOf(b resource.RoleBinding, having []resource.UID, now int64) LackKind {
	over := !b.ExpireTime.IsZero() && b.ExpireTime.UnixMilli() <= now
	switch _, has := slices.BinarySearch(having, b.Role); {
	case has && over:
		return LackTime
	case has:
		return LackStart
	case over:
		return LackRole
	}
	return LackCapability
}

// nearer reports whether a binding is nearer to the capability than what was found so far: one that has it but for its
// time, then one on the nearest group.
func (l Lack) nearer(kind LackKind, b resource.BoundRole) bool {
	switch {
	case kind == LackRole:
		return false
	case l.Nearest == nil || l.Kind != kind:
		return l.Nearest == nil || l.Kind == LackCapability || kind == LackStart
	}
	return len(b.Group()) > len(l.Nearest.Group())
}

// findHelp finds the smallest role that would do, and who could give it.
func (s *Service) findHelp(ctx context.Context, lack *Lack, want resource.Capability, target resource.UID) error {
	usable, err := s.store.RolesUsableOn(ctx, target, maxCandidates)
	if err != nil {
		return err
	}
	needed, best := resource.NewCapabilities(want), 0
	for _, r := range usable {
		seen := r.UID.IsRoot() || s.authz.Sees(ctx, resource.RolesList, r.UID)
		if n := r.Capabilities.Len(); seen && r.Capabilities.Has(want) && (best == 0 || n < best) {
			needed, best = r.Capabilities, n
			lack.Role = resource.Info{UID: r.UID, Name: r.Name, Description: r.Description}
		}
	}
	h, _ := s.holding(ctx, resource.RoleBindingsCreate, target, false)
	all, err := s.store.Holders(ctx, h, page.Request{Size: maxReasons, Order: iamdb.GroupList.Default})
	if err != nil {
		return err
	}
	s.redactAll(ctx, all.Items)
	named := map[resource.UID]bool{}
	for _, b := range all.Items {
		if len(lack.Givers) < maxGivers && !named[b.Identity] && s.authz.HoldsAll(b.Identity, needed, target) {
			named[b.Identity] = true
			lack.Givers = append(lack.Givers, b)
		}
	}
	return nil
}
