package v2

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/api/wire"
	"github.com/holdfast-dev/holdfast/fault"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

type identities struct {
	iampb.UnsafeIdentitiesServiceServer
	iam *iam.Service
}

// IdentityOf returns the message of an identity.
func IdentityOf(i resource.Identity) *iampb.Identity {
	p := &iampb.Identity{
		Uid: string(i.UID), Name: i.Name, Description: i.Description,
		Email: i.Email, EmailUnverified: i.EmailUnverified, Company: i.Company,
		IdentityProvider: string(i.Provider), LastSeenTime: wire.Time(i.LastSeenTime), CreateTime: wire.Time(i.CreateTime), UpdateTime: wire.Time(i.UpdateTime),
	}
	writeRelationship(i.Relationship, p)
	return p
}

// ReadIdentity copies what clients may set from p to i.
func ReadIdentity(p *iampb.Identity, i *resource.Identity) (err error) {
	i.Name, i.Description, i.Company = p.GetName(), p.GetDescription(), p.GetCompany()
	i.Relationship, err = readRelationship(p)
	return err
}

// warned returns a function like IdentityOf that also sends the warnings about the
// identity.
func warned(ctx context.Context) func(resource.Identity) *iampb.Identity {
	return func(i resource.Identity) *iampb.Identity {
		wire.Warn(ctx, i.Warnings())
		return IdentityOf(i)
	}
}

func (s identities) CreateIdentity(ctx context.Context, r *iampb.CreateIdentityRequest) (*iampb.Identity, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetIdentity(), ReadIdentity, s.iam.CreateIdentity, warned(ctx))
}

func (s identities) GetIdentity(ctx context.Context, r *iampb.GetIdentityRequest) (*iampb.Identity, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.iam.GetIdentity, IdentityOf)
}

func (s identities) UpdateIdentity(ctx context.Context, r *iampb.UpdateIdentityRequest) (*iampb.Identity, error) {
	return wire.UpdateTo(ctx, r.GetUpdateMask(), "identity", r.GetIdentity(), ReadIdentity, IdentityOf, s.iam.UpdateIdentity, warned(ctx))
}

func (s identities) DeleteIdentity(ctx context.Context, r *iampb.DeleteIdentityRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.iam.DeleteIdentity)
}

func (s identities) ListIdentities(ctx context.Context, r *iampb.ListIdentitiesRequest) (*iampb.ListIdentitiesResponse, error) {
	f := resource.Filter{Place: wire.Place(r.GetUidp()), Name: r.GetName(), Relationship: resource.RelationshipType(r.GetRelationshipType())}
	p, err := wire.List(ctx, r, f, s.iam.ListIdentities, IdentityOf)
	return &iampb.ListIdentitiesResponse{Identities: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}

func (s identities) LookupIdentity(ctx context.Context, r *iampb.LookupIdentityRequest) (*iampb.LookupIdentityResponse, error) {
	var bad wire.Problems
	if r.GetIssuer() == "" {
		bad.Add(fault.Field("issuer", "is required"))
	}
	if r.GetSubject() == "" {
		bad.Add(fault.Field("subject", "is required"))
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	provider, err := wire.OptionalUID("identity_provider", r.GetIdentityProvider())
	if err != nil {
		return nil, err
	}
	uid, err := s.iam.LookupIdentity(ctx, r.GetIssuer(), r.GetSubject(), provider)
	return &iampb.LookupIdentityResponse{Uid: string(uid)}, err
}

func (s identities) UpdateIdentityMetadata(ctx context.Context, r *iampb.UpdateIdentityMetadataRequest) (*iampb.IdentityMetadata, error) {
	if err := wire.Require("identity_metadata", r.GetIdentityMetadata()); err != nil {
		return nil, err
	}
	i, err := s.iam.UpdateMetadata(ctx, wire.Masked(r.GetUpdateMask(), r.GetIdentityMetadata(), ReadMetadata, MetadataOf))
	return MetadataOf(i), err
}
