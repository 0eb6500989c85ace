package api

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	iamv1pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

type identitiesV1 struct {
	iamv1pb.UnsafeIdentitiesServer
	iam *iam.Service
}

func identityV1(i resource.Identity) *iamv1pb.Identity {
	p := &iamv1pb.Identity{
		Id: string(i.UID), Name: i.Name, Description: i.Description,
		CreatedAt: timeOf(i.CreateTime), UpdatedAt: timeOf(i.UpdateTime), LastSeen: timeOf(i.LastSeenTime),
	}
	switch r := i.Relationship; r.Type() {
	case resource.RelationshipClaimMatch:
		c, err := recode(claimMatchOf(*r.ClaimMatch), &iamv1pb.Identity_ClaimMatch{})
		if err == nil { // it cannot fail: the two have the same fields
			p.Relationship = &iamv1pb.Identity_ClaimMatch_{ClaimMatch: c}
		}
	case resource.RelationshipStaticKeys:
		p.Relationship = &iamv1pb.Identity_Static{Static: &iamv1pb.Identity_StaticKeys{
			Issuer: r.StaticKeys.Issuer, Subject: r.StaticKeys.Subject, IssuerKeys: r.StaticKeys.IssuerKeys,
			Expiration: timeOf(r.StaticKeys.ExpirationTime), Audiences: r.StaticKeys.Audiences,
		}}
	case resource.RelationshipAWS:
		p.Relationship = &iamv1pb.Identity_AwsIdentity{AwsIdentity: awsIdentityV1(*r.AWS)}
	case resource.RelationshipServicePrincipal:
		p.Relationship = &iamv1pb.Identity_ServicePrincipal{ServicePrincipal: iamv1pb.ServicePrincipal(r.ServicePrincipal)}
	}
	return p
}

func awsIdentityV1(a resource.AWSIdentity) *iamv1pb.Identity_AWSIdentity {
	p := &iamv1pb.Identity_AWSIdentity{AwsAccount: a.Account}
	switch {
	case a.ARN != "":
		p.AwsArn = &iamv1pb.Identity_AWSIdentity_Arn{Arn: a.ARN}
	case a.ARNPattern != "":
		p.AwsArn = &iamv1pb.Identity_AWSIdentity_ArnPattern{ArnPattern: a.ARNPattern}
	}
	switch {
	case a.UserID != "":
		p.AwsUserId = &iamv1pb.Identity_AWSIdentity_UserId{UserId: a.UserID}
	case a.UserIDPattern != "":
		p.AwsUserId = &iamv1pb.Identity_AWSIdentity_UserIdPattern{UserIdPattern: a.UserIDPattern}
	}
	return p
}

// readIdentityV1 reads into i what clients of version 1 may set: all but the
// company, which that version does not know.
func readIdentityV1(p *iamv1pb.Identity, i *resource.Identity) (err error) {
	i.Name, i.Description, i.Relationship = p.GetName(), p.GetDescription(), resource.Relationship{}
	switch {
	case p.GetClaimMatch() != nil:
		c, err := recode(p.GetClaimMatch(), &iampb.Identity_ClaimMatch{})
		if err != nil {
			return err
		}
		i.Relationship, err = readRelationship(&iampb.Identity{Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: c}})
		return err
	case p.GetStatic() != nil:
		k := p.GetStatic()
		i.Relationship.StaticKeys = &resource.StaticKeys{Issuer: k.GetIssuer(), Subject: k.GetSubject(), IssuerKeys: k.GetIssuerKeys(), Audiences: k.GetAudiences()}
		i.Relationship.StaticKeys.ExpirationTime, err = readTime("static.expiration", k.GetExpiration())
	case p.GetAwsIdentity() != nil:
		a := p.GetAwsIdentity()
		i.Relationship.AWS = &resource.AWSIdentity{
			Account: a.GetAwsAccount(), ARN: a.GetArn(), ARNPattern: a.GetArnPattern(), UserID: a.GetUserId(), UserIDPattern: a.GetUserIdPattern(),
		}
	default:
		i.Relationship.ServicePrincipal = int32(p.GetServicePrincipal())
	}
	return err
}

// Create is of iamv1pb.IdentitiesServer.
func (s identitiesV1) Create(ctx context.Context, r *iamv1pb.CreateIdentityRequest) (*iamv1pb.Identity, error) {
	parent, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	var i resource.Identity
	if err := readIdentityV1(r.GetIdentity(), &i); err != nil {
		return nil, err
	}
	if i, err = s.iam.CreateIdentity(ctx, parent, i); err != nil {
		return nil, err
	}
	warn(ctx, i.Warnings())
	return identityV1(i), nil
}

// Update is of iamv1pb.IdentitiesServer.
func (s identitiesV1) Update(ctx context.Context, r *iamv1pb.Identity) (*iamv1pb.Identity, error) {
	uid, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	i, err := s.iam.UpdateIdentity(ctx, uid, func(i *resource.Identity) error { return readIdentityV1(r, i) })
	if err != nil {
		return nil, err
	}
	warn(ctx, i.Warnings())
	return identityV1(i), nil
}

// List is of iamv1pb.IdentitiesServer.
func (s identitiesV1) List(ctx context.Context, r *iamv1pb.IdentityFilter) (*iamv1pb.IdentityList, error) {
	f := resource.Filter{Place: placeV1(r.GetUidp(), r.GetId())}
	all, err := everything(func(p page.Params) (page.Page[resource.Identity], error) { return s.iam.ListIdentities(ctx, f, p) })
	if err != nil {
		return nil, err
	}
	return &iamv1pb.IdentityList{Items: convert(all, identityV1)}, nil
}

// Lookup is of iamv1pb.IdentitiesServer. Somebody who has not signed in yet has
// nothing but an id; so has, for who may not read it, somebody who has.
func (s identitiesV1) Lookup(ctx context.Context, r *iamv1pb.LookupRequest) (*iamv1pb.Identity, error) {
	uid, err := s.iam.LookupIdentity(ctx, r.GetIssuer(), r.GetSubject(), "")
	if err != nil {
		return nil, err
	}
	i, err := s.iam.GetIdentity(ctx, uid)
	if errors.Is(err, fault.NotFound) || errors.Is(err, fault.PermissionDenied) {
		return &iamv1pb.Identity{Id: string(uid)}, nil
	}
	if err != nil {
		return nil, err
	}
	return identityV1(i), nil
}

// Delete is of iamv1pb.IdentitiesServer.
func (s identitiesV1) Delete(ctx context.Context, r *iamv1pb.DeleteIdentityRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "id", r.GetId(), s.iam.DeleteIdentity)
}
