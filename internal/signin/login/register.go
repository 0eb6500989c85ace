package login

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Register redeems an invite for the person that a token is about. The token
// is our own, or was issued for us by another issuer. If identity is not "",
// it must be that person.
func (s *Service) Register(
	ctx context.Context, bearer, code string, identity resource.UID,
) (resource.SignInResult, error) {
	presented, err := readInvite(code)
	if err != nil {
		return resource.SignInResult{}, err
	}
	i, err := s.people.InviteFor(ctx, presented) // before the keys of any issuer are fetched
	if err != nil {
		return resource.SignInResult{}, err
	}
	arrival, err := s.personFromToken(ctx, bearer, i.UID.Parent())
	if err != nil {
		return resource.SignInResult{}, err
	}
	uid, err := s.personUID(ctx, arrival)
	if err != nil {
		return resource.SignInResult{}, err
	}
	if identity != "" && identity != uid {
		return resource.SignInResult{}, fault.Field("identity_id", "is not the identity of the token's person")
	}
	arrival.Invite, arrival.Register = &presented, identity == ""
	if ctx, err = s.withPerson(ctx, arrival); err != nil {
		return resource.SignInResult{}, err
	}
	return s.people.SignIn(ctx, arrival)
}

// personFromToken returns the person that a token is about. The providers of a
// group and of those above it can vouch for them.
func (s *Service) personFromToken(ctx context.Context, bearer string, group resource.UID) (resource.SignIn, error) {
	providers, err := s.store.ProvidersFor(ctx, group)
	if err != nil {
		return resource.SignIn{}, err
	}
	arrival, err := s.sts.Identify(ctx, bearer, providers)
	if err != nil || arrival.Identity == "" {
		return arrival, err
	}
	return s.arrivalOfSession(ctx, resource.Session{
		Identity: arrival.Identity, Voucher: arrival.Voucher,
		Act: &resource.Upstream{Issuer: arrival.Issuer, Subject: arrival.Subject},
	})
}
