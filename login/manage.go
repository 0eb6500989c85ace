package login

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// linkLife is how long a one-time link is good.
const linkLife = 24 * time.Hour

// A OneTimeLink is an address that sets the password of an account, once.
type OneTimeLink struct {
	URL        string
	ExpireTime time.Time
}

var accountList = page.List{Kind: "accounts", Fields: []string{"uid", "email", "create_time", "update_time"}, Default: page.Order{Field: "uid"}}

// newLink gives an account a one-time link, and returns it for the only time. It
// opens what its maker may do when it is followed; one that no caller asked for is
// the operator's.
func (s *Service) newLink(ctx context.Context, a *resource.Account, factors bool) OneTimeLink {
	code, ends := newID()+newID(), s.now().Add(linkLife)
	a.Link = resource.Link{Digest: digest("link " + code), Expires: ends, Factors: factors}
	if c, ok := authz.CallerFrom(ctx); ok {
		a.Link.Maker = &resource.Maker{Identity: c.Identity, Narrowing: c.Narrowing()}
	}
	return OneTimeLink{s.at("/link?code=" + code), ends}
}

// mayOpen checks that whoever made the link of an account may, now, do everything
// that the link opens: the account may have been given more since.
func (s *Service) mayOpen(ctx context.Context, a resource.Account) error {
	if a.Link.Maker == nil {
		return nil
	}
	if err := s.authz.Confirm(ctx); err != nil {
		return err
	}
	maker := authz.Caller{Identity: a.Link.Maker.Identity, Caps: a.Link.Maker.Caps, Scopes: a.Link.Maker.Scopes}
	err := s.authz.RequireBecomeBy(ctx, maker, a.Identity)
	if errors.Is(err, fault.PermissionDenied) || errors.Is(err, fault.FailedPrecondition) {
		return fault.Unmet("LINK_OUTGROWN", "the account may do more now than whoever made this link; ask somebody who may do as much for a new one")
	}
	return err
}

// CreateAccount makes an account in a group, with a role there if one is given,
// and returns the link that its person sets a password with. The caller needs
// identity.create there, and for a role role_bindings.create and all that the
// role gives.
func (s *Service) CreateAccount(ctx context.Context, parent resource.UID, a resource.Account, role resource.UID) (resource.Account, OneTimeLink, error) {
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
		if err := s.mayGive(ctx, parent, role); err != nil {
			return a, OneTimeLink{}, err
		}
	}
	return s.AddAccount(ctx, parent, a, role)
}

// AddAccount is CreateAccount without asking: it is how a service starts.
func (s *Service) AddAccount(ctx context.Context, org resource.UID, a resource.Account, role resource.UID) (resource.Account, OneTimeLink, error) {
	a, i := s.newAccount(org, a)
	var link OneTimeLink
	if a.Password == "" {
		link = s.newLink(ctx, &a, false)
	}
	var with []resource.RoleBinding
	if role != "" {
		with = append(with, resource.RoleBinding{UID: org.NewChild(), Identity: a.Identity, Role: role, CreateTime: a.CreateTime})
	}
	return a, link, s.store.InsertAccount(ctx, a, i, with...)
}

// AddAccountOf gives a person who is known already an account in an organization,
// too, without asking.
func (s *Service) AddAccountOf(ctx context.Context, org resource.UID, a resource.Account, person resource.Identity) error {
	a, _ = s.newAccount(org, a)
	a.Identity = person.UID
	return s.store.InsertAccount(ctx, a, person)
}

// Found makes an organization whose first owner has an account here. It asks
// nobody's permission: it is how a service starts.
func (s *Service) Found(ctx context.Context, name string, kind resource.OrgKind, a resource.Account) (resource.Group, resource.Account, OneTimeLink, error) {
	now := s.now()
	g := resource.Group{UID: resource.NewRoot(), Name: name, Kind: kind, CreateTime: now, UpdateTime: now}
	a.Email = resource.NormalEmail(a.Email)
	if err := together(g.Validate(), a.Validate()); err != nil {
		return g, a, OneTimeLink{}, err
	}
	a, i := s.newAccount(g.UID, a)
	var link OneTimeLink
	if a.Password == "" {
		link = s.newLink(ctx, &a, false)
	}
	owner := resource.RoleBinding{UID: g.UID.NewChild(), Identity: a.Identity, Role: resource.OwnerRole, CreateTime: now}
	return g, a, link, s.store.Found(ctx, g, a, i, owner)
}

// mayGive checks that the caller may give a role in a group.
func (s *Service) mayGive(ctx context.Context, group, role resource.UID) error {
	if err := s.authz.Require(ctx, resource.RoleBindingsCreate, group); err != nil {
		return err
	}
	if !role.IsRoot() && !role.Parent().Covers(group) {
		return fault.Field("role_uid", "is neither a managed role nor one of this group or a group above it")
	}
	r, err := s.store.Role(ctx, role)
	if err != nil {
		return err
	}
	return s.authz.RequireAll(ctx, r.Capabilities, group)
}

// HashPassword returns a password as an account keeps it. It returns
// fault.InvalidArgument for one that will not do.
func (s *Service) HashPassword(ctx context.Context, password, email string) (string, error) {
	if err := checkPassword(password, email); err != nil {
		return "", err
	}
	return s.hashes.hash(ctx, password)
}

// CreateLink makes a one-time link of an account; one that was out ends. Whoever
// has it becomes that person, so the caller needs identity.update on the account
// and everything that the person may do. factors has passkeys and one-time
// passwords end, too, once the link is followed.
func (s *Service) CreateLink(ctx context.Context, uid resource.UID, factors bool) (link OneTimeLink, _ error) {
	if err := s.authz.Require(ctx, resource.IdentityUpdate, uid); err != nil {
		return link, err
	}
	_, err := s.store.UpdateAccount(ctx, uid, func(a *resource.Account) error {
		if err := s.authz.RequireBecome(ctx, a.Identity); err != nil {
			return err
		}
		link = s.newLink(ctx, a, factors)
		return nil
	})
	return link, err
}

// DeleteAccount removes an account with its identity. The caller needs
// identity.delete on it.
func (s *Service) DeleteAccount(ctx context.Context, uid resource.UID) error {
	if err := s.authz.Require(ctx, resource.IdentityDelete, uid); err != nil {
		return err
	}
	return s.store.DeleteAccount(ctx, uid)
}

// ListAccounts returns a page of the accounts the caller holds identity.list on,
// and how many passkeys those have that have any.
func (s *Service) ListAccounts(ctx context.Context, f resource.Filter, p page.Params) (page.Page[resource.Account], map[resource.UID]int, error) {
	none := page.Page[resource.Account]{}
	under, err := s.authz.Reach(ctx, resource.IdentityList)
	if err != nil {
		return none, nil, err
	}
	if err := f.Validate(); err != nil {
		return none, nil, err
	}
	req, err := s.pages.Request(accountList, f, p)
	if err != nil {
		return none, nil, err
	}
	got, err := s.store.Accounts(ctx, store.Reach{Under: under}, f, req)
	if err != nil {
		return none, nil, err
	}
	var uids []resource.UID
	for _, a := range got.Items {
		uids = append(uids, a.UID)
	}
	counts, err := s.store.PasskeyCounts(ctx, uids)
	return page.Finish(s.pages, req, got), counts, err
}

// Rules returns what an organization has decided about signing in. The caller
// needs identity_providers.list on it.
func (s *Service) Rules(ctx context.Context, org resource.UID) (resource.SignInRules, error) {
	if err := s.authz.Require(ctx, resource.IdentityProvidersList, org); err != nil {
		return resource.SignInRules{}, err
	}
	if _, err := s.store.Group(ctx, org); err != nil {
		return resource.SignInRules{}, err
	}
	return s.store.SignInRules(ctx, org)
}

// SetRules keeps what an organization decides about signing in. The caller needs
// identity_providers.update on it. Accounts are switched off only once an owner
// has come through a provider.
func (s *Service) SetRules(ctx context.Context, r resource.SignInRules) error {
	if err := s.authz.Require(ctx, resource.IdentityProvidersUpdate, r.Organization); err != nil {
		return err
	}
	if !r.Organization.IsRoot() {
		return fault.Field("uid", "must be an organization")
	}
	return s.store.SetSignInRules(ctx, r)
}

// Joins returns who joined a group through invites, newest first. The caller
// needs group_invites.list on it.
func (s *Service) Joins(ctx context.Context, group resource.UID) ([]resource.Join, error) {
	if err := s.authz.Require(ctx, resource.GroupInvitesList, group); err != nil {
		return nil, err
	}
	if _, err := s.store.Group(ctx, group); err != nil {
		return nil, err
	}
	return s.store.Joins(ctx, group)
}

// caller returns who is asking.
func caller(ctx context.Context) (authz.Caller, error) {
	c, ok := authz.CallerFrom(ctx)
	if !ok {
		return c, fault.New(fault.Unauthenticated, "Unauthenticated: a token is required")
	}
	return c, nil
}

// mayRule reports whether the caller answers for a session: it is the caller's
// own, or the caller holds identity.update in the group whose provider or account
// it was begun with. Nobody answers for the sessions that a person has with
// others.
func (s *Service) mayRule(ctx context.Context, c authz.Caller, n resource.Session) bool {
	if n.Identity == c.Identity {
		return c.Narrowing().IsZero() || n.ID == c.Session // a narrowed token may end itself, and nothing else
	}
	return n.Home != "" && s.authz.Require(ctx, resource.IdentityUpdate, n.Home) == nil
}

// ruled returns the sessions of an identity that the caller answers for. It
// returns fault.PermissionDenied for an identity of others without any, whether or
// not there is one.
func (s *Service) ruled(ctx context.Context, identity resource.UID) (all []resource.Session, c authz.Caller, err error) {
	if c, err = caller(ctx); err != nil {
		return nil, c, err
	}
	if identity == "" || identity == c.Identity {
		identity = c.Identity
		if _, err := authz.RequireWhole(ctx); err != nil {
			return nil, c, err
		}
	}
	if all, err = s.store.Sessions(ctx, identity); err != nil {
		return nil, c, err
	}
	all = slices.DeleteFunc(all, func(n resource.Session) bool { return !s.mayRule(ctx, c, n) })
	if len(all) == 0 && identity != c.Identity {
		return nil, c, s.mayAsk(ctx, identity)
	}
	return all, c, nil
}

// mayAsk checks that the caller would answer for sessions of an identity if there
// were any.
func (s *Service) mayAsk(ctx context.Context, identity resource.UID) error {
	homes, err := s.store.HomesOf(ctx, identity)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(homes, func(g resource.UID) bool { return s.authz.Require(ctx, resource.IdentityUpdate, g) == nil }) {
		return nil
	}
	return fault.Denied(resource.IdentityUpdate.String(), string(identity))
}

// Sessions returns the sessions of an identity, newest first: the caller's own
// for "", or those of somebody else that the caller answers for. current is the
// caller's.
func (s *Service) Sessions(ctx context.Context, identity resource.UID) (all []resource.Session, current string, _ error) {
	all, c, err := s.ruled(ctx, identity)
	return all, c.Session, err
}

// EndSession ends a session that the caller answers for: the caller's own for "".
// Its tokens are void from the next request on.
func (s *Service) EndSession(ctx context.Context, id string) error {
	c, err := caller(ctx)
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
	if err != nil || n.ID != c.Session && !s.mayRule(ctx, c, n) {
		return fault.Denied(resource.IdentityUpdate.String(), "session "+id) // not to be told from one that is not there
	}
	_, err = s.store.EndSession(ctx, id)
	return err
}

// EndSessions ends all sessions of an identity that the caller answers for, and
// returns how many there were.
func (s *Service) EndSessions(ctx context.Context, identity resource.UID) (ended int, _ error) {
	for {
		all, _, err := s.ruled(ctx, identity)
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

// Leave removes the caller, who must be the person of that uid, with a token that
// is not narrowed.
func (s *Service) Leave(ctx context.Context, uid resource.UID) error {
	c, err := authz.RequireWhole(ctx)
	if err != nil {
		return err
	}
	if c.Identity != uid {
		return fault.Denied(resource.IdentityDelete.String(), string(uid))
	}
	if !uid.IsRoot() {
		return fault.Field("id", "is not a person's identity; those who manage its group remove it")
	}
	return s.store.DeleteIdentity(ctx, uid)
}

// Register redeems an invite for who is behind a token: of ours, or of an issuer
// that it was asked for for us. identity, if not "", must be who that is.
func (s *Service) Register(ctx context.Context, bearer, code string, identity resource.UID) (resource.Landing, error) {
	presented, err := readInvite(code)
	if err != nil {
		return resource.Landing{}, err
	}
	i, err := s.store.InviteFor(ctx, presented) // before anybody's issuer is asked for its keys
	if err != nil {
		return resource.Landing{}, err
	}
	who, err := s.behind(ctx, bearer, i.UID.Parent())
	if err != nil {
		return resource.Landing{}, err
	}
	uid, err := s.uidOf(ctx, who)
	if err != nil {
		return resource.Landing{}, err
	}
	if identity != "" && identity != uid {
		return resource.Landing{}, fault.Field("identity_id", "is not the identity of the token's person")
	}
	who.Invite, who.Register = &presented, identity == ""
	if ctx, err = s.asPerson(ctx, who); err != nil {
		return resource.Landing{}, err
	}
	return s.store.Arrive(ctx, who)
}

// behind returns the person behind a token, for whom the providers of a group and
// of those above it can vouch.
func (s *Service) behind(ctx context.Context, bearer string, group resource.UID) (resource.Arrival, error) {
	providers, err := s.store.ProvidersFor(ctx, group)
	if err != nil {
		return resource.Arrival{}, err
	}
	who, err := s.sts.Identify(ctx, bearer, providers)
	if err != nil || who.Identity == "" {
		return who, err
	}
	return s.arrivalAgain(ctx, resource.Session{
		Identity: who.Identity, Act: &resource.Upstream{Issuer: who.Issuer, Subject: who.Subject}, Voucher: who.Voucher,
	})
}
