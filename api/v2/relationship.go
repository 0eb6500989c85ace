package v2

import (
	"github.com/holdfast-dev/holdfast/api/wire"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/resource"
)

// writeRelationship copies r to p.
func writeRelationship(r resource.Relationship, p *iampb.Identity) {
	switch r.Type() {
	case resource.RelationshipClaimMatch:
		p.Relationship = &iampb.Identity_ClaimMatch_{ClaimMatch: claimMatchOf(*r.ClaimMatch)}
	case resource.RelationshipStaticKeys:
		k := r.StaticKeys
		p.Relationship = &iampb.Identity_StaticKeys_{StaticKeys: &iampb.Identity_StaticKeys{
			Issuer: k.Issuer, Subject: k.Subject, IssuerKeys: k.IssuerKeys,
			ExpirationTime: wire.Time(k.ExpirationTime), Audiences: k.Audiences,
		}}
	case resource.RelationshipAWS:
		p.Relationship = &iampb.Identity_AwsIdentity{AwsIdentity: awsIdentityOf(*r.AWS)}
	case resource.RelationshipServicePrincipal:
		p.Relationship = &iampb.Identity_ServicePrincipal{ServicePrincipal: iampb.ServicePrincipal(r.ServicePrincipal)}
	}
}

func claimMatchOf(c resource.ClaimMatch) *iampb.Identity_ClaimMatch {
	p := &iampb.Identity_ClaimMatch{Claims: c.Claims, ClaimPatterns: c.ClaimPatterns}
	switch {
	case c.Issuer != "":
		p.Iss = &iampb.Identity_ClaimMatch_Issuer{Issuer: c.Issuer}
	case c.IssuerPattern != "":
		p.Iss = &iampb.Identity_ClaimMatch_IssuerPattern{IssuerPattern: c.IssuerPattern}
	}
	switch {
	case c.Subject != "":
		p.Sub = &iampb.Identity_ClaimMatch_Subject{Subject: c.Subject}
	case c.SubjectPattern != "":
		p.Sub = &iampb.Identity_ClaimMatch_SubjectPattern{SubjectPattern: c.SubjectPattern}
	}
	switch {
	case c.Audience != "":
		p.Aud = &iampb.Identity_ClaimMatch_Audience{Audience: c.Audience}
	case c.AudiencePattern != "":
		p.Aud = &iampb.Identity_ClaimMatch_AudiencePattern{AudiencePattern: c.AudiencePattern}
	}
	return p
}

func awsIdentityOf(a resource.AWSIdentity) *iampb.Identity_AWSIdentity {
	p := &iampb.Identity_AWSIdentity{AwsAccount: a.Account}
	switch {
	case a.ARN != "":
		p.AwsArn = &iampb.Identity_AWSIdentity_Arn{Arn: a.ARN}
	case a.ARNPattern != "":
		p.AwsArn = &iampb.Identity_AWSIdentity_ArnPattern{ArnPattern: a.ARNPattern}
	}
	switch {
	case a.UserID != "":
		p.AwsUserId = &iampb.Identity_AWSIdentity_UserId{UserId: a.UserID}
	case a.UserIDPattern != "":
		p.AwsUserId = &iampb.Identity_AWSIdentity_UserIdPattern{UserIdPattern: a.UserIDPattern}
	}
	return p
}

// readRelationship returns the relationship of p. It is empty if p has none.
func readRelationship(p *iampb.Identity) (r resource.Relationship, err error) {
	switch {
	case p.GetClaimMatch() != nil:
		c := p.GetClaimMatch()
		r.ClaimMatch = &resource.ClaimMatch{
			Issuer: c.GetIssuer(), IssuerPattern: c.GetIssuerPattern(),
			Subject: c.GetSubject(), SubjectPattern: c.GetSubjectPattern(),
			Audience: c.GetAudience(), AudiencePattern: c.GetAudiencePattern(),
			Claims: c.GetClaims(), ClaimPatterns: c.GetClaimPatterns(),
		}
	case p.GetStaticKeys() != nil:
		k := p.GetStaticKeys()
		r.StaticKeys = &resource.StaticKeys{Issuer: k.GetIssuer(), Subject: k.GetSubject(), IssuerKeys: k.GetIssuerKeys(), Audiences: k.GetAudiences()}
		r.StaticKeys.ExpirationTime, err = wire.ReadTime("static_keys.expiration_time", k.GetExpirationTime())
	case p.GetAwsIdentity() != nil:
		a := p.GetAwsIdentity()
		r.AWS = &resource.AWSIdentity{
			Account: a.GetAwsAccount(), ARN: a.GetArn(), ARNPattern: a.GetArnPattern(), UserID: a.GetUserId(), UserIDPattern: a.GetUserIdPattern(),
		}
	default:
		r.ServicePrincipal = int32(p.GetServicePrincipal())
	}
	return r, err
}
