package api

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/login"
	"github.com/holdfast-dev/holdfast/resource"
)

type auth struct {
	authpb.UnsafeAuthServer
	login  *login.Service
	iam    *iam.Service
	issuer string
}

// Validate is of authpb.AuthServer.
func (s auth) Validate(ctx context.Context, _ *emptypb.Empty) (*authpb.WhoAmI, error) {
	c, i, vouching, all, err := s.iam.Myself(ctx)
	if err != nil {
		return nil, err
	}
	var narrowed []string
	if c.Caps != nil {
		narrowed = convert(c.Caps.All(), resource.Capability.String)
	}
	who := &authpb.WhoAmI{
		Issuer: s.issuer, Subject: string(c.Identity), Audience: c.Audience, Expiry: timeOf(c.Expires), IssuedAt: timeOf(c.Issued),
		Email: i.Email, Profile: &authpb.Profile{Name: i.Name},
		IdentityProvider: string(vouching.UID), IdentityProviderName: vouching.Name, IdentityProviderTrusted: vouching.Trusted,
	}
	for _, h := range all {
		who.Capabilities = append(who.Capabilities, &authpb.WhoAmI_Capability{Group: groupV1(h.Group), Role: roleV1(h.Role), Capabilities: narrowed})
	}
	return who, nil
}

// Register is of authpb.AuthServer. The bearer of the call is who joins.
func (s auth) Register(ctx context.Context, r *authpb.RegistrationRequest) (*authpb.Session, error) {
	o := originOf(ctx)
	if o.err != nil {
		return nil, o.err
	}
	var identity resource.UID
	if r.GetIdentityId() != "" {
		var err error
		if identity, err = resource.ParseUID("identity_id", r.GetIdentityId()); err != nil {
			return nil, err
		}
	}
	l, err := s.login.Register(ctx, o.token, r.GetCode(), identity)
	if err != nil {
		return nil, err
	}
	return &authpb.Session{Identity: string(l.Identity.UID), Group: string(l.Joined)}, nil
}

// GetHeadlessSession is of authpb.AuthServer.
func (s auth) GetHeadlessSession(ctx context.Context, r *authpb.GetHeadlessSessionRequest) (*authpb.HeadlessSession, error) {
	h, err := s.login.Headless(ctx, r.GetCode())
	if err != nil {
		return nil, err
	}
	return &authpb.HeadlessSession{EcdhPublicKey: h.PublicKey, EncryptedIdtoken: h.Token, EncryptedRefreshToken: h.RefreshToken}, nil
}

// Delete is of authpb.AuthServer.
func (s auth) Delete(ctx context.Context, r *authpb.DeletionRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	if err := s.login.DeleteSelf(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}
