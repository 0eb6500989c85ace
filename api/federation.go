package api

import (
	"context"

	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/sts"
)

// federation is FederationService over sts.
type federation struct {
	federationpb.UnsafeFederationServiceServer
	sts *sts.Service
}

// ExplainToken is of federationpb.FederationServiceServer.
func (f federation) ExplainToken(ctx context.Context, r *federationpb.ExplainTokenRequest) (*federationpb.ExplainTokenResponse, error) {
	var uid resource.UID
	if r.GetIdentityUid() != "" {
		var err error
		if uid, err = resource.ParseUID("identity_uid", r.GetIdentityUid()); err != nil {
			return nil, err
		}
	}
	found, complete, err := f.sts.Explain(ctx, uid, r.GetToken())
	if err != nil {
		return nil, err
	}
	out := &federationpb.ExplainTokenResponse{Incomplete: !complete}
	for _, e := range found {
		out.Explanations = append(out.Explanations, &federationpb.Explanation{
			IdentityUid: string(e.Identity.UID), IdentityName: e.Identity.Name, Accepted: e.Accepted, Checks: checks(e.Checks),
		})
	}
	return out, nil
}

// ListDenials is of federationpb.FederationServiceServer.
func (f federation) ListDenials(ctx context.Context, r *federationpb.ListDenialsRequest) (*federationpb.ListDenialsResponse, error) {
	uid, err := resource.ParseUID("identity_uid", r.GetIdentityUid())
	if err != nil {
		return nil, err
	}
	found, err := f.sts.Denials(ctx, uid)
	if err != nil {
		return nil, err
	}
	out := &federationpb.ListDenialsResponse{}
	for _, d := range found {
		out.Denials = append(out.Denials, &federationpb.Denial{
			Time: timeOf(d.Time), RequestId: d.RequestID, Message: d.Message,
			SignatureVerified: d.Verified, Checks: checks(d.Checks), RemoteAddress: d.Remote,
		})
	}
	return out, nil
}

// ListIssuers is of federationpb.FederationServiceServer.
func (f federation) ListIssuers(ctx context.Context, r *federationpb.ListIssuersRequest) (*federationpb.ListIssuersResponse, error) {
	var below resource.UID
	if r.GetDescendantsOf() != "" {
		var err error
		if below, err = resource.ParseUID("descendants_of", r.GetDescendantsOf()); err != nil {
			return nil, err
		}
	}
	found, complete, err := f.sts.Issuers(ctx, below)
	if err != nil {
		return nil, err
	}
	out := &federationpb.ListIssuersResponse{Incomplete: !complete}
	for _, d := range found {
		out.Issuers = append(out.Issuers, issuer(d))
	}
	return out, nil
}

func issuer(d sts.Dependence) *federationpb.Issuer {
	out := &federationpb.Issuer{
		Issuer: d.Issuer, Reachable: d.Problem == "" && !d.SuccessTime.IsZero(), Problem: d.Problem,
		CheckTime: timeOf(d.CheckTime), SuccessTime: timeOf(d.SuccessTime), IdentityCount: int32(d.Identities),
	}
	for _, k := range d.Keys {
		out.Keys = append(out.Keys, &federationpb.IssuerKey{Id: k.ID, Algorithm: k.Algorithm})
	}
	for _, e := range d.Endangered {
		out.Endangered = append(out.Endangered, &federationpb.Endangered{
			IdentityUid: string(e.Identity.UID), IdentityName: e.Identity.Name, Reason: e.Reason,
		})
	}
	return out
}

func checks(all []resource.Check) []*federationpb.Check {
	var out []*federationpb.Check
	for _, c := range all {
		out = append(out, &federationpb.Check{Claim: c.Claim, Expected: c.Expected, Received: c.Received, Ok: c.OK, Cause: c.Cause})
	}
	return out
}
