// Package admission admits people. A sign-in, an invite or a new account changes
// the tables of access control and of sign-in. This package changes both in one
// transaction, and defines who is admitted and which roles they get.
package admission

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scimdb"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// A Store admits and removes people in a database. Every exported method is one transaction. It is safe for concurrent
// use.
type Store struct {
	*store.DB
	iam    *iamdb.Store
	signin *signindb.Store
}

// New returns the Store of a database.
func New(db *store.DB) *Store { return &Store{db, iamdb.New(db), signindb.New(db)} }

// A tx is a transaction that changes access control and sign-in.
type tx struct {
	*store.Tx
	iam    iamdb.Tx
	signin signindb.Tx
	scim   scimdb.Tx
}

func (s *Store) write(ctx context.Context, f func(tx) error) error {
	return s.Write(ctx, func(t *store.Tx) error { return f(tx{t, iamdb.In(t), signindb.In(t), scimdb.In(t)}) })
}

// SignIn admits a person who has proved their identity. In one transaction, it
// creates or updates the identity, gives the default role of the provider at the
// first sign-in, adds and removes the roles of the provider's mappings, and uses
// the invite of the sign-in, if there is one.
//
// It returns fault.NotFound if the person is unknown and the sign-in does not
// register people, fault.Aborted if the provider was deleted or changed since it
// vouched for the person, fault.PermissionDenied if the directory of the provider
// has deactivated the person or does not list them although the provider requires
// it, and fault.FailedPrecondition, with the reason, if the invite cannot be used.
func (s *Store) SignIn(ctx context.Context, a resource.SignIn) (l resource.SignInResult, _ error) {
	err := s.write(ctx, func(t tx) error {
		l = resource.SignInResult{}
		if a.Voucher != "" { // locks the directory, which transactions lock before its provider and people
			if err := t.scim.Admits(ctx, a.Voucher.Provider(), a.Subject); err != nil {
				return err
			}
		}
		if err := t.iam.StillVouched(ctx, a.Voucher); err != nil {
			return err
		}
		if err := t.identify(ctx, a, &l); err != nil {
			return err
		}
		if a.Voucher != "" {
			if err := t.joinTeams(ctx, a, l.Identity.UID); err != nil {
				return err
			}
			if err := t.scim.RequireListed(ctx, a.Voucher.Provider(), l.Identity.UID); err != nil {
				return err
			}
		}
		if a.UpdateRoles && a.Voucher != "" {
			if err := t.updateRoles(ctx, a, &l); err != nil {
				return err
			}
		}
		if a.Invite == nil {
			return nil
		}
		i, err := t.lockInvite(ctx, *a.Invite)
		if err != nil {
			return err
		}
		if err := checkAddressee(i, a); err != nil {
			return err
		}
		l.Joined = i.UID.Parent()
		return t.iam.UseInvite(ctx, i, l.Identity.UID)
	})
	return l, err
}

// joinTeams records the identity of a person whom the directory of the provider already knows, also in teams.
func (t tx) joinTeams(ctx context.Context, a resource.SignIn, identity resource.UID) error {
	provider := a.Voucher.Provider()
	user, before, err := t.scim.Joined(ctx, provider, identity, a.Subject)
	if err != nil || user == "" {
		return err
	}
	return t.iam.RelinkMember(ctx, provider, user, "", before, identity)
}

// identify creates the identity of the person who signs in, or updates its e-mail address and display name.
func (t tx) identify(ctx context.Context, a resource.SignIn, l *resource.SignInResult) error {
	currentTime := t.DB.Time()
	verified, unverified := "", a.Email
	if a.EmailVerified {
		verified, unverified = a.Email, ""
	}
	before, err := t.person(ctx, a)
	if errors.Is(err, fault.NotFound) {
		if a.Identity != "" || !a.Register && a.Invite == nil {
			return fault.New(fault.NotFound, "Not found: this person is not registered; "+
				"ask for an invite, or sign in with an identity provider of your organization")
		}
		uid, err := t.iam.NewPersonUID(ctx, a.Realm, a.Subject)
		if err != nil {
			return err
		}
		l.New = true
		l.Identity = resource.Identity{
			UID: uid, Name: resource.PersonName(a.Name, a.Email, a.Subject), DisplayName: resource.PersonDisplayName(a.Name),
			Email: verified, EmailUnverified: unverified, Realm: a.Realm, Provider: a.Voucher.Provider(),
			LastSeenTime: currentTime, CreateTime: currentTime, UpdateTime: currentTime,
			Relationship: resource.Relationship{ClaimMatch: &resource.ClaimMatch{Issuer: a.Issuer, Subject: a.Subject}},
		}
		return t.iam.InsertIdentity(ctx, l.Identity)
	}
	if err != nil {
		return err
	}
	l.Identity = before
	if a.Identity != "" {
		return nil
	}
	if a.Email != "" {
		l.Identity.Email, l.Identity.EmailUnverified = verified, unverified
	}
	l.Identity.DisplayName = cmp.Or(resource.PersonDisplayName(a.Name), before.DisplayName)
	if l.Identity.Email == before.Email && l.Identity.EmailUnverified == before.EmailUnverified &&
		l.Identity.DisplayName == before.DisplayName {
		return nil
	}
	return t.iam.UpdateIdentity(ctx, resource.IdentityUpdated, before, &l.Identity)
}

// person reads and locks the identity of the person who signs in.
func (t tx) person(ctx context.Context, a resource.SignIn) (resource.Identity, error) {
	if a.Identity != "" {
		return t.iam.LockIdentity(ctx, a.Identity)
	}
	return t.iam.LockPerson(ctx, a.Realm, a.Subject)
}

// updateRoles records that a person signed in with a provider, and updates the roles
// that the person has because of the provider.
func (t tx) updateRoles(ctx context.Context, a resource.SignIn, l *resource.SignInResult) error {
	provider := a.Voucher.Provider()
	first, err := t.iam.NoteArrival(ctx, l.Identity.UID, provider)
	if err != nil {
		return err
	}
	if first {
		role, err := t.iam.DefaultRole(ctx, provider)
		if err != nil {
			return err
		}
		if _, err := t.iam.EnsureBinding(ctx, provider.Parent(), l.Identity.UID, role); err != nil {
			return err
		}
	}
	return t.mapGroups(ctx, a, l)
}

// mapGroups adds the roles that mappings give to the external groups of a sign-in, and removes roles that an earlier
// sign-in got from a mapping that no longer applies. It does nothing if the mappings apply to the teams of the
// directory. It keeps roles that an administrator has given, and the role of the last permanent owner of an
// organization.
func (t tx) mapGroups(ctx context.Context, a resource.SignIn, l *resource.SignInResult) error {
	provider := a.Voucher.Provider()
	if teams, err := t.iam.HasDirectoryRoles(ctx, provider); err != nil || teams {
		return err
	}
	mappings, err := t.iam.MappingsOf(ctx, provider)
	if err != nil {
		return err
	}
	mapped, err := t.iam.MappedBindings(ctx, l.Identity.UID, provider)
	if err != nil {
		return err
	}
	type grant struct{ scope, role resource.UID }
	wanted := map[grant]bool{}
	for _, m := range mappings {
		g := grant{m.Scope, m.Role}
		if !slices.Contains(a.Groups, m.ExternalGroup) || wanted[g] {
			continue
		}
		wanted[g] = true
		if err := t.iam.EnsureMapped(ctx, g.scope, l.Identity.UID, g.role, provider); err != nil {
			return err
		}
	}
	for _, b := range mapped {
		if wanted[grant{b.Group(), b.Role}] {
			continue
		}
		err := t.iam.DeleteBinding(ctx, b.UID)
		if errors.Is(err, fault.FailedPrecondition) {
			l.Kept = append(l.Kept, b.UID)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Record emits an event about a person, and changes nothing else.
func (s *Store) Record(
	ctx context.Context, event resource.EventType, subject, group resource.UID, v resource.Activity,
) error {
	return s.write(ctx, func(t tx) error { return t.Emit(ctx, event, subject, group, nil, v) })
}
