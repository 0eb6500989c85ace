package iam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// CreateIdentity creates an identity in a group. The caller needs identity.create there.
func (s *Service) CreateIdentity(
	ctx context.Context, parent resource.UID, i resource.Identity,
) (resource.Identity, error) {
	if err := s.authz.Require(ctx, resource.IdentityCreate, parent); err != nil {
		return resource.Identity{}, err
	}
	currentTime := s.now()
	i.Complete(currentTime)
	if err := s.checkRelationship(i, currentTime); err != nil {
		return resource.Identity{}, err
	}
	i.UID, i.Realm, i.Provider = parent.NewChild(), "", ""
	i.Email, i.EmailUnverified, i.Metadata, i.Maker = "", "", nil, s.makerOf(ctx, i)
	i.CreateTime, i.UpdateTime, i.LastSeenTime = currentTime, currentTime, currentTime
	return i, s.store.InsertIdentity(ctx, i)
}

// makerOf returns the person who creates a pull token: the caller, or the person who has assumed the identity of the
// caller. It returns "" for other identities, and if no person has assumed the identity of the caller.
func (s *Service) makerOf(ctx context.Context, i resource.Identity) resource.UID {
	c, ok := authz.CallerFrom(ctx)
	if !ok || !i.IsPullToken() {
		return ""
	}
	if c.Identity.IsRoot() {
		return c.Identity
	}
	for act := c.Act; act != nil; act = act.Act {
		if uid := resource.UID(act.Subject); act.Issuer == s.authz.Issuer && uid.IsRoot() {
			return uid
		}
	}
	return ""
}

// checkRelationship validates an identity. An identity that trusts our own tokens must name the exact subject, because
// authz.Checker.RequireBecome must find such identities by their subject, and cannot find a pattern.
func (s *Service) checkRelationship(i resource.Identity, currentTime time.Time) error {
	if err := i.Validate(currentTime); err != nil {
		return err
	}
	m := i.Relationship.ClaimMatch
	if m != nil && m.Issuer != "" && m.Issuer == s.authz.Issuer && m.Subject == "" {
		return fault.Field(
			"claim_match.subject_pattern",
			"cannot match tokens of this service: set the exact subject, which is the uid of an identity",
		)
	}
	return nil
}

// GetIdentity returns an identity. The caller needs identity.list on it, unless it
// is the caller's own identity and the token is not narrowed.
func (s *Service) GetIdentity(ctx context.Context, uid resource.UID) (resource.Identity, error) {
	if err := s.mayGetIdentity(ctx, uid); err != nil {
		return resource.Identity{}, err
	}
	return s.store.Identity(ctx, uid)
}

// mayGetIdentity returns nil if the caller may get an identity.
func (s *Service) mayGetIdentity(ctx context.Context, uid resource.UID) error {
	c, err := authz.RequireCaller(ctx)
	if err != nil || c.Identity == uid && c.Narrowing().IsZero() {
		return err
	}
	return s.authz.Require(ctx, resource.IdentityList, uid)
}

// UpdateIdentity applies change to an identity. The caller needs identity.update on it. To change which tokens can
// assume the identity, the caller also needs every capability of the identity and of the identities that can be assumed
// through it.
func (s *Service) UpdateIdentity(
	ctx context.Context, uid resource.UID, change func(*resource.Identity) error,
) (resource.Identity, error) {
	if err := s.authz.Require(ctx, resource.IdentityUpdate, uid); err != nil {
		return resource.Identity{}, err
	}
	return store.Edit(ctx, uid, s.store.Identity, s.store.UpdateIdentity, func(i *resource.Identity) error {
		before := *i
		var err error
		if i.Relationship, err = store.Clone(i.Relationship); err != nil {
			return err
		}
		if err := change(i); err != nil {
			return err
		}
		i.UID, i.CreateTime, i.LastSeenTime = before.UID, before.CreateTime, before.LastSeenTime
		i.Email, i.EmailUnverified, i.Metadata = before.Email, before.EmailUnverified, before.Metadata
		i.Realm, i.Provider, i.Maker = before.Realm, before.Provider, before.Maker
		currentTime := s.now()
		i.Complete(currentTime)
		if reflect.DeepEqual(i.Relationship, before.Relationship) {
			return i.ValidateProfile()
		}
		i.Maker = s.makerOf(ctx, *i)
		if err := s.checkRelationship(*i, currentTime); err != nil {
			return err
		}
		return s.authz.RequireBecome(ctx, uid)
	})
}

// DeleteIdentity removes an identity and its bindings, and makes its tokens void.
// The caller needs identity.delete on it.
func (s *Service) DeleteIdentity(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.IdentityDelete, uid, s.people.DeleteIdentity)
}

// ListIdentities returns a page of the identities on which the caller holds identity.list.
func (s *Service) ListIdentities(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.Identity], error) {
	return authz.List(ctx, s.authz, s.pages, iamdb.IdentityList, resource.IdentityList, f, p, s.store.Identities)
}

// maxLookup is the greatest length of an issuer or a subject in bytes. Identities have the same limit.
const maxLookup = 2048

// LookupIdentity returns the UID of the person with a subject at an issuer, whether or not the person has signed in
// yet. Every caller may call it. The UID depends on who vouches for the person. If provider is set, that provider
// vouches, and the caller needs identity_providers.list on it. If not, the provider with that issuer that applies to
// the caller's home group vouches. If there is no such provider, the installation vouches. LookupIdentity ignores other
// providers that the caller can see, because anybody can make a provider visible to the caller.
func (s *Service) LookupIdentity(
	ctx context.Context, issuer, subject string, provider resource.UID,
) (resource.UID, error) {
	if _, err := authz.RequireCaller(ctx); err != nil {
		return "", err
	}
	var bad []fault.Violation
	for _, v := range []struct{ field, text string }{{"issuer", issuer}, {"subject", subject}} {
		switch {
		case v.text == "":
			bad = append(bad, fault.Violation{Subject: v.field, Description: "is required"})
		case len(v.text) > maxLookup:
			text := fmt.Sprintf("must have at most %d bytes", maxLookup)
			bad = append(bad, fault.Violation{Subject: v.field, Description: text})
		}
	}
	if len(bad) > 0 {
		return "", fault.Fields(bad)
	}
	realm, err := s.realmOf(ctx, issuer, provider)
	if err != nil {
		return "", err
	}
	return s.store.PersonUID(ctx, realm, subject)
}

// realmOf returns the realm in which LookupIdentity looks for the people of an issuer on behalf of the caller.
func (s *Service) realmOf(ctx context.Context, issuer string, provider resource.UID) (string, error) {
	if provider != "" {
		p, err := s.GetProvider(ctx, provider)
		if err == nil && p.OIDC.Issuer != issuer {
			err = fault.Field("issuer", "is not the issuer of the identity provider")
		}
		return p.Realm, err
	}
	c, home, err := s.homeGroup(ctx)
	if err != nil || home == "" {
		return issuer, err
	}
	providers, err := s.store.ProvidersFor(ctx, home)
	if err != nil {
		return "", err
	}
	// Providers that identify people by their oid do not know this subject.
	providers = slices.DeleteFunc(providers, func(p resource.IdentityProvider) bool {
		return p.OIDC.Issuer != issuer || p.OIDC.ByObjectID()
	})
	if len(providers) == 0 {
		return issuer, nil
	}
	for _, p := range providers {
		if p.UID == c.Voucher.Provider() {
			return p.Realm, nil
		}
	}
	return slices.MinFunc(providers, func(p, q resource.IdentityProvider) int {
		return cmp.Or(cmp.Compare(p.UID.Depth(), q.UID.Depth()),
			p.CreateTime.Compare(q.CreateTime), cmp.Compare(p.UID, q.UID))
	}).Realm, nil
}

// homeGroup returns the caller and their home group: the group of a workload, the group of the provider that vouched
// for a person, or the organization of the person's account. It is "" for people whom only an issuer identifies.
func (s *Service) homeGroup(ctx context.Context) (c authz.Caller, home resource.UID, _ error) {
	c, err := authz.RequireCaller(ctx)
	switch {
	case err != nil:
		return c, "", err
	case !c.Identity.IsRoot():
		return c, c.Identity.Parent(), nil
	case c.Voucher != "":
		return c, c.Voucher.Provider().Parent(), nil
	}
	a, err := s.accounts.AccountOf(ctx, c.Identity)
	if errors.Is(err, fault.NotFound) {
		return c, "", nil
	}
	return c, a.UID.Root(), err
}

// CreatePerson always returns fault.FailedPrecondition, because identities are created in a group. Without a group, an
// identity would have the UID of the person who signs in with its issuer and subject, and its creator could sign in as
// that person with keys of their own. The caller needs identity.create on any group.
func (s *Service) CreatePerson(ctx context.Context) error {
	if err := s.authz.RequireAnywhere(ctx, resource.IdentityCreate); err != nil {
		return err
	}
	return fault.Unmet(
		"GROUP_REQUIRED", "identities are created in a group; the identity of a person is created at the first sign-in",
	)
}

// UpdateMetadata applies change to the metadata of the caller's own identity. Their token must not be narrowed.
func (s *Service) UpdateMetadata(
	ctx context.Context, change func(*resource.Identity) error,
) (resource.Identity, error) {
	c, err := authz.RequireUnnarrowed(ctx)
	if err != nil {
		return resource.Identity{}, err
	}
	return store.Edit(ctx, c.Identity, s.store.Identity, s.store.UpdateMetadata, func(i *resource.Identity) error {
		before := *i
		if err := change(i); err != nil {
			return err
		}
		metadata, company := i.Metadata, i.Company
		*i = before
		i.Metadata, i.Company = metadata, company
		return i.ValidateMetadata()
	})
}
