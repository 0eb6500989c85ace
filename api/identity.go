package api

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

type identities struct {
	iampb.UnsafeIdentitiesServiceServer
	iam *iam.Service
}

func identityOf(i resource.Identity) *iampb.Identity {
	p := &iampb.Identity{
		Uid: string(i.UID), Name: i.Name, Description: i.Description,
		Email: i.Email, EmailUnverified: i.EmailUnverified, Company: i.Company,
		IdentityProvider: string(i.Provider), LastSeenTime: timeOf(i.LastSeenTime), CreateTime: timeOf(i.CreateTime), UpdateTime: timeOf(i.UpdateTime),
	}
	writeRelationship(i.Relationship, p)
	return p
}

// readIdentity reads into i what clients may set.
func readIdentity(p *iampb.Identity, i *resource.Identity) (err error) {
	i.Name, i.Description, i.Company = p.GetName(), p.GetDescription(), p.GetCompany()
	i.Relationship, err = readRelationship(p)
	return err
}

// CreateIdentity is of iampb.IdentitiesServiceServer.
func (s identities) CreateIdentity(ctx context.Context, r *iampb.CreateIdentityRequest) (*iampb.Identity, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	var i resource.Identity
	if err := readIdentity(r.GetIdentity(), &i); err != nil {
		return nil, err
	}
	i, err = s.iam.CreateIdentity(ctx, parent, i)
	if err != nil {
		return nil, err
	}
	warn(ctx, i.Warnings())
	return identityOf(i), nil
}

// GetIdentity is of iampb.IdentitiesServiceServer.
func (s identities) GetIdentity(ctx context.Context, r *iampb.GetIdentityRequest) (*iampb.Identity, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	i, err := s.iam.GetIdentity(ctx, uid)
	if err != nil {
		return nil, err
	}
	return identityOf(i), nil
}

// UpdateIdentity is of iampb.IdentitiesServiceServer.
func (s identities) UpdateIdentity(ctx context.Context, r *iampb.UpdateIdentityRequest) (*iampb.Identity, error) {
	if r.GetIdentity() == nil {
		return nil, fault.Field("identity", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetIdentity().GetUid())
	if err != nil {
		return nil, err
	}
	i, err := s.iam.UpdateIdentity(ctx, uid, func(i *resource.Identity) error {
		p := identityOf(*i)
		if err := apply(r.GetUpdateMask(), r.GetIdentity(), p); err != nil {
			return err
		}
		return readIdentity(p, i)
	})
	if err != nil {
		return nil, err
	}
	warn(ctx, i.Warnings())
	return identityOf(i), nil
}

// DeleteIdentity is of iampb.IdentitiesServiceServer.
func (s identities) DeleteIdentity(ctx context.Context, r *iampb.DeleteIdentityRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.iam.DeleteIdentity(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// ListIdentities is of iampb.IdentitiesServiceServer.
func (s identities) ListIdentities(ctx context.Context, r *iampb.ListIdentitiesRequest) (*iampb.ListIdentitiesResponse, error) {
	f := resource.Filter{Place: placeOf(r), Name: r.GetName(), Relationship: resource.RelationshipType(r.GetRelationshipType())}
	p, err := s.iam.ListIdentities(ctx, f, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &iampb.ListIdentitiesResponse{
		Identities: convert(p.Items, identityOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}

// LookupIdentity is of iampb.IdentitiesServiceServer.
func (s identities) LookupIdentity(ctx context.Context, r *iampb.LookupIdentityRequest) (*iampb.LookupIdentityResponse, error) {
	var bad []fault.Violation
	if r.GetIssuer() == "" {
		bad = append(bad, fault.Violation{Subject: "issuer", Description: "is required"})
	}
	if r.GetSubject() == "" {
		bad = append(bad, fault.Violation{Subject: "subject", Description: "is required"})
	}
	if len(bad) > 0 {
		return nil, fault.Fields(bad)
	}
	var provider resource.UID
	if r.GetIdentityProvider() != "" {
		var err error
		if provider, err = resource.ParseUID("identity_provider", r.GetIdentityProvider()); err != nil {
			return nil, err
		}
	}
	uid, err := s.iam.LookupIdentity(ctx, r.GetIssuer(), r.GetSubject(), provider)
	if err != nil {
		return nil, err
	}
	return &iampb.LookupIdentityResponse{Uid: string(uid)}, nil
}

// UpdateIdentityMetadata is of iampb.IdentitiesServiceServer.
func (s identities) UpdateIdentityMetadata(ctx context.Context, r *iampb.UpdateIdentityMetadataRequest) (*iampb.IdentityMetadata, error) {
	if r.GetIdentityMetadata() == nil {
		return nil, fault.Field("identity_metadata", "is required")
	}
	i, err := s.iam.UpdateMetadata(ctx, func(i *resource.Identity) error {
		p := metadataOf(*i)
		if err := apply(r.GetUpdateMask(), r.GetIdentityMetadata(), p); err != nil {
			return err
		}
		readMetadata(p, i)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return metadataOf(i), nil
}
