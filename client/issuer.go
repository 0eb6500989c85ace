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

// An Issuer exchanges credentials for tokens.
type Issuer struct {
	Address  string
	Audience string // audience of the tokens, unless the request names another

	endpoint *endpoint
	conn     grpc.ClientConnInterface
	timeout  time.Duration
}

// Exchange exchanges a token from another issuer. It also exchanges a token from this
// issuer, for a token with another audience or fewer capabilities.
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
var errNoToken = errors.New("the credential to exchange is not a token")

// Refresh exchanges a refresh token for the next pair of tokens. A refresh token works
// once.
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

// prove calls proof for the identity, with the timeout of the issuer.
func (i *Issuer) prove(ctx context.Context, proof Proof, identity string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	return proof(ctx, i.Address, identity)
}
