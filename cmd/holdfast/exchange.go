package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"

	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
)

// exchange gets a token for one of another issuer, or for one of the issuer's
// own. Its answer has a token.
func (a *app) exchange(ctx context.Context, issuer, bearer string, req *oidcpb.ExchangeRequest) (*oidcpb.RawToken, error) {
	m, err := a.callIssuer(ctx, issuer, bearer, exchangeMethod("Exchange"), req)
	if err != nil {
		return nil, refusedExchange(err, req.GetIdentity())
	}
	answer, ok := m.Interface().(*oidcpb.RawToken)
	if !ok || !isToken(answer.GetToken()) {
		return nil, fmt.Errorf("the answer of %s has no token", issuer)
	}
	return answer, nil
}

// refresh gets the next tokens for a refresh token, which is used up by that.
func (a *app) refresh(ctx context.Context, issuer, token, audience string) (tokens, error) {
	m, err := a.callIssuer(ctx, issuer, token, exchangeMethod("ExchangeRefreshToken"), &oidcpb.ExchangeRefreshTokenRequest{Aud: []string{audience}})
	if p, ok := errors.AsType[*problem](err); ok && p.code == exitUnauthenticated {
		p.hints = []string{signInHint}
	}
	if err != nil {
		return tokens{}, err
	}
	answer, ok := m.Interface().(*oidcpb.TokenPair)
	next := tokens{answer.GetToken().GetToken(), answer.GetRefreshToken().GetToken()}
	if !ok || !isToken(next.Access) || !isToken(next.Refresh) {
		return tokens{}, fmt.Errorf("the answer of %s has no tokens", issuer)
	}
	return next, nil
}

func (a *app) callIssuer(ctx context.Context, issuer, bearer string, method protoreflect.MethodDescriptor, req protoreflect.ProtoMessage) (protoreflect.Message, error) {
	c, err := a.dial(settingValue{issuer, "issuer"})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.token = bearer
	a.warnInTheOpen(issuer)
	flags := map[string]string{"identity": "--identity", "aud": "--audience"}
	return c.call(ctx, method, req, flags)
}

// exchangeMethod is a method of the token service.
func exchangeMethod(name protoreflect.Name) protoreflect.MethodDescriptor {
	return serviceOf(oidcpb.File_holdfast_oidc_oidc_proto).Methods().ByName(name)
}

// refusedExchange tells who can see why a workload's token was refused. What to
// do about a token of one's own, which is the usual hint, is of no use here.
func refusedExchange(err error, identity string) error {
	p, ok := errors.AsType[*problem](err)
	if !ok || (p.code != exitDenied && p.code != exitUnauthenticated) {
		return err
	}
	p.hints = nil
	if identity != "" && p.code == exitDenied {
		p.hints = []string{"whoever may read the identity sees why: holdfast iam identities denials " + identity}
	}
	if identity != "" {
		p.hints = append(p.hints, "with the workload's token at hand: holdfast iam identities explain "+identity+" --token-file FILE")
	}
	return p
}
