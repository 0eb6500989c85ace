package login

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// withPerson returns a context in which changes are attributed to the person who signs in with arrival.
func (s *Service) withPerson(ctx context.Context, arrival resource.SignIn) (context.Context, error) {
	uid, err := s.personUID(ctx, arrival)
	a := resource.ActorFrom(ctx)
	a.Subject, a.Act = uid, &resource.Upstream{Issuer: arrival.Issuer, Subject: arrival.Subject}
	return resource.WithActor(ctx, a), err
}

// personUID returns the UID of the person who signs in with arrival. The person may not be registered yet.
func (s *Service) personUID(ctx context.Context, arrival resource.SignIn) (resource.UID, error) {
	if arrival.Identity != "" {
		return arrival.Identity, nil
	}
	return s.store.PersonUID(ctx, arrival.Realm, arrival.Subject)
}

// homeGroup returns the group whose provider or account was used for a sign-in.
func homeGroup(arrival resource.SignIn) resource.UID {
	if arrival.Voucher != "" {
		return arrival.Voucher.Provider().Parent()
	}
	return arrival.Organization
}

// arrivalOfSession returns the sign-in data of the person who has a session. It returns fault.PermissionDenied if the
// session does not belong to a person.
func (s *Service) arrivalOfSession(ctx context.Context, n resource.Session) (resource.SignIn, error) {
	if n.Act == nil || !n.Identity.IsRoot() {
		return resource.SignIn{}, fault.New(fault.PermissionDenied,
			"Permission denied: this session does not belong to a person who signed in")
	}
	if n.Voucher == "" {
		a, err := s.accounts.AccountOf(ctx, n.Identity)
		if err == nil {
			return s.arrivalOfAccount(ctx, a)
		}
		if !errors.Is(err, fault.NotFound) {
			return resource.SignIn{}, err
		}
	}
	i, err := s.store.Identity(ctx, n.Identity)
	if err != nil {
		return resource.SignIn{}, err
	}
	arrival := resource.SignIn{
		Issuer: n.Act.Issuer, Subject: n.Act.Subject, Realm: i.Realm, Identity: i.UID, Voucher: n.Voucher,
		Email: i.Email, EmailVerified: i.Email != "",
	}
	if n.Voucher != "" {
		idp, err := s.store.Provider(ctx, n.Voucher.Provider())
		if err != nil {
			return resource.SignIn{}, err
		}
		arrival.Trusted = idp.Trusted
	}
	return arrival, nil
}

// arrivalOfAccount returns the sign-in data of the person who has an account.
func (s *Service) arrivalOfAccount(ctx context.Context, a resource.Account) (resource.SignIn, error) {
	i, err := s.store.Identity(ctx, a.Identity)
	c := i.Relationship
	return resource.SignIn{
		Issuer: c.Issuer(), Subject: c.Subject(), Realm: i.Realm,
		Name: a.Name, Email: a.Email, Organization: a.UID.Root(),
	}, err
}
