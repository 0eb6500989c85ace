package accounts

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// operator is the address of whoever uses the commands of the server, in the
// audit log.
const operator = "operator"

// A Recovery is the way back in for an owner.
type Recovery struct {
	Account    resource.Account
	Link       OneTimeLink
	Created    bool // the account was made, because no owner had one
	AllowLocal bool // accounts had been switched off, and are on again
}

// RecoverOwner makes a one-time link for an owner of an organization who has an
// account: the one with that e-mail address, or the only one. Following it also
// removes the account's passkeys and authenticator app, which may be what the
// owner has lost. If no owner has an account, one is made for the address. It
// checks no permission: it is for the operator, who has the database.
//
// It returns fault.FailedPrecondition, with the owners there are, if it is not
// clear who is meant.
func (s *Service) RecoverOwner(ctx context.Context, org resource.Group, email string) (r Recovery, err error) {
	ctx = resource.WithActor(ctx, resource.Actor{Remote: operator, RequestID: rand.Text()})
	owners, err := s.people.AccountsOfOwners(ctx, org.UID)
	if err != nil {
		return r, err
	}
	email = resource.NormalEmail(email)
	if r.Account, err = chooseOwner(org, owners, email); err != nil {
		return r, err
	}
	if r.Created = r.Account.UID == ""; r.Created {
		a := resource.Account{Email: email}
		if err := a.Validate(); err != nil {
			return r, err
		}
		if r.Account, r.Link, err = s.AddAccount(ctx, org.UID, a, resource.OwnerRole); err != nil {
			return r, err
		}
	} else {
		_, err = s.accounts.UpdateAccount(ctx, r.Account.UID, func(a *resource.Account) error {
			r.Link = s.newLink(ctx, a, true)
			return nil
		}, resource.LinkCreated)
		if err != nil {
			return r, err
		}
	}
	s.LogActivity(ctx, "a one-time link was made for an owner", resource.Activity{Account: r.Account.UID})
	allowed, err := s.people.LocalAllowed(ctx, r.Account)
	if err == nil && !allowed {
		r.AllowLocal = true
		err = s.people.SetSignInRules(ctx, resource.SignInRules{Organization: org.UID})
	}
	return r, err
}

// chooseOwner returns the account that is meant, or a zero one if it has to be
// made.
func chooseOwner(org resource.Group, owners []resource.Account, email string) (a resource.Account, _ error) {
	var all []string
	for _, o := range owners {
		if o.Email == email || email == "" && len(owners) == 1 {
			return o, nil
		}
		all = append(all, o.Email)
	}
	switch {
	case len(owners) > 0 && email != "":
		return a, fault.Unmet("NOT_AN_OWNER", "%s has no account that owns %s; those that do: %s",
			email, org.Name, strings.Join(all, ", "))
	case len(owners) > 0:
		return a, fault.Unmet("SEVERAL_OWNERS", "%s has several owners; name one with --email: %s",
			org.Name, strings.Join(all, ", "))
	case email == "":
		return a, fault.Unmet("NO_OWNER_ACCOUNT", "no owner of %s has an account here; "+
			"name the e-mail address to make one for with --email", org.Name)
	}
	return a, nil
}

// RenewFirstLink makes another link for the first owner of an organization, if
// nobody has followed the one before. Without such an owner it returns "".
func (s *Service) RenewFirstLink(ctx context.Context, org resource.UID, email string) (link string, _ error) {
	a, err := s.accounts.AccountIn(ctx, org, resource.NormalEmail(email))
	if errors.Is(err, fault.NotFound) || err == nil && (a.Password != "" || len(a.Passkeys) > 0 || !a.UseTime.IsZero()) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	ctx = resource.WithActor(ctx, resource.Actor{Remote: operator, RequestID: rand.Text()})
	var made OneTimeLink
	_, err = s.accounts.UpdateAccount(ctx, a.UID, func(a *resource.Account) error {
		made = s.newLink(ctx, a, false)
		return nil
	}, resource.LinkCreated)
	return made.URL, err
}
