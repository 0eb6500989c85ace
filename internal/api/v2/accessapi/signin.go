package accessapi

import (
	"context"
	"regexp"
	"strings"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/provider"
)

func (s *server) ListSessions(ctx context.Context, r *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	identity, err := wire.OptionalUID("identity_uid", r.GetIdentityUid())
	if err != nil {
		return nil, err
	}
	all, current, err := s.Accounts.Sessions(ctx, identity)
	return &pb.ListSessionsResponse{Sessions: wire.Convert(all, func(n resource.Session) *pb.Session {
		p := sessionOf(n)
		p.Current = n.ID == current
		return p
	})}, err
}

func sessionOf(n resource.Session) *pb.Session {
	return &pb.Session{
		Id: n.ID, IdentityUid: string(n.Identity), Agent: n.Agent, Address: n.Address, CreateTime: wire.Time(n.CreateTime),
		UseTime: wire.Time(n.UsedTime), ExpireTime: wire.Time(n.ExpireTime), Browser: n.Browser,
		Program: input.Program(n.Agent), IdentityProvider: string(n.Voucher.Provider()),
	}
}

var sessionID = regexp.MustCompile(`^[0-9A-Za-z_-]{1,64}$`)

func (s *server) EndSession(ctx context.Context, r *pb.EndSessionRequest) (*emptypb.Empty, error) {
	identity, err := wire.OptionalUID("identity_uid", r.GetIdentityUid())
	if err != nil {
		return nil, err
	}
	switch id := r.GetId(); {
	case id == "":
		return nil, fault.Field("id", "is required: the id of a session, current, or - for all sessions")
	case !sessionID.MatchString(id):
		return nil, fault.Field("id", "is not the id of a session")
	case id == "-":
		_, err = s.Accounts.EndSessions(ctx, identity)
	case id == "current":
		err = s.Accounts.EndSession(ctx, "")
	default:
		err = s.Accounts.EndSession(ctx, id)
	}
	return &emptypb.Empty{}, err
}

func accountOf(a resource.Account, passkeys int) *pb.Account {
	return &pb.Account{
		Uid: string(a.UID), Email: a.Email, Name: a.Name, IdentityUid: string(a.Identity), HasPassword: a.Password != "",
		Totp: len(a.TOTP) > 0, Passkeys: int32(passkeys), CreateTime: wire.Time(a.CreateTime),
		UpdateTime: wire.Time(a.UpdateTime), UseTime: wire.Time(a.UseTime), RecoveryCodes: int32(a.RecoveryCodes),
	}
}

func (s *server) CreateAccount(ctx context.Context, r *pb.CreateAccountRequest) (*pb.CreateAccountResponse, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	role, err := wire.OptionalUID("role_uid", r.GetAccount().GetRoleUid())
	if err != nil {
		return nil, err
	}
	a, link, err := s.Accounts.CreateAccount(ctx, parent,
		resource.Account{Email: r.GetAccount().GetEmail(), Name: r.GetAccount().GetName()}, role)
	out := &pb.CreateAccountResponse{Account: accountOf(a, 0), Link: linkOf(link)}
	if resource.IsDryRun(ctx) {
		out.Link = nil
	}
	return out, err
}

func linkOf(l accounts.OneTimeLink) *pb.AccountLink {
	return &pb.AccountLink{Url: l.URL, ExpireTime: wire.Time(l.ExpireTime)}
}

func (s *server) CreateAccountLink(ctx context.Context, r *pb.CreateAccountLinkRequest) (*pb.AccountLink, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	link, err := s.Accounts.CreateLink(ctx, uid, r.GetResetFactors())
	if resource.IsDryRun(ctx) {
		link.URL = "" // a dry run has not created the link
	}
	return linkOf(link), err
}

func (s *server) DeleteAccount(ctx context.Context, r *pb.DeleteAccountRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Accounts.DeleteAccount)
}

func (s *server) ListAccounts(ctx context.Context, r *pb.ListAccountsRequest) (*pb.ListAccountsResponse, error) {
	if strings.ContainsRune(r.GetEmail(), 0) {
		return nil, fault.Field("email", "is not an e-mail address")
	}
	f := resource.Filter{UIDs: wire.UIDFilter(r.GetUidp()), Name: resource.NormalEmail(r.GetEmail())}
	accounts, passkeys, err := s.Accounts.ListAccounts(ctx, f, wire.Params(r))
	p := wire.PageOf(ctx, accounts, func(a resource.Account) *pb.Account { return accountOf(a, passkeys[a.UID]) })
	return &pb.ListAccountsResponse{
		Accounts: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}

func (s *server) GetSignInRules(ctx context.Context, r *pb.GetSignInRulesRequest) (*pb.SignInRules, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Accounts.Rules, rulesOf)
}

func (s *server) UpdateSignInRules(ctx context.Context, r *pb.UpdateSignInRulesRequest) (*pb.SignInRules, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := wire.Require("rules", r.GetRules()); err != nil {
		return nil, err
	}
	rules := resource.SignInRules{Organization: uid, LocalOff: !r.GetRules().GetLocalAccounts()}
	return rulesOf(rules), s.Accounts.SetRules(ctx, rules)
}

func rulesOf(r resource.SignInRules) *pb.SignInRules {
	return &pb.SignInRules{Uid: string(r.Organization), LocalAccounts: !r.LocalOff}
}

func (s *server) TestIdentityProvider(
	ctx context.Context, r *pb.TestIdentityProviderRequest,
) (*pb.TestIdentityProviderResponse, error) {
	v, err := s.verdict(ctx, r)
	return &pb.TestIdentityProviderResponse{
		Checks: wire.Convert(v.Findings, func(f provider.Finding) *pb.ProviderCheck {
			return &pb.ProviderCheck{Name: f.Name, Ok: f.OK, Detail: f.Detail}
		}),
		Ready: v.Ready, RedirectUri: v.RedirectURI, TrialUrl: v.TrialURL,
	}, err
}

// verdict tests the provider that a request contains, or the stored provider that it
// names.
func (s *server) verdict(ctx context.Context, r *pb.TestIdentityProviderRequest) (provider.Verdict, error) {
	if r.GetIdentityProvider() == nil {
		uid, err := resource.ParseUID("uid", r.GetUid())
		if err != nil {
			return provider.Verdict{}, err
		}
		return s.Login.TestProvider(ctx, uid)
	}
	if r.GetUid() != "" {
		return provider.Verdict{}, fault.Field("uid", "cannot be combined with identity_provider")
	}
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return provider.Verdict{}, err
	}
	var p resource.IdentityProvider
	if err := ReadProvider(r.GetIdentityProvider(), &p); err != nil {
		return provider.Verdict{}, err
	}
	return s.Login.TestNewProvider(ctx, parent, p)
}

func (s *server) ListJoins(ctx context.Context, r *pb.ListJoinsRequest) (*pb.ListJoinsResponse, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	joins, err := s.Accounts.Joins(ctx, parent)
	return &pb.ListJoinsResponse{Joins: wire.Convert(joins, func(j resource.Join) *pb.Join {
		return &pb.Join{
			InviteUid: string(j.Invite), GroupUid: string(j.Group), RoleUid: string(j.Role), IdentityUid: string(j.Identity),
			Name: j.Name, Email: j.Email, JoinTime: wire.Time(j.Time),
		}
	})}, err
}
