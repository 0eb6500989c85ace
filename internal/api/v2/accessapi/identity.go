package accessapi

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// IdentityOf converts an identity to a message.
func IdentityOf(i resource.Identity) *pb.Identity {
	p := &pb.Identity{
		Uid: string(i.UID), Name: i.Name, Description: i.Description, Email: i.Email, EmailUnverified: i.EmailUnverified,
		Company: i.Company, IdentityProvider: string(i.Provider), LastSeenTime: wire.Time(i.LastSeenTime),
		CreateTime: wire.Time(i.CreateTime), UpdateTime: wire.Time(i.UpdateTime),
	}
	p.DisplayName = wire.Optional(i.DisplayName)
	writeRelationship(i.Relationship, p)
	return p
}

// ReadIdentity copies the fields that clients may set from p to i.
func ReadIdentity(p *pb.Identity, i *resource.Identity) (err error) {
	i.Name, i.Description, i.Company = p.GetName(), p.GetDescription(), p.GetCompany()
	i.DisplayName = resource.NormalDisplayName(p.GetDisplayName())
	i.Relationship, err = readRelationship(p)
	return err
}

// warned returns a function like IdentityOf that also sends the warnings about the
// identity.
func warned(ctx context.Context) func(resource.Identity) *pb.Identity {
	return func(i resource.Identity) *pb.Identity {
		wire.Warn(ctx, i.Warnings())
		return IdentityOf(i)
	}
}

func (s *server) CreateIdentity(ctx context.Context, r *pb.CreateIdentityRequest) (*pb.Identity, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetIdentity(), ReadIdentity, s.IAM.CreateIdentity, warned(ctx))
}

func (s *server) GetIdentity(ctx context.Context, r *pb.GetIdentityRequest) (*pb.Identity, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.GetIdentity, IdentityOf)
}

func (s *server) UpdateIdentity(ctx context.Context, r *pb.UpdateIdentityRequest) (*pb.Identity, error) {
	return wire.UpdateTo(ctx, r.GetUpdateMask(), "identity", r.GetIdentity(), ReadIdentity, IdentityOf,
		s.IAM.UpdateIdentity, warned(ctx))
}

func (s *server) DeleteIdentity(ctx context.Context, r *pb.DeleteIdentityRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.IAM.DeleteIdentity)
}

func (s *server) ListIdentities(ctx context.Context, r *pb.ListIdentitiesRequest) (*pb.ListIdentitiesResponse, error) {
	f := resource.Filter{
		UIDs: wire.UIDFilter(r.GetUidp()), Name: r.GetName(),
		Relationship: resource.RelationshipType(r.GetRelationshipType()),
	}
	p, err := wire.List(ctx, r, f, s.IAM.ListIdentities, IdentityOf)
	return &pb.ListIdentitiesResponse{
		Identities: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) LookupIdentity(ctx context.Context, r *pb.LookupIdentityRequest) (*pb.LookupIdentityResponse, error) {
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
	uid, err := s.IAM.LookupIdentity(ctx, r.GetIssuer(), r.GetSubject(), provider)
	return &pb.LookupIdentityResponse{Uid: string(uid)}, err
}

func (s *server) UpdateIdentityMetadata(
	ctx context.Context, r *pb.UpdateIdentityMetadataRequest,
) (*pb.IdentityMetadata, error) {
	if err := wire.Require("identity_metadata", r.GetIdentityMetadata()); err != nil {
		return nil, err
	}
	i, err := s.IAM.UpdateMetadata(ctx, wire.Masked(r.GetUpdateMask(), r.GetIdentityMetadata(), ReadMetadata, MetadataOf))
	return MetadataOf(i), err
}

// writeRelationship copies r to p.
func writeRelationship(r resource.Relationship, p *pb.Identity) {
	switch r.Type() {
	case resource.RelationshipClaimMatch:
		p.Relationship = &pb.Identity_ClaimMatch_{ClaimMatch: claimMatchOf(*r.ClaimMatch)}
	case resource.RelationshipStaticKeys:
		k := r.StaticKeys
		p.Relationship = &pb.Identity_StaticKeys_{StaticKeys: &pb.Identity_StaticKeys{
			Issuer: k.Issuer, Subject: k.Subject, IssuerKeys: k.IssuerKeys,
			ExpirationTime: wire.Time(k.ExpirationTime), Audiences: k.Audiences,
		}}
	case resource.RelationshipAWS:
		p.Relationship = &pb.Identity_AwsIdentity{AwsIdentity: awsIdentityOf(*r.AWS)}
	case resource.RelationshipServicePrincipal:
		p.Relationship = &pb.Identity_ServicePrincipal{ServicePrincipal: pb.ServicePrincipal(r.ServicePrincipal)}
	}
}

func claimMatchOf(c resource.ClaimMatch) *pb.Identity_ClaimMatch {
	p := &pb.Identity_ClaimMatch{Claims: c.Claims, ClaimPatterns: c.ClaimPatterns}
	switch {
	case c.Issuer != "":
		p.Iss = &pb.Identity_ClaimMatch_Issuer{Issuer: c.Issuer}
	case c.IssuerPattern != "":
		p.Iss = &pb.Identity_ClaimMatch_IssuerPattern{IssuerPattern: c.IssuerPattern}
	}
	switch {
	case c.Subject != "":
		p.Sub = &pb.Identity_ClaimMatch_Subject{Subject: c.Subject}
	case c.SubjectPattern != "":
		p.Sub = &pb.Identity_ClaimMatch_SubjectPattern{SubjectPattern: c.SubjectPattern}
	}
	switch {
	case c.Audience != "":
		p.Aud = &pb.Identity_ClaimMatch_Audience{Audience: c.Audience}
	case c.AudiencePattern != "":
		p.Aud = &pb.Identity_ClaimMatch_AudiencePattern{AudiencePattern: c.AudiencePattern}
	}
	return p
}

func awsIdentityOf(a resource.AWSIdentity) *pb.Identity_AWSIdentity {
	p := &pb.Identity_AWSIdentity{AwsAccount: a.Account}
	switch {
	case a.ARN != "":
		p.AwsArn = &pb.Identity_AWSIdentity_Arn{Arn: a.ARN}
	case a.ARNPattern != "":
		p.AwsArn = &pb.Identity_AWSIdentity_ArnPattern{ArnPattern: a.ARNPattern}
	}
	switch {
	case a.UserID != "":
		p.AwsUserId = &pb.Identity_AWSIdentity_UserId{UserId: a.UserID}
	case a.UserIDPattern != "":
		p.AwsUserId = &pb.Identity_AWSIdentity_UserIdPattern{UserIdPattern: a.UserIDPattern}
	}
	return p
}

// readRelationship returns the relationship of p. It is empty if p has none.
func readRelationship(p *pb.Identity) (r resource.Relationship, err error) {
	switch {
	case p.GetClaimMatch() != nil:
		c := p.GetClaimMatch()
		r.ClaimMatch = &resource.ClaimMatch{
			Issuer: c.GetIssuer(), IssuerPattern: c.GetIssuerPattern(), Subject: c.GetSubject(),
			SubjectPattern: c.GetSubjectPattern(), Audience: c.GetAudience(), AudiencePattern: c.GetAudiencePattern(),
			Claims: c.GetClaims(), ClaimPatterns: c.GetClaimPatterns(),
		}
	case p.GetStaticKeys() != nil:
		k := p.GetStaticKeys()
		r.StaticKeys = &resource.StaticKeys{
			Issuer: k.GetIssuer(), Subject: k.GetSubject(), IssuerKeys: k.GetIssuerKeys(), Audiences: k.GetAudiences(),
		}
		r.StaticKeys.ExpirationTime, err = wire.ReadTime("static_keys.expiration_time", k.GetExpirationTime())
	case p.GetAwsIdentity() != nil:
		a := p.GetAwsIdentity()
		r.AWS = &resource.AWSIdentity{
			Account: a.GetAwsAccount(), ARN: a.GetArn(), ARNPattern: a.GetArnPattern(), UserID: a.GetUserId(),
			UserIDPattern: a.GetUserIdPattern(),
		}
	default:
		r.ServicePrincipal = int32(p.GetServicePrincipal())
	}
	return r, err
}

// ofIdentity are the fields of IdentityMetadata that are not stored as metadata.
var ofIdentity = []protoreflect.Name{"uid", "name", "company"}

// metadataFields calls f for each field of IdentityMetadata that is stored as
// metadata, under its name in JSON.
func metadataFields(m *pb.IdentityMetadata, f func(m protoreflect.Message, field protoreflect.FieldDescriptor)) {
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); !slices.Contains(ofIdentity, field.Name()) {
			f(r, field)
		}
	}
}

// MetadataOf converts the metadata that a person has given to a message.
func MetadataOf(i resource.Identity) *pb.IdentityMetadata {
	p := &pb.IdentityMetadata{Uid: string(i.UID), Name: i.Name, Company: i.Company}
	metadataFields(p, func(m protoreflect.Message, field protoreflect.FieldDescriptor) {
		switch v := i.Metadata[field.JSONName()].(type) {
		case string:
			if field.Kind() == protoreflect.StringKind {
				m.Set(field, protoreflect.ValueOfString(v))
			}
		case bool:
			if field.Kind() == protoreflect.BoolKind {
				m.Set(field, protoreflect.ValueOfBool(v))
			}
		}
	})
	return p
}

// ReadMetadata copies p to the metadata of i, except fields that have their default
// value. It keeps other metadata.
func ReadMetadata(p *pb.IdentityMetadata, i *resource.Identity) error {
	metadata := map[string]any{}
	maps.Copy(metadata, i.Metadata)
	metadataFields(p, func(m protoreflect.Message, field protoreflect.FieldDescriptor) {
		delete(metadata, field.JSONName())
		if m.Has(field) {
			metadata[field.JSONName()] = m.Get(field).Interface()
		}
	})
	i.Metadata, i.Company = metadata, p.GetCompany()
	return nil
}
