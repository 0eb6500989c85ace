package api

import (
	"context"

	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
	"github.com/holdfast-dev/holdfast/sts"
)

// securityTokens is SecurityTokenService over sts. Its callers have no token of
// ours yet: the bearer of the call is the credential.
type securityTokens struct {
	oidcpb.UnsafeSecurityTokenServiceServer
	sts *sts.Service
}

// Exchange is of oidcpb.SecurityTokenServiceServer.
func (s securityTokens) Exchange(ctx context.Context, r *oidcpb.ExchangeRequest) (*oidcpb.RawToken, error) {
	o := originOf(ctx)
	if o.err != nil {
		return nil, o.err
	}
	t, err := s.sts.Exchange(ctx, sts.Request{
		TokenParams:   sts.TokenParams{Audience: r.GetAud(), Caps: r.GetCap(), Scopes: scopes(r)},
		Bearer: o.token, Identity: r.GetIdentity(), Provider: r.GetIdentityProvider(),
	})
	if err != nil {
		return nil, err
	}
	return rawToken(t), nil
}

// ExchangeRefreshToken is of oidcpb.SecurityTokenServiceServer.
func (s securityTokens) ExchangeRefreshToken(ctx context.Context, r *oidcpb.ExchangeRefreshTokenRequest) (*oidcpb.TokenPair, error) {
	o := originOf(ctx)
	if o.err != nil {
		return nil, o.err
	}
	access, refresh, err := s.sts.Refresh(ctx, o.token, sts.TokenParams{Audience: r.GetAud(), Caps: r.GetCap(), Scopes: scopes(r)})
	if err != nil {
		return nil, err
	}
	return &oidcpb.TokenPair{Token: rawToken(access), RefreshToken: rawToken(refresh)}, nil
}

// scopes returns the groups of a request: older clients send the first, or only
// one, in a field of its own.
func scopes(r interface {
	GetScope() string
	GetScopes() []string
}) []string {
	all := r.GetScopes()
	if s := r.GetScope(); s != "" {
		all = append([]string{s}, all...)
	}
	return all
}

func rawToken(t sts.Token) *oidcpb.RawToken {
	return &oidcpb.RawToken{Token: t.Text, Expiry: timeOf(t.Expiry)}
}
