package api

import (
	"context"
	"regexp"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/login"
	"github.com/holdfast-dev/holdfast/resource"
)

type signIn struct {
	signinpb.UnsafeSignInServiceServer
	login *login.Service
}

// optionalUID reads a uid that may be left out.
func optionalUID(field, text string) (resource.UID, error) {
	if text == "" {
		return "", nil
	}
	return resource.ParseUID(field, text)
}

// ListSessions is of signinpb.SignInServiceServer.
func (s signIn) ListSessions(ctx context.Context, r *signinpb.ListSessionsRequest) (*signinpb.ListSessionsResponse, error) {
	identity, err := optionalUID("identity_uid", r.GetIdentityUid())
	if err != nil {
		return nil, err
	}
	all, current, err := s.login.Sessions(ctx, identity)
	if err != nil {
		return nil, err
	}
	return &signinpb.ListSessionsResponse{Sessions: convert(all, func(n resource.Session) *signinpb.Session {
		p := sessionOf(n)
		p.Current = n.ID == current
		return p
	})}, nil
}

func sessionOf(n resource.Session) *signinpb.Session {
	return &signinpb.Session{
		Id: n.ID, IdentityUid: string(n.Identity), Agent: n.Agent, Address: n.Address, CreateTime: timeOf(n.CreateTime),
		UseTime: timeOf(n.UsedTime), ExpireTime: timeOf(n.ExpireTime), Browser: n.Browser, Program: login.Program(n.Agent),
		IdentityProvider: string(n.Voucher.Provider()),
	}
}

var sessionID = regexp.MustCompile(`^[0-9A-Za-z_-]{1,64}$`)

// EndSession is of signinpb.SignInServiceServer.
func (s signIn) EndSession(ctx context.Context, r *signinpb.EndSessionRequest) (*emptypb.Empty, error) {
	identity, err := optionalUID("identity_uid", r.GetIdentityUid())
	if err != nil {
		return nil, err
	}
	switch id := r.GetId(); {
	case id == "":
		return nil, fault.Field("id", "is required: of a session, current, or - for all")
	case !sessionID.MatchString(id):
		return nil, fault.Field("id", "is not the id of a session")
	case id == "-":
		_, err = s.login.EndSessions(ctx, identity)
	case id == "current":
		err = s.login.EndSession(ctx, "")
	default:
		err = s.login.EndSession(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

func accountOf(a resource.Account, passkeys int) *signinpb.Account {
	return &signinpb.Account{
		Uid: string(a.UID), Email: a.Email, Name: a.Name, IdentityUid: string(a.Identity), HasPassword: a.Password != "", Totp: len(a.TOTP) > 0,
		Passkeys: int32(passkeys), CreateTime: timeOf(a.CreateTime), UpdateTime: timeOf(a.UpdateTime), UseTime: timeOf(a.UseTime),
		RecoveryCodes: int32(a.RecoveryCodes),
	}
}

// CreateAccount is of signinpb.SignInServiceServer.
func (s signIn) CreateAccount(ctx context.Context, r *signinpb.CreateAccountRequest) (*signinpb.CreateAccountResponse, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	role, err := optionalUID("role_uid", r.GetAccount().GetRoleUid())
	if err != nil {
		return nil, err
	}
	a, link, err := s.login.CreateAccount(ctx, parent, resource.Account{Email: r.GetAccount().GetEmail(), Name: r.GetAccount().GetName()}, role)
	if err != nil {
		return nil, err
	}
	out := &signinpb.CreateAccountResponse{Account: accountOf(a, 0), Link: linkOf(link)}
	if resource.Rehearsing(ctx) {
		out.Link = nil
	}
	return out, nil
}

func linkOf(l login.OneTimeLink) *signinpb.AccountLink {
	return &signinpb.AccountLink{Url: l.URL, ExpireTime: timeOf(l.ExpireTime)}
}

// CreateAccountLink is of signinpb.SignInServiceServer.
func (s signIn) CreateAccountLink(ctx context.Context, r *signinpb.CreateAccountLinkRequest) (*signinpb.AccountLink, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	link, err := s.login.CreateLink(ctx, uid, r.GetResetFactors())
	if err != nil {
		return nil, err
	}
	if resource.Rehearsing(ctx) {
		link.URL = "" // it would lead nowhere
	}
	return linkOf(link), nil
}

// DeleteAccount is of signinpb.SignInServiceServer.
func (s signIn) DeleteAccount(ctx context.Context, r *signinpb.DeleteAccountRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.login.DeleteAccount(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// ListAccounts is of signinpb.SignInServiceServer.
func (s signIn) ListAccounts(ctx context.Context, r *signinpb.ListAccountsRequest) (*signinpb.ListAccountsResponse, error) {
	if strings.ContainsRune(r.GetEmail(), 0) {
		return nil, fault.Field("email", "is not an e-mail address")
	}
	p, passkeys, err := s.login.ListAccounts(ctx, resource.Filter{Place: placeOf(r), Name: resource.NormalEmail(r.GetEmail())}, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &signinpb.ListAccountsResponse{
		Accounts:      convert(p.Items, func(a resource.Account) *signinpb.Account { return accountOf(a, passkeys[a.UID]) }),
		NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}

// GetSignInRules is of signinpb.SignInServiceServer.
func (s signIn) GetSignInRules(ctx context.Context, r *signinpb.GetSignInRulesRequest) (*signinpb.SignInRules, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	rules, err := s.login.Rules(ctx, uid)
	if err != nil {
		return nil, err
	}
	return rulesOf(rules), nil
}

// UpdateSignInRules is of signinpb.SignInServiceServer.
func (s signIn) UpdateSignInRules(ctx context.Context, r *signinpb.UpdateSignInRulesRequest) (*signinpb.SignInRules, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if r.GetRules() == nil {
		return nil, fault.Field("rules", "is required")
	}
	rules := resource.SignInRules{Organization: uid, LocalOff: !r.GetRules().GetLocalAccounts()}
	if err := s.login.SetRules(ctx, rules); err != nil {
		return nil, err
	}
	return rulesOf(rules), nil
}

func rulesOf(r resource.SignInRules) *signinpb.SignInRules {
	return &signinpb.SignInRules{Uid: string(r.Organization), LocalAccounts: !r.LocalOff}
}

// TestIdentityProvider is of signinpb.SignInServiceServer.
func (s signIn) TestIdentityProvider(ctx context.Context, r *signinpb.TestIdentityProviderRequest) (*signinpb.TestIdentityProviderResponse, error) {
	v, err := s.tested(ctx, r)
	if err != nil {
		return nil, err
	}
	return &signinpb.TestIdentityProviderResponse{
		Checks: convert(v.Findings, func(f login.Finding) *signinpb.ProviderCheck {
			return &signinpb.ProviderCheck{Name: f.Name, Ok: f.OK, Detail: f.Detail}
		}),
		Ready: v.Ready, RedirectUri: v.RedirectURI, TrialUrl: v.TrialURL,
	}, nil
}

func (s signIn) tested(ctx context.Context, r *signinpb.TestIdentityProviderRequest) (login.Verdict, error) {
	if r.GetIdentityProvider() == nil {
		uid, err := resource.ParseUID("uid", r.GetUid())
		if err != nil {
			return login.Verdict{}, err
		}
		return s.login.TestProvider(ctx, uid)
	}
	if r.GetUid() != "" {
		return login.Verdict{}, fault.Field("uid", "cannot be combined with identity_provider")
	}
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return login.Verdict{}, err
	}
	var p resource.IdentityProvider
	readProvider(r.GetIdentityProvider(), &p)
	return s.login.TestNewProvider(ctx, parent, p)
}

// ListJoins is of signinpb.SignInServiceServer.
func (s signIn) ListJoins(ctx context.Context, r *signinpb.ListJoinsRequest) (*signinpb.ListJoinsResponse, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	all, err := s.login.Joins(ctx, parent)
	if err != nil {
		return nil, err
	}
	return &signinpb.ListJoinsResponse{Joins: convert(all, func(j resource.Join) *signinpb.Join {
		return &signinpb.Join{
			InviteUid: string(j.Invite), GroupUid: string(j.Group), RoleUid: string(j.Role), IdentityUid: string(j.Identity),
			Name: j.Name, Email: j.Email, JoinTime: timeOf(j.Time),
		}
	})}, nil
}
