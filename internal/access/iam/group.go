package iam

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// accessPause is the shortest time between two requests of a person to join a group.
const accessPause = time.Hour

// CreateGroup creates a group in parent, or, if parent is "" or "/", an organization with the caller as its owner.
// parent is the UID of a group, the last segments of its UID, or its name. A name must be unique among the groups in
// which the caller may create groups. The caller needs groups.create on the parent.
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
	} else if err := s.mayCreateOrganization(ctx); err != nil {
		return resource.Group{}, err
	}
	if err := newGroup(in, g); err != nil {
		return resource.Group{}, err
	}
	g.CreateTime = s.now()
	g.UpdateTime = g.CreateTime
	if in == "" {
		return s.createOrganization(ctx, g)
	}
	g.UID = in.NewChild()
	return s.store.InsertGroup(ctx, g)
}

// createOrganization adds the organization g with the caller as its owner. Another organization of the caller pays for
// it, so that nobody gains budgets or a greater share of the server by creating organizations.
func (s *Service) createOrganization(ctx context.Context, g resource.Group) (resource.Group, error) {
	c, err := authz.RequireCaller(ctx)
	if err != nil {
		return resource.Group{}, err
	}
	payer, err := s.payer(ctx, c)
	if err != nil {
		return resource.Group{}, err
	}
	g.UID = resource.NewRoot()
	return s.store.InsertOrganization(ctx, g, ownerBinding(g, c.Identity), payer)
}

// payer returns the organization that pays for the organizations that c creates. It is the home of c, unless c owns
// only other organizations. Then it is one of these, because an organization must not pay for its members elsewhere.
// payer returns "" if c has no home and owns nothing.
func (s *Service) payer(ctx context.Context, c authz.Caller) (resource.UID, error) {
	owned, err := s.authz.Owned(ctx)
	if err != nil {
		return "", err
	}
	home, err := s.authz.Home(ctx, c)
	if err != nil {
		return "", err
	}
	if len(owned) > 0 && !slices.Contains(owned, home.Root()) {
		return owned[0], nil
	}
	return home.Root(), nil
}

// newGroup validates a group that is about to be created.
func newGroup(parent resource.UID, g resource.Group) error {
	if err := g.Validate(); err != nil {
		return err
	}
	switch {
	case g.Verified:
		return fault.Field("verified", "can be set only by the operator of the service")
	case parent != "" && g.Kind != resource.OrgUnspecified:
		return fault.Field("kind", "can be set only for an organization; groups below it have the same kind")
	case parent.Depth() >= resource.MaxGroupDepth:
		return fault.Field("parent", "is too deep: groups nest at most %d levels", resource.MaxGroupDepth)
	}
	return nil
}

// mayCreateOrganization checks that the caller may create an organization.
func (s *Service) mayCreateOrganization(ctx context.Context) error {
	owned, err := s.authz.Owned(ctx)
	switch {
	case err != nil:
		return err
	case s.cfg.CreateOrganizations == Anyone:
		return nil
	case s.cfg.CreateOrganizations == Owners && len(owned) > 0:
		return nil
	}
	return fault.Denied(resource.GroupsCreate.String(), "/")
}

// ownerBinding returns the binding that makes an identity an owner of an organization.
func ownerBinding(g resource.Group, identity resource.UID) resource.RoleBinding {
	return resource.RoleBinding{
		UID: g.UID.NewChild(), Identity: identity, Role: resource.OwnerRole, CreateTime: g.CreateTime,
	}
}

var uidSuffix = regexp.MustCompile(`^[0-9a-f]{16}(/[0-9a-f]{16})*$`)

// resolve returns the group that parent names: a UID, the last segments of a UID, or a unique name. It finds only
// groups in which the caller may create groups, so that an unknown name and a hidden one give the same error.
func (s *Service) resolve(ctx context.Context, parent string) (resource.UID, error) {
	parent = strings.Trim(parent, "/")
	if uid, err := resource.ParseUID("parent", parent); err == nil {
		return uid, nil
	}
	if uidSuffix.MatchString(parent) {
		g, err := s.store.GroupBySuffix(ctx, parent)
		if err == nil && s.authz.Require(ctx, resource.GroupsCreate, g.UID) == nil {
			return g.UID, nil
		}
	}
	under, err := s.authz.Reach(ctx, resource.GroupsCreate)
	if err != nil {
		return "", err
	}
	if err := (resource.Group{Name: parent}).Validate(); err != nil {
		return "", fault.Field("parent", "must be a uid or a name")
	}
	found, err := s.store.Groups(
		ctx, store.Reach{Under: under}, resource.Filter{Name: parent}, page.Request{Size: 5, Order: iamdb.GroupList.Default},
	)
	switch {
	case err != nil:
		return "", err
	case found.Total == 0:
		return "", fault.Field("parent", "must be the uid or the name of a group in which you may create groups")
	case found.Total > 1:
		var uids []string
		for _, g := range found.Items {
			uids = append(uids, string(g.UID))
		}
		return "", fault.Field(
			"parent", "%d groups have this name; use a uid: %s", found.Total, strings.Join(uids, ", "),
		)
	}
	return found.Items[0].UID, nil
}

// GetGroup returns a group. The caller needs groups.list on it.
func (s *Service) GetGroup(ctx context.Context, uid resource.UID) (resource.Group, error) {
	return authz.Get(ctx, s.authz, resource.GroupsList, uid, s.store.Group)
}

// UpdateGroup applies change to a group. The caller needs groups.update on it.
func (s *Service) UpdateGroup(
	ctx context.Context, uid resource.UID, change func(*resource.Group) error,
) (resource.Group, error) {
	if err := s.authz.Require(ctx, resource.GroupsUpdate, uid); err != nil {
		return resource.Group{}, err
	}
	return store.Edit(ctx, uid, s.store.Group, s.store.UpdateGroup, func(g *resource.Group) error {
		before := *g
		if err := change(g); err != nil {
			return err
		}
		if g.Verified && !before.Verified {
			return fault.Field("verified", "can be set only by the operator of the service")
		}
		if g.Kind != resource.OrgUnspecified && g.Kind != before.Kind {
			return fault.Field("kind", "cannot be changed")
		}
		if before.Verified && g.Name != before.Name { // with another name, the organization could claim another e-mail domain
			return fault.Unmet("VERIFIED_NAME", "the name of a verified organization cannot be changed")
		}
		g.UID, g.CreateTime, g.Verified, g.Kind = before.UID, before.CreateTime, before.Verified, before.Kind
		return g.Validate()
	})
}

// Verify records whether the operator has verified that an organization owns the domain that is its name. People with
// an e-mail address in that domain can find a verified organization.
func (s *Service) Verify(ctx context.Context, org resource.UID, verified bool) (resource.Group, error) {
	if !org.IsRoot() {
		return resource.Group{}, fault.Field("organization", "is a group below one")
	}
	return store.Edit(ctx, org, s.store.Group, s.store.UpdateGroup, func(g *resource.Group) error {
		g.Verified = verified
		return nil
	})
}

// DeleteGroup removes an empty group. The caller needs groups.delete on it.
func (s *Service) DeleteGroup(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.GroupsDelete, uid); err != nil {
		return err
	}
	c, err := authz.RequireCaller(ctx)
	if err != nil {
		return err
	}
	return s.people.DeleteGroup(ctx, uid, c.Identity)
}

// ListGroups returns a page of the groups on which the caller holds groups.list.
func (s *Service) ListGroups(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.Group], error) {
	return authz.List(ctx, s.authz, s.pages, iamdb.GroupList, resource.GroupsList, f, p, s.store.Groups)
}

// LookupGroup returns the verified organization whose name is the domain of the caller's e-mail address. The address
// must have been verified by a provider of that organization or by a provider that the operator trusts. In every other
// case, LookupGroup returns the same fault.NotFound.
func (s *Service) LookupGroup(ctx context.Context) (resource.Group, error) {
	_, g, err := s.domainOrganization(ctx)
	return g, err
}

// CheckEligibility reports whether LookupGroup can find a group for the caller: whether the caller has an e-mail
// address and an unnarrowed token.
func (s *Service) CheckEligibility(ctx context.Context) (bool, error) {
	c, err := authz.RequireCaller(ctx)
	if err != nil {
		return false, err
	}
	i, err := s.store.Identity(ctx, c.Identity)
	if fault.From(err).Code == fault.NotFound || err == nil && !c.Narrowing().IsZero() {
		return false, nil
	}
	return i.Email != "", err
}

// RequestGroupAccess asks the owners of the group that LookupGroup finds to let the caller join. It returns
// fault.ResourceExhausted if the caller's last request is less than an hour ago.
func (s *Service) RequestGroupAccess(ctx context.Context, uid resource.UID) error {
	i, g, err := s.domainOrganization(ctx)
	if err != nil {
		return err
	}
	if g.UID != uid {
		return fault.Missing("group", string(uid))
	}
	return s.store.RequestAccess(ctx, uid, i, accessPause)
}

// domainOrganization returns the caller's identity and the group that LookupGroup finds.
func (s *Service) domainOrganization(ctx context.Context) (resource.Identity, resource.Group, error) {
	notFound := fault.New(fault.NotFound, "Not found: no verified organization for your e-mail domain")
	c, err := authz.RequireUnnarrowed(ctx)
	if err != nil {
		return resource.Identity{}, resource.Group{}, err
	}
	i, err := s.store.Identity(ctx, c.Identity)
	if err != nil {
		return i, resource.Group{}, maskNotFound(err, notFound)
	}
	_, domain, ok := strings.Cut(i.Email, "@")
	if !ok {
		return i, resource.Group{}, notFound
	}
	g, err := s.store.Organization(ctx, strings.ToLower(domain))
	if err != nil {
		return i, g, maskNotFound(err, notFound)
	}
	if !g.Verified || c.Voucher == "" || i.Provider != c.Voucher.Provider() {
		return i, resource.Group{}, notFound
	}
	p, err := s.store.Provider(ctx, i.Provider)
	if err != nil {
		return i, resource.Group{}, maskNotFound(err, notFound)
	}
	if !p.Trusted && p.UID.Parent() != g.UID { // any provider can claim to have verified an address
		return i, resource.Group{}, notFound
	}
	return i, g, nil
}

// maskNotFound returns masked if err is fault.NotFound, and otherwise err.
func maskNotFound(err error, masked *fault.Error) error {
	if fault.From(err).Code == fault.NotFound {
		return masked
	}
	return err
}
