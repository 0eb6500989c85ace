package iam

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// maxGroupDepth is how deep groups may nest. What they hold needs levels, too.
const maxGroupDepth = 16

// accessPause is how long a person waits before asking again to join a group.
const accessPause = time.Hour

// CreateGroup makes a group. parent is the UID of the group to make it in, the
// last segments of one, or the name of the one group of that name the caller
// may create groups in; the caller needs groups.create there. Without a parent,
// or with "/", it makes an organization, which its creator owns.
func (s *Service) CreateGroup(ctx context.Context, parent string, g resource.Group) (resource.Group, error) {
	var in resource.UID
	if parent != "" && parent != "/" {
		var err error
		if in, err = s.resolve(ctx, parent); err != nil {
			return resource.Group{}, err
		}
		if err := s.authz.Require(ctx, resource.GroupsCreate, in); err != nil {
			return resource.Group{}, err
		}
	} else if err := s.mayFound(ctx); err != nil {
		return resource.Group{}, err
	}
	if err := newGroup(in, g); err != nil {
		return resource.Group{}, err
	}
	g.CreateTime = s.now()
	g.UpdateTime = g.CreateTime
	if in == "" {
		return s.found(ctx, g)
	}
	g.UID = in.NewChild()
	return s.store.InsertGroup(ctx, g)
}

// newGroup checks what is asked of a group that does not exist yet.
func newGroup(parent resource.UID, g resource.Group) error {
	if err := g.Validate(); err != nil {
		return err
	}
	switch {
	case g.Verified:
		return fault.Field("verified", "is set by the operator of the service")
	case parent != "" && g.Kind != resource.OrgUnspecified:
		return fault.Field("kind", "belongs to the organization; a group below takes it over")
	case parent.Depth() >= maxGroupDepth:
		return fault.Field("parent", "groups nest at most %d levels deep", maxGroupDepth)
	}
	return nil
}

// mayFound tells whether the caller may create an organization.
func (s *Service) mayFound(ctx context.Context) error {
	owns, err := s.authz.OwnsAny(ctx)
	switch {
	case err != nil:
		return err
	case s.cfg.CreateOrganizations == Anyone:
		return nil
	case s.cfg.CreateOrganizations == Owners && owns:
		return nil
	}
	return fault.Denied(resource.GroupsCreate.String(), "/")
}

// found makes an organization and its creator the owner.
func (s *Service) found(ctx context.Context, g resource.Group) (resource.Group, error) {
	c, err := caller(ctx)
	if err != nil {
		return resource.Group{}, err
	}
	g.UID = resource.NewRoot()
	return s.store.InsertGroup(ctx, g, ownership(g, c.Identity))
}

// ownership is the binding that makes an identity the owner of an organization.
func ownership(g resource.Group, identity resource.UID) resource.RoleBinding {
	return resource.RoleBinding{UID: g.UID.NewChild(), Identity: identity, Role: resource.OwnerRole, CreateTime: g.CreateTime}
}

var segments = regexp.MustCompile(`^[0-9a-f]{16}(/[0-9a-f]{16})*$`)

// resolve returns the group a person means by parent. What the caller cannot
// create groups in is not revealed.
func (s *Service) resolve(ctx context.Context, parent string) (resource.UID, error) {
	parent = strings.Trim(parent, "/")
	if uid, err := resource.ParseUID("parent", parent); err == nil {
		return uid, nil
	}
	if segments.MatchString(parent) {
		g, err := s.store.GroupBySuffix(ctx, parent)
		if err == nil && s.authz.Require(ctx, resource.GroupsCreate, g.UID) == nil {
			return g.UID, nil
		}
	}
	reach, err := s.reach(ctx, resource.GroupsCreate)
	if err != nil {
		return "", err
	}
	if err := (resource.Group{Name: parent}).Validate(); err != nil {
		return "", fault.Field("parent", "is neither a uid nor a name")
	}
	found, err := s.store.Groups(ctx, reach, resource.Filter{Name: parent}, page.Request{Size: 5, Order: byUID})
	switch {
	case err != nil:
		return "", err
	case found.Total == 0:
		return "", fault.Field("parent", "is neither the uid nor the name of a group you may create groups in")
	case found.Total > 1:
		var uids []string
		for _, g := range found.Items {
			uids = append(uids, string(g.UID))
		}
		return "", fault.Field("parent", "%d groups have this name; use a uid: %s", found.Total, strings.Join(uids, ", "))
	}
	return found.Items[0].UID, nil
}

// GetGroup returns a group. The caller needs groups.list on it.
func (s *Service) GetGroup(ctx context.Context, uid resource.UID) (resource.Group, error) {
	if err := s.authz.Require(ctx, resource.GroupsList, uid); err != nil {
		return resource.Group{}, err
	}
	return s.store.Group(ctx, uid)
}

// UpdateGroup applies change to a group. The caller needs groups.update on it.
func (s *Service) UpdateGroup(ctx context.Context, uid resource.UID, change func(*resource.Group) error) (resource.Group, error) {
	if err := s.authz.Require(ctx, resource.GroupsUpdate, uid); err != nil {
		return resource.Group{}, err
	}
	return s.store.UpdateGroup(ctx, uid, func(g *resource.Group) error {
		before := *g
		if err := change(g); err != nil {
			return err
		}
		if g.Verified && !before.Verified {
			return fault.Field("verified", "is set by the operator of the service")
		}
		if g.Kind != resource.OrgUnspecified && g.Kind != before.Kind {
			return fault.Field("kind", "cannot be changed")
		}
		if before.Verified && g.Name != before.Name { // or it would open another's e-mail domain
			return fault.Unmet("VERIFIED_NAME", "the name of a verified organization cannot be changed")
		}
		g.UID, g.CreateTime, g.Verified, g.Kind = before.UID, before.CreateTime, before.Verified, before.Kind
		return g.Validate()
	})
}

// Verify notes, for the operator, that an organization's name is its own, or that
// it is no longer known to be. Whoever has an e-mail address of a verified name
// can find the organization.
func (s *Service) Verify(ctx context.Context, org resource.UID, verified bool) (resource.Group, error) {
	if !org.IsRoot() {
		return resource.Group{}, fault.Field("organization", "is a group below one")
	}
	return s.store.UpdateGroup(ctx, org, func(g *resource.Group) error {
		g.Verified = verified
		return nil
	})
}

// DeleteGroup removes an empty group. The caller needs groups.delete on it.
func (s *Service) DeleteGroup(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.GroupsDelete, uid); err != nil {
		return err
	}
	c, err := caller(ctx)
	if err != nil {
		return err
	}
	return s.store.DeleteGroup(ctx, uid, c.Identity)
}

// ListGroups returns a page of the groups the caller holds groups.list on.
func (s *Service) ListGroups(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.Group], error) {
	reach, err := s.reach(ctx, resource.GroupsList)
	if err != nil {
		return page.Page[resource.Group]{}, err
	}
	return page.Read(ctx, s.pages, groupList, reach, f, p, s.store.Groups)
}

// LookupGroup returns the verified organization that is named like the domain
// of the caller's e-mail address, if a provider has verified it that the operator
// trusts or that is the organization's own. Every no is the same NotFound.
func (s *Service) LookupGroup(ctx context.Context) (resource.Group, error) {
	_, g, err := s.domain(ctx)
	return g, err
}

// CheckEligibility tells whether the caller could look a group up at all.
func (s *Service) CheckEligibility(ctx context.Context) (bool, error) {
	c, err := caller(ctx)
	if err != nil {
		return false, err
	}
	i, err := s.store.Identity(ctx, c.Identity)
	if fault.From(err).Code == fault.NotFound || err == nil && !c.Narrowing().IsZero() {
		return false, nil
	}
	return i.Email != "", err
}

// RequestGroupAccess asks the owners of the group LookupGroup finds to let the
// caller join. It returns fault.ResourceExhausted if asked again too soon.
func (s *Service) RequestGroupAccess(ctx context.Context, uid resource.UID) error {
	i, g, err := s.domain(ctx)
	if err != nil {
		return err
	}
	if g.UID != uid {
		return fault.Missing("group", string(uid))
	}
	return s.store.RequestAccess(ctx, uid, i, accessPause)
}

func (s *Service) domain(ctx context.Context) (resource.Identity, resource.Group, error) {
	no := fault.New(fault.NotFound, "Not found: no verified organization for your e-mail domain")
	c, err := authz.RequireWhole(ctx)
	if err != nil {
		return resource.Identity{}, resource.Group{}, err
	}
	i, err := s.store.Identity(ctx, c.Identity)
	if err != nil {
		return i, resource.Group{}, hide(err, no)
	}
	_, domain, ok := strings.Cut(i.Email, "@")
	if !ok {
		return i, resource.Group{}, no
	}
	g, err := s.store.Organization(ctx, strings.ToLower(domain))
	if err != nil {
		return i, g, hide(err, no)
	}
	if !g.Verified || c.Voucher == "" || i.Provider != c.Voucher.Provider() {
		return i, resource.Group{}, no
	}
	p, err := s.store.Provider(ctx, i.Provider)
	if err != nil {
		return i, resource.Group{}, hide(err, no)
	}
	if !p.Trusted && p.UID.Parent() != g.UID { // anybody's provider can say that it has verified an address
		return i, resource.Group{}, no
	}
	return i, g, nil
}

// hide answers every absence with the same words.
func hide(err error, no *fault.Error) error {
	if fault.From(err).Code == fault.NotFound {
		return no
	}
	return err
}
