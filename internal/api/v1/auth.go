package v1

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/auth"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/ops/status"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
)

// auth is the Auth service, which later versions do not replace. Its messages contain
// groups and roles in the form of version 1.
type auth struct {
	pb.UnsafeAuthServer
	login  *login.Service
	people *accounts.Service
	iam    *iam.Service
	runs   *status.Service
	bearer func(context.Context) (string, error)
	issuer string
}

func (s auth) Validate(ctx context.Context, _ *emptypb.Empty) (*pb.WhoAmI, error) {
	c, i, vouching, bindings, err := s.iam.Myself(ctx)
	if err != nil {
		return nil, err
	}
	var narrowed []string
	if c.Caps != nil {
		narrowed = wire.Convert(c.Caps.All(), resource.Capability.String)
	}
	who := &pb.WhoAmI{
		Issuer: s.issuer, Subject: string(c.Identity), Audience: c.Audience, Expiry: wire.Time(c.Expires),
		IssuedAt: wire.Time(c.Issued), Email: i.Email, Profile: &pb.Profile{Name: i.Name},
		IdentityProvider: string(vouching.UID), IdentityProviderName: vouching.Name,
		IdentityProviderTrusted: vouching.Trusted, Operator: s.runs.Is(ctx),
	}
	for _, h := range bindings {
		who.Capabilities = append(who.Capabilities,
			&pb.WhoAmI_Capability{Group: groupOf(h.Group), Role: roleOf(h.Role), Capabilities: narrowed})
	}
	return who, nil
}

// Register adds the person who is the subject of the call's bearer token to a group.
func (s auth) Register(ctx context.Context, r *pb.RegistrationRequest) (*pb.Session, error) {
	bearer, err := s.bearer(ctx)
	if err != nil {
		return nil, err
	}
	identity, err := wire.OptionalUID("identity_id", r.GetIdentityId())
	if err != nil {
		return nil, err
	}
	l, err := s.login.Register(ctx, bearer, r.GetCode(), identity)
	return &pb.Session{Identity: string(l.Identity.UID), Group: string(l.Joined)}, err
}

func (s auth) GetHeadlessSession(ctx context.Context, r *pb.GetHeadlessSessionRequest) (*pb.HeadlessSession, error) {
	h, err := s.login.Headless(ctx, r.GetCode())
	return &pb.HeadlessSession{
		EcdhPublicKey: h.PublicKey, EncryptedIdtoken: h.Token, EncryptedRefreshToken: h.RefreshToken,
	}, err
}

func (s auth) Delete(ctx context.Context, r *pb.DeletionRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.people.DeleteSelf)
}
