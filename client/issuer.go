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
	Audience string // what tokens are for unless a request says otherwise

	line    *line
	conn    grpc.ClientConnInterface
	timeout time.Duration
}

// Exchange gets tokens for one of another issuer, or for one of this issuer's
// own: for another audience, or narrower.
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
	answer, err := oidcpb.NewSecurityTokenServiceClient(i.conn).Exchange(ctx, req, i.line.carrying(token)...)
	if err != nil {
		return Tokens{}, err
	}
	if !IsToken(answer.GetToken()) {
		return Tokens{}, fmt.Errorf("the answer of %s has no token", i.Address)
	}
	return Tokens{answer.GetToken(), answer.GetRefreshToken()}, nil
}

// errNoToken is for what could not be sent, and must not be shown.
var errNoToken = errors.New("what is to be exchanged is not a token")

// Refresh gets the next tokens for a refresh token, which is used up by that.
func (i *Issuer) Refresh(ctx context.Context, token string) (Tokens, error) {
	if !IsToken(token) {
		return Tokens{}, errNoToken
	}
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	req := &oidcpb.ExchangeRefreshTokenRequest{Aud: []string{i.Audience}}
	answer, err := oidcpb.NewSecurityTokenServiceClient(i.conn).ExchangeRefreshToken(ctx, req, i.line.carrying(token)...)
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
