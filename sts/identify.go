package sts

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/resource"
)

// A Person is who a token is about.
type Person struct {
	Identity        resource.UID // if the token is ours
	Issuer, Subject string       // of the credential behind it
	Name            string
	Email           string
	EmailVerified   bool
}

// Identify returns who is behind a token, known here or not. The token is one of
// ours, or of an issuer that was asked for it for us: for our address, or for a
// client that we are. It returns fault.Unauthenticated for any other, and
// fault.Unavailable if the issuer cannot be asked.
func (s *Service) Identify(ctx context.Context, bearer string, clients map[string][]string) (p Person, _ error) {
	if bearer == "" {
		return p, refused("", "a bearer token is required")
	}
	tok, err := parse(bearer)
	if err != nil {
		return p, err
	}
	if tok.Issuer == s.issuer.Address() {
		return s.identifyOwn(ctx, bearer)
	}
	c := credential(tok)
	audiences := append(slices.Clone(s.audiences), clients[c.Issuer]...)
	match := resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: c.Issuer, Subject: c.Subject}}
	who := newParty(resource.Identity{Relationship: match}, audiences)
	if len(clients[c.Issuer]) > 0 {
		who.asker = personAsker(c.Issuer)
	}
	if _, err := s.accept(ctx, who, bearer); err != nil {
		if f := fault.From(err); f.Code == fault.PermissionDenied {
			return p, refused(f.Metadata["claim"], "the token was not made for this service")
		}
		return p, err
	}
	p.Issuer, p.Subject = c.Issuer, c.Subject
	p.Name, _ = tok.Claim("name")
	p.Email, _ = tok.Claim("email")
	verified, _ := tok.Claim("email_verified")
	p.EmailVerified = verified == "true"
	return p, nil
}

func (s *Service) identifyOwn(ctx context.Context, bearer string) (p Person, _ error) {
	if err := s.authz.Confirm(ctx); err != nil {
		return p, err
	}
	c, err := s.own(ctx, bearer)
	if err != nil {
		return p, err
	}
	p.Identity, p.Email, p.EmailVerified = c.Identity, c.Email, c.EmailVerified
	if c.Act != nil {
		p.Issuer, p.Subject = c.Act.Issuer, c.Act.Subject
	}
	if !c.EmailVerified {
		p.Email = ""
	}
	return p, nil
}
