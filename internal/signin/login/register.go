package login

import (
	"context"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Register redeems an invite for the person of a token. The token is one of ours, or another
// issuer has issued it for us. If identity is not "", it must be the identity of the person,
// who must be registered.
func (s *Service) Register(
	ctx context.Context, bearer, code string, identity resource.UID,
) (resource.SignInResult, error) {
	presented, err := readInvite(code)
	if err != nil {
		return resource.SignInResult{}, err
	}
	// This check comes first, because personFromToken may fetch the keys of an issuer.
	i, err := s.people.InviteFor(ctx, presented)
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
		return resource.SignInResult{}, fault.Field("identity_id", "is not the identity of the person of the token")
	}
	arrival.Invite, arrival.Register = &presented, identity == ""
	if ctx, err = s.withPerson(ctx, arrival); err != nil {
		return resource.SignInResult{}, err
	}
	return s.people.SignIn(ctx, arrival)
}

// personFromToken returns the person of a token. The providers of the group and of its parent
// groups can vouch for the person.
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
