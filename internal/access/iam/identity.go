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
	now := s.now()
	i.Complete(now)
	if err := s.checkRelationship(i, now); err != nil {
		return resource.Identity{}, err
	}
	i.UID, i.Realm, i.Provider = parent.NewChild(), "", ""
	i.Email, i.EmailUnverified, i.Metadata = "", "", nil
	i.CreateTime, i.UpdateTime, i.LastSeenTime = now, now, now
	return i, s.store.InsertIdentity(ctx, i)
}

// checkRelationship validates an identity. One that trusts our own tokens must name the exact subject, because
// authz.RequireBecome follows such identities and cannot follow a pattern.
func (s *Service) checkRelationship(i resource.Identity, now time.Time) error {
	if err := i.Validate(now); err != nil {
		return err
	}
	m := i.Relationship.ClaimMatch
	if m != nil && m.Issuer != "" && m.Issuer == s.authz.Issuer && m.Subject == "" {
		return fault.Field(
			"claim_match.subject_pattern",
			"tokens of this service are matched by their exact subject: the uid of an identity",
		)
	}
	return nil
}

// GetIdentity returns an identity. The caller needs identity.list on it, or is
// it, with a token that is not narrowed.
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

// UpdateIdentity applies change to an identity. The caller needs identity.update on it. To change who can
// assume it, the caller also needs everything that it, and the identities that can be assumed through it, may
// do.
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
		i.Realm, i.Provider = before.Realm, before.Provider
		now := s.now()
		i.Complete(now)
		if reflect.DeepEqual(i.Relationship, before.Relationship) {
			return i.ValidateProfile()
		}
		if err := s.checkRelationship(*i, now); err != nil {
			return err
		}
		return s.authz.RequireBecome(ctx, uid)
	})
}

// DeleteIdentity removes an identity and its bindings. Its tokens are void
// from the next request on. The caller needs identity.delete on it.
func (s *Service) DeleteIdentity(ctx context.Context, uid resource.UID) error {
	return s.authz.Delete(ctx, resource.IdentityDelete, uid, s.people.DeleteIdentity)
}

// ListIdentities returns a page of the identities on which the caller holds identity.list.
func (s *Service) ListIdentities(
	ctx context.Context, f resource.Filter, p page.Params,
) (page.Page[resource.Identity], error) {
	return authz.List(ctx, s.authz, s.pages, iamdb.IdentityList, resource.IdentityList, f, p, s.store.Identities)
}

// maxLookup is the longest issuer or subject, as for identities that are created.
const maxLookup = 2048

// LookupIdentity returns the UID of the person whom an issuer knows by subject, whether or not they have signed
// in yet. Any caller may ask. The person depends on who vouches for them: provider, if given, on which the
// caller needs identity_providers.list; otherwise the provider of that issuer that applies to the group the
// caller comes from; otherwise the installation. Providers that the caller can merely see do not count, because
// anybody can make one visible to the caller.
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

// realmOf returns the realm in which the caller knows the people of an issuer.
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
	all, err := s.store.ProvidersFor(ctx, home)
	if err != nil {
		return "", err
	}
	// Providers that identify people by their oid do not know this subject.
	all = slices.DeleteFunc(all, func(p resource.IdentityProvider) bool {
		return p.OIDC.Issuer != issuer || p.OIDC.ByObjectID()
	})
	if len(all) == 0 {
		return issuer, nil
	}
	for _, p := range all {
		if p.UID == c.Voucher.Provider() {
			return p.Realm, nil
		}
	}
	return slices.MinFunc(all, func(p, q resource.IdentityProvider) int {
		return cmp.Or(cmp.Compare(p.UID.Depth(), q.UID.Depth()),
			p.CreateTime.Compare(q.CreateTime), cmp.Compare(p.UID, q.UID))
	}).Realm, nil
}

// homeGroup returns the caller and the group they come from: that of a workload, of the provider that vouched
// for a person, or of their account. It is "" for people whom the operator knows by their issuer.
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

// CreatePerson returns fault.FailedPrecondition: identities are created in a group. An identity outside of a
// group would have the UID of whoever signs in with its issuer and subject, and its creator could sign in as
// them with keys of their own. The caller needs identity.create anywhere.
func (s *Service) CreatePerson(ctx context.Context) error {
	if err := s.authz.RequireAnywhere(ctx, resource.IdentityCreate); err != nil {
		return err
	}
	return fault.Unmet(
		"GROUP_REQUIRED", "an identity is made in a group; that of a person is made when they first sign in",
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
