package sts

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
)

// Identify returns the person that a token is about, whether or not they are
// registered here. It accepts our own tokens, tokens for our address, and tokens
// for our client at one of the providers, which then vouches for the person. It
// returns fault.Unauthenticated for any other token, fault.PermissionDenied for a
// narrowed token, and fault.Unavailable if the keys of the issuer cannot be fetched.
func (s *Service) Identify(
	ctx context.Context, bearer string, providers []resource.IdentityProvider,
) (a resource.SignIn, _ error) {
	if bearer == "" {
		return a, refused("", "a bearer token is required")
	}
	tok, err := parse(bearer)
	if err != nil {
		return a, err
	}
	if tok.Issuer == s.issuer.Address() {
		return s.identifyOwn(ctx, bearer)
	}
	a = resource.SignIn{Issuer: tok.Issuer, Subject: tok.Subject, Realm: tok.Issuer}
	if idp, ok := providerOf(tok, providers); ok {
		a.Realm, a.Voucher, a.Trusted = idp.Realm, idp.Voucher(), idp.Trusted
		a.Subject, err = s.providerSubject(ctx, idp, tok, bearer)
	} else {
		match := resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: tok.Issuer, Subject: tok.Subject}}
		_, err = s.accept(ctx, newPrincipal(resource.Identity{Relationship: match}, s.audiences), bearer)
	}
	if f := fault.From(err); err != nil && f.Code == fault.PermissionDenied {
		return a, refused(f.Metadata["claim"], "the token was not issued for this service")
	}
	if err != nil {
		return a, err
	}
	a.Name, _ = tok.Claim("name")
	a.Email, _ = tok.Claim("email")
	verified, _ := tok.Claim("email_verified")
	a.EmailVerified = verified == "true"
	return a, nil
}

// providerOf returns the provider that issued a token for our client there.
func providerOf(tok *issuers.Token, providers []resource.IdentityProvider) (resource.IdentityProvider, bool) {
	i := slices.IndexFunc(providers, func(p resource.IdentityProvider) bool {
		return p.OIDC.Issuer == tok.Issuer && slices.Contains(tok.Audience, p.OIDC.ClientID)
	})
	if i < 0 {
		return resource.IdentityProvider{}, false
	}
	return providers[i], true
}

func (s *Service) identifyOwn(ctx context.Context, bearer string) (a resource.SignIn, _ error) {
	c, err := s.verifyOwn(ctx, bearer)
	if err != nil {
		return a, err
	}
	if !c.Narrowing().IsZero() {
		return a, fault.New(fault.PermissionDenied,
			"Permission denied: a narrowed token cannot be used to register its person")
	}
	a = resource.SignIn{Identity: c.Identity, Voucher: c.Voucher, Email: c.Email}
	if c.Act != nil {
		a.Issuer, a.Subject = c.Act.Issuer, c.Act.Subject
	}
	return a, nil
}
