package accessapi

import (
	"context"

	pb "github.com/holdfast-dev/holdfast/gen/oidc"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

// Exchange exchanges the bearer token of the call for a token of this service. So the
// call itself needs no token of this service.
func (s *server) Exchange(ctx context.Context, r *pb.ExchangeRequest) (*pb.RawToken, error) {
	bearer, err := s.cfg.Bearer(ctx)
	if err != nil {
		return nil, err
	}
	t, err := s.STS.Exchange(ctx, sts.Request{
		TokenParams: sts.TokenParams{Audience: r.GetAud(), Caps: r.GetCap(), Scopes: scopes(r)},
		Bearer:      bearer, Identity: r.GetIdentity(), Provider: r.GetIdentityProvider(),
	})
	return rawToken(t), err
}

func (s *server) ExchangeRefreshToken(ctx context.Context, r *pb.ExchangeRefreshTokenRequest) (*pb.TokenPair, error) {
	bearer, err := s.cfg.Bearer(ctx)
	if err != nil {
		return nil, err
	}
	access, refresh, err := s.STS.Refresh(ctx, bearer,
		sts.TokenParams{Audience: r.GetAud(), Caps: r.GetCap(), Scopes: scopes(r)})
	return &pb.TokenPair{Token: rawToken(access), RefreshToken: rawToken(refresh)}, err
}

// scopes returns the scopes of a request. Older clients send one scope in a separate
// field.
func scopes(r interface {
	GetScope() string
	GetScopes() []string
}) []string {
	list := r.GetScopes()
	if s := r.GetScope(); s != "" {
		list = append([]string{s}, list...)
	}
	return list
}

func rawToken(t sts.Token) *pb.RawToken {
	return &pb.RawToken{Token: t.Text, Expiry: wire.Time(t.Expiry)}
}
