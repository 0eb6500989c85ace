package admission

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// InsertAccount adds an account, its identity unless that exists, and bindings. It
// returns fault.NotFound if its group or a role does not exist, and
// fault.AlreadyExists if its organization has an account of that e-mail address.
// Accounts of other organizations do not matter, so that nobody learns of them.
func (s *Store) InsertAccount(
	ctx context.Context, a resource.Account, i resource.Identity, with ...resource.RoleBinding,
) error {
	return s.InsertAccountAnd(ctx, a, i, nil, with...)
}

// InsertAccountAnd is InsertAccount with more in the same transaction.
func (s *Store) InsertAccountAnd(
	ctx context.Context, a resource.Account, i resource.Identity, also []func(*store.Tx) error,
	with ...resource.RoleBinding,
) error {
	return s.write(ctx, func(t tx) error {
		if err := t.insertAccount(ctx, a, i, with); err != nil {
			return err
		}
		return t.Do(also...)
	})
}

// CreateOrganization adds an organization with the account of its first owner, all
// or nothing: there is no moment at which nobody can get in. Its errors are those
// of InsertGroup and InsertAccount.
func (s *Store) CreateOrganization(
	ctx context.Context, g resource.Group, a resource.Account, i resource.Identity, with ...resource.RoleBinding,
) error {
	return s.write(ctx, func(t tx) error {
		if err := t.iam.InsertGroup(ctx, &g); err != nil {
			return err
		}
		return t.insertAccount(ctx, a, i, with)
	})
}

func (t tx) insertAccount(
	ctx context.Context, a resource.Account, i resource.Identity, with []resource.RoleBinding,
) error {
	if err := t.signin.InsertAccount(ctx, a); err != nil {
		return err
	}
	known, err := t.iam.HasIdentity(ctx, i.UID)
	if err == nil && !known {
		err = t.iam.InsertIdentity(ctx, i)
	}
	if err != nil {
		return err
	}
	if err := t.iam.AddMember(ctx, a.UID.Root(), a.Identity); err != nil {
		return err
	}
	for _, b := range with {
		if err := t.iam.Grant(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// FollowLink applies change to the account whose one-time link has that digest,
// takes the link out of use, and ends the account's sessions. It returns
// fault.NotFound for a link that is not good, or no longer.
func (s *Store) FollowLink(
	ctx context.Context, digest []byte, change func(*resource.Account) error,
) (a resource.Account, _ error) {
	err := s.write(ctx, func(t tx) (err error) {
		if a, err = t.signin.FollowLink(ctx, digest, change); err != nil {
			return err
		}
		_, err = t.iam.EndSessions(ctx, a.Identity, "", resource.EndPasswordReset)
		return err
	})
	return a, err
}

// DeleteAccount removes an account with its identity, under the rules of
// DeleteIdentity. It returns fault.NotFound if there is no such account.
func (s *Store) DeleteAccount(ctx context.Context, uid resource.UID) error {
	return s.removeIdentity(ctx, func(t tx) (ownerless []resource.UID, _ error) {
		a, err := t.signin.LockAccount(ctx, uid)
		if err != nil {
			return nil, err
		}
		if ownerless, err = t.deleteIdentity(ctx, a.Identity, uid.Root()); errors.Is(err, fault.NotFound) {
			err = t.signin.DeleteAccountOf(ctx, a.Identity)
		}
		return ownerless, err
	})
}

// DeleteIdentity removes an identity with its bindings, sessions and account,
// and makes its tokens void. It returns fault.NotFound if there is no such
// identity, and fault.FailedPrecondition if its own organization would lose its
// last owner. Other organizations cannot keep a workload: one that loses its last
// owner in this way is logged. A person who deletes themselves leaves no
// organization without an owner.
func (s *Store) DeleteIdentity(ctx context.Context, uid resource.UID) error {
	home := uid.Root()
	if uid.IsRoot() {
		home = ""
	}
	return s.removeIdentity(ctx, func(t tx) ([]resource.UID, error) { return t.deleteIdentity(ctx, uid, home) })
}

func (t tx) deleteIdentity(ctx context.Context, uid, home resource.UID) (ownerless []resource.UID, _ error) {
	ownerless, err := t.iam.DeleteIdentity(ctx, uid, home)
	if err != nil {
		return nil, err
	}
	return ownerless, t.signin.DeleteAccountOf(ctx, uid)
}

// removeIdentity runs a deletion and logs the organizations that have no owner
// after it.
func (s *Store) removeIdentity(ctx context.Context, remove func(tx) ([]resource.UID, error)) error {
	var ownerless []resource.UID
	err := s.write(ctx, func(t tx) (err error) {
		ownerless, err = remove(t)
		return err
	})
	if err == nil && len(ownerless) > 0 && !resource.IsDryRun(ctx) {
		s.Log.WarnContext(ctx, "an identity of another organization was deleted, and with it the last owner",
			"organizations", ownerless)
	}
	return err
}

// SetSignInRules stores the sign-in rules of an organization. It returns
// fault.NotFound if there is no such organization, and fault.FailedPrecondition if
// accounts are switched off while no owner has signed in with a provider, because
// then nobody could undo it.
func (s *Store) SetSignInRules(ctx context.Context, r resource.SignInRules) error {
	return s.write(ctx, func(t tx) error {
		if err := t.signin.SetSignInRules(ctx, r); err != nil || !r.LocalOff {
			return err
		}
		n, err := t.iam.OwnersThrough(ctx, r.Organization)
		if err == nil && n == 0 {
			err = fault.Unmet("NO_OWNER_WITH_PROVIDER",
				"no owner of the organization has signed in with one of its providers yet")
		}
		return err
	})
}

// LocalAllowed reports whether an account may sign in. If its organization has
// switched accounts off, an owner still may as long as no owner can sign in with a
// provider.
func (s *Store) LocalAllowed(ctx context.Context, a resource.Account) (bool, error) {
	org := a.UID.Root()
	rules, err := s.signin.SignInRules(ctx, org)
	if err != nil || !rules.LocalOff {
		return err == nil, err
	}
	if owns, err := s.iam.Owns(ctx, org, a.Identity); err != nil || !owns {
		return false, err
	}
	others, err := s.iam.OwnersThrough(ctx, org)
	return others == 0, err
}

// HomesOf returns the groups that are responsible for an identity: the one it is
// in, the one its account is in, and those whose providers it has signed in with.
func (s *Store) HomesOf(ctx context.Context, identity resource.UID) ([]resource.UID, error) {
	if !identity.IsRoot() {
		return []resource.UID{identity.Parent()}, nil
	}
	all, err := s.iam.ArrivedThrough(ctx, identity)
	if err != nil {
		return nil, err
	}
	a, err := s.signin.AccountOf(ctx, identity)
	if errors.Is(err, fault.NotFound) {
		return all, nil
	}
	return append(all, a.UID.Parent()), err
}

// AccountsOfOwners returns the accounts of the owners of an organization, by
// their e-mail addresses. Owners who sign in with a provider have none.
func (s *Store) AccountsOfOwners(ctx context.Context, org resource.UID) (all []resource.Account, _ error) {
	owners, err := s.iam.OwnersOf(ctx, org)
	if err != nil {
		return nil, err
	}
	for _, identity := range owners {
		a, err := s.signin.AccountOf(ctx, identity)
		if errors.Is(err, fault.NotFound) || err == nil && a.UID.Root() != org {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b resource.Account) int { return strings.Compare(a.Email, b.Email) })
	return all, nil
}

// A Loss is what was lost with the encryption key.
type Loss struct {
	SigningKeys   int
	Providers     []resource.IdentityProvider // without their client secrets now
	Upstreams     []registry.Upstream         // without their credentials now
	Accounts      []resource.Account          // without their authenticator apps and passwords now
	RecoveryCodes int
}

// IsZero reports whether nothing was lost.
func (l Loss) IsZero() bool {
	return l.SigningKeys == 0 && len(l.Providers) == 0 && len(l.Upstreams) == 0 && len(l.Accounts) == 0
}

// ForgetSealed removes every secret that opens reports false for, all or
// nothing, so that the installation can start with another key. If all of them
// can be opened, it removes nothing. purpose is what the secret is sealed for.
func (s *Store) ForgetSealed(
	ctx context.Context, opens func(purpose string, sealed []byte) bool,
) (lost Loss, _ error) {
	err := s.write(ctx, func(t tx) (err error) {
		lost = Loss{}
		by := func(purpose string) func([]byte) bool {
			return func(sealed []byte) bool { return opens(purpose, sealed) }
		}
		lost.SigningKeys, lost.Providers, err = t.iam.ForgetSealed(
			ctx, by(secret.ForSigningKeys), by(secret.ForClientSecrets))
		if err != nil {
			return err
		}
		lost.Upstreams, err = sourcedb.In(t.Tx).ForgetUpstreamSecrets(ctx, by(secret.ForUpstreams))
		if err != nil {
			return err
		}
		lost.Accounts, lost.RecoveryCodes, err = t.signin.ForgetSealed(ctx, by(secret.ForOneTimePasswords), !lost.IsZero())
		return err
	})
	return lost, err
}
