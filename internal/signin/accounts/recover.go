package accounts

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// operator is the remote address in the audit log for changes by commands of the
// server.
const operator = "operator"

// A Recovery is the result of RecoverOwner.
type Recovery struct {
	Account    resource.Account
	Link       OneTimeLink
	Created    bool // whether the account is new, because no owner had an account
	AllowLocal bool // whether local accounts were forbidden before and are allowed now
}

// RecoverOwner creates a one-time link for an owner of an organization, so that the
// owner can sign in again. It chooses the account of an owner with that e-mail address,
// or the only account of an owner. If no owner has an account, RecoverOwner creates
// one. Following the link also removes the passkeys and the authenticator app of the
// account, because the owner may have lost them. RecoverOwner checks no permission,
// because it is for the operator, who has the database.
//
// It returns fault.FailedPrecondition, with the e-mail addresses of the owners, if the
// choice is not clear.
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

// chooseOwner returns the account that RecoverOwner chooses, or a zero account if it
// must be created.
func chooseOwner(org resource.Group, owners []resource.Account, email string) (a resource.Account, _ error) {
	var emails []string
	for _, o := range owners {
		if o.Email == email || email == "" && len(owners) == 1 {
			return o, nil
		}
		emails = append(emails, o.Email)
	}
	switch {
	case len(owners) > 0 && email != "":
		return a, fault.Unmet("NOT_AN_OWNER", "%s is not the e-mail address of an account that owns %s; the owners are: %s",
			email, org.Name, strings.Join(emails, ", "))
	case len(owners) > 0:
		return a, fault.Unmet("SEVERAL_OWNERS", "%s has several owners; name one with --email: %s",
			org.Name, strings.Join(emails, ", "))
	case email == "":
		return a, fault.Unmet("NO_OWNER_ACCOUNT", "no owner of %s has an account here; "+
			"to create one, name its e-mail address with --email", org.Name)
	}
	return a, nil
}

// RenewFirstLink replaces the one-time link of the first owner of an organization, if
// nobody has followed it yet. It returns "" if there is no such owner or the link was
// followed.
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
