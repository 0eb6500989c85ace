package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
)

// An Issuer gives tokens for other credentials.
type Issuer struct {
	Address  string
	Audience string // of tokens, unless a request names another

	endpoint *endpoint
	conn     grpc.ClientConnInterface
	timeout  time.Duration
}

// Exchange exchanges a token of another issuer, or one of this issuer's own for
// another audience or with fewer capabilities.
func (i *Issuer) Exchange(ctx context.Context, token string, req *oidcpb.ExchangeRequest) (Tokens, error) {
	if !IsToken(token) {
		return Tokens{}, errNoToken
	}
	if len(req.GetAud()) == 0 {
		req = proto.CloneOf(req)
		req.Aud = []string{i.Audience}
	}
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	answer, err := oidcpb.NewSecurityTokenServiceClient(i.conn).Exchange(ctx, req, i.endpoint.withToken(token)...)
	if err != nil {
		return Tokens{}, err
	}
	if !IsToken(answer.GetToken()) {
		return Tokens{}, fmt.Errorf("the answer of %s has no token", i.Address)
	}
	return Tokens{answer.GetToken(), answer.GetRefreshToken()}, nil
}

// errNoToken does not quote the text, which may be a secret.
var errNoToken = errors.New("what is to be exchanged is not a token")

// Refresh exchanges a refresh token, which works once, for the next tokens.
func (i *Issuer) Refresh(ctx context.Context, token string) (Tokens, error) {
	if !IsToken(token) {
		return Tokens{}, errNoToken
	}
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	req := &oidcpb.ExchangeRefreshTokenRequest{Aud: []string{i.Audience}}
	answer, err := oidcpb.NewSecurityTokenServiceClient(i.conn).ExchangeRefreshToken(ctx, req,
		i.endpoint.withToken(token)...)
	if err != nil {
		return Tokens{}, err
	}
	next := Tokens{answer.GetToken().GetToken(), answer.GetRefreshToken().GetToken()}
	if !IsToken(next.Access) || !IsToken(next.Refresh) {
		return Tokens{}, fmt.Errorf("the answer of %s has no tokens", i.Address)
	}
	return next, nil
}

// prove gets what proves an identity to the issuer.
func (i *Issuer) prove(ctx context.Context, proof Proof, identity string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	return proof(ctx, i.Address, identity)
}
