package iam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// CreateIdentity makes an identity in a group. The caller needs identity.create
// there.
func (s *Service) CreateIdentity(ctx context.Context, parent resource.UID, i resource.Identity) (resource.Identity, error) {
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
	if err := s.store.InsertIdentity(ctx, i); err != nil {
		return resource.Identity{}, err
	}
	return i, nil
}

// checkRelationship reports every field a caller must fix. An identity that trusts
// tokens of our own must name whose: what somebody may become is followed through
// such identities, and no pattern can be.
func (s *Service) checkRelationship(i resource.Identity, now time.Time) error {
	if err := i.Validate(now); err != nil {
		return err
	}
	m := i.Relationship.ClaimMatch
	if m != nil && m.Issuer != "" && m.Issuer == s.authz.Issuer && m.Subject == "" {
		return fault.Field("claim_match.subject_pattern", "tokens of this service are matched by their exact subject: the uid of an identity")
	}
	return nil
}

// GetIdentity returns an identity. The caller needs identity.list on it, or is
// it, with a token that is not narrowed.
func (s *Service) GetIdentity(ctx context.Context, uid resource.UID) (resource.Identity, error) {
	c, err := caller(ctx)
	if err != nil {
		return resource.Identity{}, err
	}
	if c.Identity != uid || !c.Narrowing().IsZero() {
		if err := s.authz.Require(ctx, resource.IdentityList, uid); err != nil {
			return resource.Identity{}, err
		}
	}
	return s.store.Identity(ctx, uid)
}

// UpdateIdentity applies change to an identity. The caller needs
// identity.update on it and, to change who it stands for, everything that it and
// the identities that can be assumed through it may do: whoever becomes it has
// all of that.
func (s *Service) UpdateIdentity(ctx context.Context, uid resource.UID, change func(*resource.Identity) error) (resource.Identity, error) {
	if err := s.authz.Require(ctx, resource.IdentityUpdate, uid); err != nil {
		return resource.Identity{}, err
	}
	return s.store.UpdateIdentity(ctx, uid, resource.IdentityUpdated, func(i *resource.Identity) error {
		before := *i
		i.Relationship = copyOf(i.Relationship)
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

// copyOf copies a relationship with what it points to.
func copyOf(r resource.Relationship) resource.Relationship {
	if r.ClaimMatch != nil {
		c := *r.ClaimMatch
		r.ClaimMatch = &c
	}
	if r.StaticKeys != nil {
		k := *r.StaticKeys
		r.StaticKeys = &k
	}
	if r.AWS != nil {
		a := *r.AWS
		r.AWS = &a
	}
	return r
}

// DeleteIdentity removes an identity with its bindings. Its tokens are void from
// the next request on. The caller needs identity.delete on it.
func (s *Service) DeleteIdentity(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.IdentityDelete, uid); err != nil {
		return err
	}
	return s.store.DeleteIdentity(ctx, uid)
}

// ListIdentities returns a page of the identities the caller holds
// identity.list on.
func (s *Service) ListIdentities(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.Identity], error) {
	reach, err := s.reach(ctx, resource.IdentityList)
	if err != nil {
		return page.Page[resource.Identity]{}, err
	}
	return page.Read(ctx, s.pages, idList, reach, f, p, s.store.Identities)
}

// maxLookup is how long an issuer or a subject may be: no longer than what an
// identity can be made with.
const maxLookup = 2048

// LookupIdentity returns the UID of the person an issuer knows by subject,
// whether or not they have signed in yet. Any caller may ask. Who that is depends
// on who vouches for them: the provider given, on which the caller needs
// identity_providers.list; else the one of that issuer that speaks for where the
// caller comes from; else the installation. Providers that the caller merely may
// see do not count, because anybody can make the caller see one.
func (s *Service) LookupIdentity(ctx context.Context, issuer, subject string, provider resource.UID) (resource.UID, error) {
	if _, err := caller(ctx); err != nil {
		return "", err
	}
	var bad []fault.Violation
	for _, v := range []struct{ field, text string }{{"issuer", issuer}, {"subject", subject}} {
		switch {
		case v.text == "":
			bad = append(bad, fault.Violation{Subject: v.field, Description: "is required"})
		case len(v.text) > maxLookup:
			bad = append(bad, fault.Violation{Subject: v.field, Description: fmt.Sprintf("must have at most %d bytes", maxLookup)})
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

// realmOf returns the realm that somebody of an issuer is known in to the caller.
func (s *Service) realmOf(ctx context.Context, issuer string, provider resource.UID) (string, error) {
	if provider != "" {
		p, err := s.GetProvider(ctx, provider)
		if err == nil && p.OIDC.Issuer != issuer {
			err = fault.Field("issuer", "is not the issuer of the identity provider")
		}
		return p.Realm, err
	}
	c, home, err := s.home(ctx)
	if err != nil || home == "" {
		return issuer, err
	}
	all, err := s.store.ProvidersFor(ctx, home)
	if err != nil {
		return "", err
	}
	// A provider that knows people by their oid knows another by this subject.
	all = slices.DeleteFunc(all, func(p resource.IdentityProvider) bool { return p.OIDC.Issuer != issuer || p.OIDC.ByObjectID() })
	if len(all) == 0 {
		return issuer, nil
	}
	if i := slices.IndexFunc(all, func(p resource.IdentityProvider) bool { return p.UID == c.Voucher.Provider() }); i >= 0 {
		return all[i].Realm, nil
	}
	return slices.MinFunc(all, func(p, q resource.IdentityProvider) int {
		return cmp.Or(cmp.Compare(p.UID.Depth(), q.UID.Depth()), p.CreateTime.Compare(q.CreateTime), cmp.Compare(p.UID, q.UID))
	}).Realm, nil
}

// home returns the caller and the group that they come from: that of a workload,
// of the provider that vouched for a person, or of their account. It is "" for
// people whom the operator knows by their issuer.
func (s *Service) home(ctx context.Context) (c authz.Caller, home resource.UID, _ error) {
	c, err := caller(ctx)
	switch {
	case err != nil:
		return c, "", err
	case !c.Identity.IsRoot():
		return c, c.Identity.Parent(), nil
	case c.Voucher != "":
		return c, c.Voucher.Provider().Parent(), nil
	}
	a, err := s.store.AccountOf(ctx, c.Identity)
	if errors.Is(err, fault.NotFound) {
		return c, "", nil
	}
	return c, a.UID.Root(), err
}

// CreatePerson returns fault.FailedPrecondition: nobody makes an identity outside
// of a group. Its uid would be that of whoever signs in with the issuer and the
// subject, and with keys of the caller's choice they could sign in as them. The
// caller needs identity.create anywhere.
func (s *Service) CreatePerson(ctx context.Context) error {
	if err := s.authz.RequireAnywhere(ctx, resource.IdentityCreate); err != nil {
		return err
	}
	return fault.Unmet("GROUP_REQUIRED", "an identity is made in a group; that of a person is made when they first sign in")
}

// UpdateMetadata applies change to what the caller told about themselves. Their
// token must not be narrowed.
func (s *Service) UpdateMetadata(ctx context.Context, change func(*resource.Identity) error) (resource.Identity, error) {
	c, err := authz.RequireWhole(ctx)
	if err != nil {
		return resource.Identity{}, err
	}
	return s.store.UpdateIdentity(ctx, c.Identity, resource.IdentityMetadataUpdated, func(i *resource.Identity) error {
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
