package admission

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/access/sessiondb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/signin/tokendb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// InsertAccount adds an account and the given bindings. It also adds the identity of the account if that does not
// exist. It returns fault.NotFound if the account's group or a role does not exist, and fault.AlreadyExists if the
// account's organization has an account with the same e-mail address. It ignores accounts of other organizations, so
// that nobody learns about them.
func (s *Store) InsertAccount(
	ctx context.Context, a resource.Account, i resource.Identity, bindings ...resource.RoleBinding,
) error {
	return s.InsertAccountAnd(ctx, a, i, nil, bindings...)
}

// InsertAccountAnd does what InsertAccount does, and calls each function in also, in the same transaction.
func (s *Store) InsertAccountAnd(
	ctx context.Context, a resource.Account, i resource.Identity, also []func(*store.Tx) error,
	bindings ...resource.RoleBinding,
) error {
	return s.write(ctx, func(t tx) error {
		if err := t.insertAccount(ctx, a, i, bindings); err != nil {
			return err
		}
		return t.Do(also...)
	})
}

// CreateOrganization adds an organization and the account of its first owner in one
// transaction, so that there is no moment at which nobody can sign in. It returns the
// errors of iamdb.Store.InsertGroup and of InsertAccount.
func (s *Store) CreateOrganization(
	ctx context.Context, g resource.Group, a resource.Account, i resource.Identity, bindings ...resource.RoleBinding,
) error {
	return s.write(ctx, func(t tx) error {
		if err := t.iam.InsertGroup(ctx, &g); err != nil {
			return err
		}
		return t.insertAccount(ctx, a, i, bindings)
	})
}

func (t tx) insertAccount(
	ctx context.Context, a resource.Account, i resource.Identity, bindings []resource.RoleBinding,
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
	for _, b := range bindings {
		if err := t.iam.Grant(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// FollowLink applies change to the account whose one-time link has this digest,
// invalidates the link, and ends the account's sessions. It returns
// fault.NotFound if the link is unknown, used or expired.
func (s *Store) FollowLink(
	ctx context.Context, digest []byte, change func(*resource.Account) error,
) (a resource.Account, _ error) {
	err := s.write(ctx, func(t tx) (err error) {
		if a, err = t.signin.FollowLink(ctx, digest, change); err != nil {
			return err
		}
		_, err = sessiondb.In(t.Tx).EndSessions(ctx, a.Identity, "", resource.EndPasswordReset)
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
// identity. For a workload, it returns fault.FailedPrecondition if the workload's
// own organization would lose its last permanent owner. Other organizations cannot
// prevent the deletion; the log names those that lose their last owner. For a
// person, it returns fault.FailedPrecondition if any organization would lose its
// last permanent owner.
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

// removeIdentity calls remove in a transaction. remove returns the organizations that have no owner afterwards, and
// removeIdentity logs them.
func (s *Store) removeIdentity(ctx context.Context, remove func(tx) ([]resource.UID, error)) error {
	var ownerless []resource.UID
	err := s.write(ctx, func(t tx) (err error) {
		ownerless, err = remove(t)
		return err
	})
	if err == nil && len(ownerless) > 0 && !resource.IsDryRun(ctx) {
		s.Log.WarnContext(ctx, "the deletion of an identity left other organizations without an owner",
			"organizations", ownerless)
	}
	return err
}

// SetSignInRules stores the sign-in rules of an organization. It returns fault.NotFound if there is no such
// organization. It returns fault.FailedPrecondition if the rules disable accounts and no owner has signed in with a
// provider, because then nobody could enable accounts again.
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
// disabled accounts, only an owner may, and only while no owner can sign in with a
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
	withProvider, err := s.iam.OwnersThrough(ctx, org)
	return withProvider == 0, err
}

// HomesOf returns the groups that are responsible for an identity. For a workload, this is its group. For a person,
// these are the group of their account and the groups that have the providers with which the person has signed in.
func (s *Store) HomesOf(ctx context.Context, identity resource.UID) ([]resource.UID, error) {
	if !identity.IsRoot() {
		return []resource.UID{identity.Parent()}, nil
	}
	homes, err := s.iam.ArrivedThrough(ctx, identity)
	if err != nil {
		return nil, err
	}
	a, err := s.signin.AccountOf(ctx, identity)
	if errors.Is(err, fault.NotFound) {
		return homes, nil
	}
	return append(homes, a.UID.Parent()), err
}

// AccountsOfOwners returns the accounts that the owners of an organization have in that organization, sorted by e-mail
// address. Owners who sign in with a provider have no account.
func (s *Store) AccountsOfOwners(ctx context.Context, org resource.UID) (accounts []resource.Account, _ error) {
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
		accounts = append(accounts, a)
	}
	slices.SortFunc(accounts, func(a, b resource.Account) int { return strings.Compare(a.Email, b.Email) })
	return accounts, nil
}

// A Loss lists the secrets that were lost with the encryption key.
type Loss struct {
	SigningKeys   int
	Providers     []resource.IdentityProvider // providers that have lost their client secrets
	Upstreams     []registry.Upstream         // upstreams that have lost their credentials
	Replications  []registry.Replication      // replications that have lost their credentials
	Accounts      []resource.Account          // accounts that have lost their authenticator apps and passwords
	RecoveryCodes int
}

// IsZero reports whether nothing was lost.
func (l Loss) IsZero() bool {
	return l.SigningKeys == 0 && len(l.Providers) == 0 && len(l.Upstreams) == 0 && len(l.Replications) == 0 &&
		len(l.Accounts) == 0
}

// ForgetSealed removes every secret for which opens returns false, in one
// transaction, so that the installation can start with another encryption key.
// purpose is the purpose for which the secret was encrypted.
func (s *Store) ForgetSealed(
	ctx context.Context, opens func(purpose string, sealed []byte) bool,
) (lost Loss, _ error) {
	err := s.write(ctx, func(t tx) (err error) {
		lost = Loss{}
		opensFor := func(purpose string) func([]byte) bool {
			return func(sealed []byte) bool { return opens(purpose, sealed) }
		}
		lost.SigningKeys, err = tokendb.In(t.Tx).ForgetSealed(ctx, opensFor(secret.ForSigningKeys))
		if err != nil {
			return err
		}
		if lost.Providers, err = t.iam.ForgetSealed(ctx, opensFor(secret.ForClientSecrets)); err != nil {
			return err
		}
		lost.Upstreams, err = sourcedb.In(t.Tx).ForgetUpstreamSecrets(ctx, opensFor(secret.ForUpstreams))
		if err != nil {
			return err
		}
		lost.Replications, err = sourcedb.In(t.Tx).ForgetReplicationSecrets(ctx, opensFor(secret.ForUpstreams))
		if err != nil {
			return err
		}
		lost.Accounts, lost.RecoveryCodes, err = t.signin.ForgetSealed(
			ctx, opensFor(secret.ForOneTimePasswords), !lost.IsZero())
		return err
	})
	return lost, err
}
