package accessapi

import (
	"context"

	pb "github.com/holdfast-dev/holdfast/gen/federation/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

func (s *server) ExplainToken(ctx context.Context, r *pb.ExplainTokenRequest) (*pb.ExplainTokenResponse, error) {
	uid, err := wire.OptionalUID("identity_uid", r.GetIdentityUid())
	if err != nil {
		return nil, err
	}
	found, complete, err := s.STS.Explain(ctx, uid, r.GetToken())
	return &pb.ExplainTokenResponse{
		Incomplete: !complete,
		Explanations: wire.Convert(found, func(e sts.Explanation) *pb.Explanation {
			return &pb.Explanation{
				IdentityUid: string(e.Identity.UID), IdentityName: e.Identity.Name, Accepted: e.Accepted,
				Checks: wire.Convert(e.Checks, checkOf),
			}
		}),
	}, err
}

func (s *server) ListDenials(ctx context.Context, r *pb.ListDenialsRequest) (*pb.ListDenialsResponse, error) {
	return wire.Get(ctx, "identity_uid", r.GetIdentityUid(), s.STS.Denials,
		func(all []resource.Denial) *pb.ListDenialsResponse {
			return &pb.ListDenialsResponse{Denials: wire.Convert(all, denialOf)}
		})
}

func denialOf(d resource.Denial) *pb.Denial {
	return &pb.Denial{
		Time: wire.Time(d.Time), RequestId: d.RequestID, Message: d.Message,
		SignatureVerified: d.Verified, Checks: wire.Convert(d.Checks, checkOf), RemoteAddress: d.Remote,
	}
}

func (s *server) ListExchanges(ctx context.Context, r *pb.ListExchangesRequest) (*pb.ListExchangesResponse, error) {
	return wire.Get(ctx, "identity_uid", r.GetIdentityUid(), s.STS.Exchanges,
		func(all []resource.Exchange) *pb.ListExchangesResponse {
			return &pb.ListExchangesResponse{Exchanges: wire.Convert(all, exchangeOf)}
		})
}

func exchangeOf(e resource.Exchange) *pb.Exchange {
	return &pb.Exchange{
		Time: wire.Time(e.Time), RequestId: e.RequestID, Issuer: e.Issuer, Subject: e.Subject,
		Audience: e.Audience, RemoteAddress: e.Remote, Count: int32(e.Count),
	}
}

func (s *server) ListIssuers(ctx context.Context, r *pb.ListIssuersRequest) (*pb.ListIssuersResponse, error) {
	below, err := wire.OptionalUID("descendants_of", r.GetDescendantsOf())
	if err != nil {
		return nil, err
	}
	found, complete, err := s.STS.Issuers(ctx, below)
	return &pb.ListIssuersResponse{Incomplete: !complete, Issuers: wire.Convert(found, issuerOf)}, err
}

func issuerOf(d sts.Dependence) *pb.Issuer {
	out := &pb.Issuer{
		Issuer: d.Issuer, Reachable: d.Problem == "" && !d.SuccessTime.IsZero(), Problem: d.Problem,
		CheckTime: wire.Time(d.CheckTime), SuccessTime: wire.Time(d.SuccessTime), IdentityCount: int32(d.Identities),
	}
	for _, k := range d.Keys {
		out.Keys = append(out.Keys, &pb.IssuerKey{Id: k.ID, Algorithm: k.Algorithm})
	}
	for _, e := range d.Endangered {
		out.Endangered = append(out.Endangered, &pb.Endangered{
			IdentityUid: string(e.Identity.UID), IdentityName: e.Identity.Name, Reason: e.Reason,
		})
	}
	return out
}

func checkOf(c resource.Check) *pb.Check {
	return &pb.Check{Claim: c.Claim, Expected: c.Expected, Received: c.Received, Ok: c.OK, Cause: c.Cause}
}
