// Package accounts manages local accounts, their one-time links, the sessions of
// people, and the sign-in rules of organizations. A local account is kept by this
// installation and not by an identity provider.
package accounts

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/admission"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/signin/password"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// Config configures a Service.
type Config struct {
	Issuer string           // our own address, the base of one-time links and the issuer of accounts
	Mail   *mail.Queue      // nil sends no messages
	Log    *slog.Logger     // nil is slog.Default()
	Now    func() time.Time // nil is time.Now
}

// A Service manages accounts. It is safe for concurrent use.
type Service struct {
	store    *iamdb.Store
	accounts *signindb.Store
	people   *admission.Store
	authz    *authz.Checker
	pages    *page.Tokens
	hashes   *password.Hasher
	cfg      Config
	log      *slog.Logger
}

// New returns a service over db.
func New(db *store.DB, checker *authz.Checker, pages *page.Tokens, cfg Config) *Service {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Service{
		store: iamdb.New(db), accounts: signindb.New(db), people: admission.New(db), authz: checker, pages: pages,
		hashes: password.NewHasher(max(1, runtime.GOMAXPROCS(0)/2)), cfg: cfg, log: cfg.Log,
	}
}

// Hasher returns the hasher of passwords. All sign-ins share it, because it limits
// the number of concurrent hashes.
func (s *Service) Hasher() *password.Hasher { return s.hashes }

// now returns the time in the precision of the store.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Millisecond) }

// url returns the public address of one of our paths.
func (s *Service) url(path string) string { return strings.TrimSuffix(s.cfg.Issuer, "/") + path }

// CreateAccount creates an account in an organization, and returns the one-time link
// with which its person sets a password. If role is not "", the person gets this role
// in the organization. The caller needs identity.create on the organization. To give a
// role, the caller also needs role_bindings.create and every capability of the role.
func (s *Service) CreateAccount(
	ctx context.Context, parent resource.UID, a resource.Account, role resource.UID,
) (resource.Account, OneTimeLink, error) {
	if err := s.authz.Require(ctx, resource.IdentityCreate, parent); err != nil {
		return a, OneTimeLink{}, err
	}
	if !parent.IsRoot() {
		return a, OneTimeLink{}, fault.Field("parent", "must be an organization")
	}
	a.Email = resource.NormalEmail(a.Email)
	if err := a.Validate(); err != nil {
		return a, OneTimeLink{}, err
	}
	if role != "" {
		if err := s.authz.Require(ctx, resource.RoleBindingsCreate, parent); err != nil {
			return a, OneTimeLink{}, err
		}
		if err := s.authz.RequireRole(ctx, parent, role, "role_uid", time.Time{}); err != nil {
			return a, OneTimeLink{}, err
		}
	}
	return s.addAccount(ctx, parent, a, role, s.mailLink)
}

// AddAccount is CreateAccount without permission checks and without a message to the
// person. It is for setting up a server.
func (s *Service) AddAccount(
	ctx context.Context, org resource.UID, a resource.Account, role resource.UID,
) (resource.Account, OneTimeLink, error) {
	noMail := func(context.Context, resource.Account, *OneTimeLink) ([]func(*store.Tx) error, error) {
		return nil, nil
	}
	return s.addAccount(ctx, org, a, role, noMail)
}

// addAccount adds an account and, in the same transaction, makes the changes that the function also returns.
func (s *Service) addAccount(
	ctx context.Context, org resource.UID, a resource.Account, role resource.UID,
	also func(context.Context, resource.Account, *OneTimeLink) ([]func(*store.Tx) error, error),
) (resource.Account, OneTimeLink, error) {
	a, i, link := s.newAccount(ctx, org, a)
	changes, err := also(ctx, a, &link)
	if err != nil {
		return a, link, err
	}
	var with []resource.RoleBinding
	if role != "" {
		with = append(with, resource.RoleBinding{
			UID: org.NewChild(), Identity: a.Identity, Role: role, CreateTime: a.CreateTime,
		})
	}
	return a, link, s.people.InsertAccountAnd(ctx, a, i, changes, with...)
}

// AddAccountFor adds an account in an organization for an existing person. It checks
// no permission.
func (s *Service) AddAccountFor(
	ctx context.Context, org resource.UID, a resource.Account, person resource.Identity,
) error {
	a, _, _ = s.newAccount(ctx, org, a)
	a.Identity = person.UID
	return s.people.InsertAccount(ctx, a, person)
}

// CreateOrganization creates an organization and a local account for its first owner.
// It checks no permission, because it is for setting up a server. If name is not valid
// as a name, it becomes the display name. CreateOrganization returns
// fault.InvalidArgument if the organization or the account is not valid.
func (s *Service) CreateOrganization(
	ctx context.Context, name string, kind resource.OrgKind, a resource.Account,
) (resource.Group, resource.Account, OneTimeLink, error) {
	created := s.now()
	g := resource.Group{UID: resource.NewRoot(), Kind: kind, CreateTime: created, UpdateTime: created}
	g.Name, g.DisplayName = resource.Titled(name)
	a.Email = resource.NormalEmail(a.Email)
	if err := joinViolations(g.Validate(), a.Validate()); err != nil {
		return g, a, OneTimeLink{}, err
	}
	a, i, link := s.newAccount(ctx, g.UID, a)
	owner := resource.RoleBinding{
		UID: g.UID.NewChild(), Identity: a.Identity, Role: resource.OwnerRole, CreateTime: created,
	}
	return g, a, link, s.people.CreateOrganization(ctx, g, a, i, owner)
}

// HashPassword returns the hash of a new password. It returns fault.InvalidArgument if
// the password is not acceptable. names are the names of the person and the
// organization, which an attacker would try.
func (s *Service) HashPassword(ctx context.Context, plain, email string, names ...string) (string, error) {
	if err := password.Check(plain, email, names...); err != nil {
		return "", err
	}
	return s.hashes.Hash(ctx, plain)
}

// HashRandom returns the hash of a password that a program made from random bytes. It
// does not check the password, because nobody can guess it.
func (s *Service) HashRandom(ctx context.Context, plain string) (string, error) {
	return s.hashes.Hash(ctx, plain)
}

// DeleteAccount removes an account and its identity. The caller needs
// identity.delete on it.
func (s *Service) DeleteAccount(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.IdentityDelete, uid); err != nil {
		return err
	}
	return s.people.DeleteAccount(ctx, uid)
}

// ListAccounts returns a page of the accounts on which the caller holds identity.list,
// and the number of passkeys per account. Accounts without passkeys are not in the
// map.
func (s *Service) ListAccounts(
	ctx context.Context, f resource.Filter, p page.Params,
) (got page.Page[resource.Account], passkeys map[resource.UID]int, _ error) {
	under, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil {
		return got, nil, err
	}
	got, err = page.Read(ctx, s.pages, signindb.AccountList, store.Reach{Under: under}, f, p, s.accounts.Accounts)
	if err != nil {
		return got, nil, err
	}
	var uids []resource.UID
	for _, a := range got.Items {
		uids = append(uids, a.UID)
	}
	passkeys, err = s.accounts.PasskeyCounts(ctx, uids)
	return got, passkeys, err
}

// Rules returns the sign-in rules of an organization. The caller needs
// identity_providers.list on it.
func (s *Service) Rules(ctx context.Context, org resource.UID) (resource.SignInRules, error) {
	if err := s.authz.Require(ctx, resource.IdentityProvidersList, org); err != nil {
		return resource.SignInRules{}, err
	}
	if _, err := s.store.Group(ctx, org); err != nil {
		return resource.SignInRules{}, err
	}
	return s.accounts.SignInRules(ctx, org)
}

// SetRules sets the sign-in rules of an organization. The caller needs
// identity_providers.update on it. Accounts can be switched off only after an
// owner has signed in with a provider.
func (s *Service) SetRules(ctx context.Context, r resource.SignInRules) error {
	if err := s.authz.Require(ctx, resource.IdentityProvidersUpdate, r.Organization); err != nil {
		return err
	}
	if !r.Organization.IsRoot() {
		return fault.Field("uid", "must be an organization")
	}
	return s.people.SetSignInRules(ctx, r)
}

// Joins returns the people who joined a group or its subgroups with an invite, newest
// first. The caller needs group_invites.list on the group.
func (s *Service) Joins(ctx context.Context, group resource.UID) ([]resource.Join, error) {
	if err := s.authz.Require(ctx, resource.GroupInvitesList, group); err != nil {
		return nil, err
	}
	if _, err := s.store.Group(ctx, group); err != nil {
		return nil, err
	}
	return s.store.Joins(ctx, group)
}

// DeleteSelf deletes the identity of the caller. uid must be the UID of the caller, who must be a person with a token
// that is not narrowed.
func (s *Service) DeleteSelf(ctx context.Context, uid resource.UID) error {
	c, err := authz.RequireUnnarrowed(ctx)
	if err != nil {
		return err
	}
	if c.Identity != uid {
		return fault.Denied(resource.IdentityDelete.String(), string(uid))
	}
	if !uid.IsRoot() {
		return fault.Field("id", "is not the identity of a person; ask somebody who manages its group to remove it")
	}
	return s.people.DeleteIdentity(ctx, uid)
}

// AddWithPassword adds an account with a password. It returns fault.PermissionDenied if
// the organization does not allow local accounts, and fault.InvalidArgument if the
// account or the password is not valid.
func (s *Service) AddWithPassword(
	ctx context.Context, org resource.UID, a resource.Account, plain string,
) (resource.Account, error) {
	rules, err := s.accounts.SignInRules(ctx, org)
	if err != nil {
		return a, err
	}
	if rules.LocalOff {
		return a, fault.New(fault.PermissionDenied,
			"Permission denied: the organization does not allow local accounts; sign in with its identity provider")
	}
	if err := joinViolations(a.Validate(), password.Check(plain, a.Email, a.Name)); err != nil {
		return a, err
	}
	if a.Password, err = s.hashes.Hash(ctx, plain); err != nil {
		return a, err
	}
	a, i, _ := s.newAccount(ctx, org, a)
	return a, s.people.InsertAccount(ctx, a, i)
}

// joinViolations combines the violations of several checks in one error.
func joinViolations(errs ...error) error {
	var bad []fault.Violation
	for _, err := range errs {
		if err != nil {
			bad = append(bad, fault.From(err).Fields...)
		}
	}
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	return nil
}

// newAccount sets the UID, the times and the identity of an account, and returns it
// with its new identity. If the account has no password, newAccount also returns a
// one-time link to set it.
func (s *Service) newAccount(
	ctx context.Context, org resource.UID, a resource.Account,
) (_ resource.Account, _ resource.Identity, link OneTimeLink) {
	created := s.now()
	a.UID, a.CreateTime, a.UpdateTime = org.NewChild(), created, created
	c := a.Local(s.cfg.Issuer)
	a.Identity = resource.UserUID(c.Issuer, c.Subject)
	if a.Password == "" {
		link = s.newLink(ctx, &a, false)
	}
	return a, resource.Identity{
		UID: a.Identity, Name: resource.PersonName(a.Name, a.Email), DisplayName: resource.PersonDisplayName(a.Name),
		EmailUnverified: a.Email,
		Relationship:    resource.Relationship{ClaimMatch: &c}, Realm: c.Issuer,
		CreateTime: created, UpdateTime: created, LastSeenTime: created,
	}, link
}

// AccountOf returns the local account of a person and the name of its organization, or nil if the person has no
// account.
func (s *Service) AccountOf(ctx context.Context, person resource.UID) (*resource.Account, string, error) {
	a, err := s.accounts.AccountOf(ctx, person)
	if errors.Is(err, fault.NotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	org, err := s.OrganizationName(ctx, a.UID)
	return &a, org, err
}

// OrganizationName returns the name of the organization to which the resource uid belongs.
func (s *Service) OrganizationName(ctx context.Context, uid resource.UID) (string, error) {
	org, err := s.store.Group(ctx, uid.Root())
	return org.Label(), err
}
