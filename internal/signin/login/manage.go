package login

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/signin/signindb"
	"github.com/holdfast-dev/holdfast/internal/store"
)

// linkLife is how long a one-time link is valid.
const linkLife = 24 * time.Hour

// A OneTimeLink is an address at which the password of an account can be set
// once.
type OneTimeLink struct {
	URL        string
	ExpireTime time.Time
}

// newLink gives an account a one-time link and returns it; it cannot be read
// again. The link allows no more than its maker may do when it is followed.
// Without a caller, the maker is the operator.
func (s *Service) newLink(ctx context.Context, a *resource.Account, factors bool) OneTimeLink {
	code, ends := newID()+newID(), s.now().Add(linkLife)
	a.Link = resource.Link{Digest: digest("link " + code), Expires: ends, Factors: factors}
	if c, ok := authz.CallerFrom(ctx); ok {
		a.Link.Maker = &resource.Maker{Identity: c.Identity, Narrowing: c.Narrowing()}
	}
	return OneTimeLink{s.at("/link?code=" + code), ends}
}

// checkLinkMaker checks that whoever made the link of an account may now do
// everything that the account may: it may have been given more since.
func (s *Service) checkLinkMaker(ctx context.Context, a resource.Account) error {
	if a.Link.Maker == nil {
		return nil
	}
	if err := s.authz.EnsureCurrent(ctx); err != nil {
		return err
	}
	maker := authz.Caller{Identity: a.Link.Maker.Identity, Caps: a.Link.Maker.Caps, Scopes: a.Link.Maker.Scopes}
	err := s.authz.RequireBecomeBy(ctx, maker, a.Identity)
	if errors.Is(err, fault.PermissionDenied) || errors.Is(err, fault.FailedPrecondition) {
		return fault.Unmet("LINK_OUTGROWN", "the account may do more now than whoever made this link; "+
			"ask somebody who may do as much for a new one")
	}
	return err
}

// CreateAccount creates an account in an organization, with a role there if
// one is given, and returns the link at which its person sets a password. The
// caller needs identity.create there and, for a role, role_bindings.create and
// every capability of the role.
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

// AddAccount is CreateAccount without permission checks, for setting up a
// server.
func (s *Service) AddAccount(
	ctx context.Context, org resource.UID, a resource.Account, role resource.UID,
) (resource.Account, OneTimeLink, error) {
	none := func(context.Context, resource.Account, *OneTimeLink) ([]func(*store.Tx) error, error) {
		return nil, nil
	}
	return s.addAccount(ctx, org, a, role, none)
}

// addAccount adds an account. also returns what else its transaction does.
func (s *Service) addAccount(
	ctx context.Context, org resource.UID, a resource.Account, role resource.UID,
	also func(context.Context, resource.Account, *OneTimeLink) ([]func(*store.Tx) error, error),
) (resource.Account, OneTimeLink, error) {
	a, i, link := s.newAccount(ctx, org, a)
	more, err := also(ctx, a, &link)
	if err != nil {
		return a, link, err
	}
	var with []resource.RoleBinding
	if role != "" {
		with = append(with, resource.RoleBinding{
			UID: org.NewChild(), Identity: a.Identity, Role: role, CreateTime: a.CreateTime,
		})
	}
	return a, link, s.people.InsertAccountAnd(ctx, a, i, more, with...)
}

// mailLink returns what adds the message with a one-time link to the
// transaction that makes it. It is for the address that the account was made
// with.
func (s *Service) mailLink(
	ctx context.Context, a resource.Account, link *OneTimeLink,
) ([]func(*store.Tx) error, error) {
	if s.cfg.Mail == nil {
		return nil, nil
	}
	org, err := s.organizationName(ctx, a.UID)
	if err != nil {
		return nil, err
	}
	return s.cfg.Mail.With(ctx, func() mail.Message {
		return s.cfg.Mail.Link(a.UID.Root(), a.Email, org, link.URL, link.ExpireTime)
	}), nil
}

// AddAccountFor adds an account in an organization for an existing person,
// without permission checks.
func (s *Service) AddAccountFor(
	ctx context.Context, org resource.UID, a resource.Account, person resource.Identity,
) error {
	a, _, _ = s.newAccount(ctx, org, a)
	a.Identity = person.UID
	return s.people.InsertAccount(ctx, a, person)
}

// CreateOrganization creates an organization whose first owner has an account
// here. It checks no permission: it is for setting up a server. name is kept as the
// display name if it is not valid as a name.
func (s *Service) CreateOrganization(
	ctx context.Context, name string, kind resource.OrgKind, a resource.Account,
) (resource.Group, resource.Account, OneTimeLink, error) {
	now := s.now()
	g := resource.Group{UID: resource.NewRoot(), Kind: kind, CreateTime: now, UpdateTime: now}
	g.Name, g.DisplayName = resource.Titled(name)
	a.Email = resource.NormalEmail(a.Email)
	if err := joinViolations(g.Validate(), a.Validate()); err != nil {
		return g, a, OneTimeLink{}, err
	}
	a, i, link := s.newAccount(ctx, g.UID, a)
	owner := resource.RoleBinding{
		UID: g.UID.NewChild(), Identity: a.Identity, Role: resource.OwnerRole, CreateTime: now,
	}
	return g, a, link, s.people.CreateOrganization(ctx, g, a, i, owner)
}

// HashPassword returns the hash of a password for an account. It returns
// fault.InvalidArgument for a password that is not acceptable. names are those
// of the person and the organization, which others would try.
func (s *Service) HashPassword(ctx context.Context, password, email string, names ...string) (string, error) {
	if err := checkPassword(password, email, names...); err != nil {
		return "", err
	}
	return s.hashes.hash(ctx, password)
}

// HashRandom returns the hash of a password that a program has made of random bytes, which nobody guesses.
func (s *Service) HashRandom(ctx context.Context, password string) (string, error) {
	return s.hashes.hash(ctx, password)
}

// CreateLink creates a one-time link of an account and voids the previous one.
// Whoever has the link can become that person, so the caller needs
// identity.update on the account and everything that the person may do. If
// factors is true, following the link removes passkeys and one-time passwords.
func (s *Service) CreateLink(ctx context.Context, uid resource.UID, factors bool) (link OneTimeLink, _ error) {
	if err := s.authz.Require(ctx, resource.IdentityUpdate, uid); err != nil {
		return link, err
	}
	var also []func(*store.Tx) error
	if s.cfg.Mail != nil {
		a, err := s.accounts.Account(ctx, uid)
		if err == nil {
			also, err = s.mailLink(ctx, a, &link)
		}
		if err != nil {
			return link, err
		}
	}
	_, err := s.accounts.UpdateAccountAnd(ctx, uid, func(a *resource.Account) error {
		if err := s.authz.RequireBecome(ctx, a.Identity); err != nil {
			return err
		}
		link = s.newLink(ctx, a, factors)
		return nil
	}, also, resource.LinkCreated)
	if err == nil && !resource.IsDryRun(ctx) {
		s.logActivity(ctx, "a one-time link was made", resource.Activity{Account: uid})
	}
	return link, err
}

// DeleteAccount removes an account and its identity. The caller needs
// identity.delete on it.
func (s *Service) DeleteAccount(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.IdentityDelete, uid); err != nil {
		return err
	}
	return s.people.DeleteAccount(ctx, uid)
}

// ListAccounts returns a page of the accounts on which the caller holds
// identity.list, and the number of passkeys of those that have any.
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

// Joins returns who joined a group, or one below it, through invites, newest first. The
// caller needs group_invites.list on it.
func (s *Service) Joins(ctx context.Context, group resource.UID) ([]resource.Join, error) {
	if err := s.authz.Require(ctx, resource.GroupInvitesList, group); err != nil {
		return nil, err
	}
	if _, err := s.store.Group(ctx, group); err != nil {
		return nil, err
	}
	return s.store.Joins(ctx, group)
}

// mayManage reports whether the caller may manage a session: it is the
// caller's own, or the caller holds identity.update in the group whose
// provider or account it was started with. Nobody can manage the sessions that
// a person has with other organizations.
func (s *Service) mayManage(ctx context.Context, c authz.Caller, n resource.Session) bool {
	if n.Identity == c.Identity {
		return c.Narrowing().IsZero() || n.ID == c.Session // a narrowed token may end its own session only
	}
	return n.Home != "" && s.authz.Require(ctx, resource.IdentityUpdate, n.Home) == nil
}

// managedSessions returns the sessions of an identity that the caller may
// manage. If there are none, it returns fault.PermissionDenied for an identity
// of others, whether or not it exists.
func (s *Service) managedSessions(
	ctx context.Context, identity resource.UID,
) (all []resource.Session, c authz.Caller, err error) {
	if c, err = authz.RequireCaller(ctx); err != nil {
		return nil, c, err
	}
	if identity == "" || identity == c.Identity {
		identity = c.Identity
		if _, err := authz.RequireUnnarrowed(ctx); err != nil {
			return nil, c, err
		}
	}
	if all, err = s.store.Sessions(ctx, identity); err != nil {
		return nil, c, err
	}
	all = slices.DeleteFunc(all, func(n resource.Session) bool { return !s.mayManage(ctx, c, n) })
	if len(all) == 0 && identity != c.Identity {
		return nil, c, s.mayManageAny(ctx, identity)
	}
	return all, c, nil
}

// mayManageAny checks that the caller could manage sessions of an identity if
// there were any.
func (s *Service) mayManageAny(ctx context.Context, identity resource.UID) error {
	homes, err := s.people.HomesOf(ctx, identity)
	if err != nil {
		return err
	}
	for _, group := range homes {
		if s.authz.Require(ctx, resource.IdentityUpdate, group) == nil {
			return nil
		}
	}
	return fault.Denied(resource.IdentityUpdate.String(), string(identity))
}

// Sessions returns the sessions of an identity that the caller may manage,
// newest first; "" is the caller's own. current is the id of the caller's
// session.
func (s *Service) Sessions(
	ctx context.Context, identity resource.UID,
) (all []resource.Session, current string, _ error) {
	all, c, err := s.managedSessions(ctx, identity)
	return all, c.Session, err
}

// EndSession ends a session that the caller may manage; "" is the caller's
// own. Its tokens are void from the next request on.
func (s *Service) EndSession(ctx context.Context, id string) error {
	c, err := authz.RequireCaller(ctx)
	if err != nil {
		return err
	}
	if id == "" {
		if id = c.Session; id == "" {
			return fault.Unmet("NO_SESSION", "the token presented is not of a session")
		}
	}
	n, err := s.store.Session(ctx, id)
	if err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	if err != nil || n.ID != c.Session && !s.mayManage(ctx, c, n) {
		// The error is the same for a session that does not exist.
		return fault.Denied(resource.IdentityUpdate.String(), "session "+id)
	}
	_, err = s.store.EndSession(ctx, id)
	return err
}

// EndSessions ends all sessions of an identity that the caller may manage, and
// returns how many there were.
func (s *Service) EndSessions(ctx context.Context, identity resource.UID) (ended int, _ error) {
	for {
		all, _, err := s.managedSessions(ctx, identity)
		if len(all) == 0 && ended > 0 {
			return ended, nil
		}
		if err != nil || len(all) == 0 {
			return 0, err
		}
		for _, n := range all {
			was, err := s.store.EndSession(ctx, n.ID)
			if err != nil {
				return ended, err
			}
			if was {
				ended++
			}
		}
	}
}

// DeleteSelf removes the caller, who must be the person of that uid, with a
// token that is not narrowed.
func (s *Service) DeleteSelf(ctx context.Context, uid resource.UID) error {
	c, err := authz.RequireUnnarrowed(ctx)
	if err != nil {
		return err
	}
	if c.Identity != uid {
		return fault.Denied(resource.IdentityDelete.String(), string(uid))
	}
	if !uid.IsRoot() {
		return fault.Field("id", "is not a person's identity; those who manage its group remove it")
	}
	return s.people.DeleteIdentity(ctx, uid)
}

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
