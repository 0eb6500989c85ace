package accessapi

import (
	"context"
	"crypto/rand"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// ProviderOf converts a provider to a message, without its secret and without the state of its directory, which only
// GetIdentityProvider returns.
func ProviderOf(i resource.IdentityProvider) *pb.IdentityProvider {
	p := &pb.IdentityProvider{
		Uid: string(i.UID), Name: i.Name, Description: i.Description, DefaultRole: string(i.DefaultRole),
		CreateTime: wire.Time(i.CreateTime), UpdateTime: wire.Time(i.UpdateTime), Disabled: i.Disabled, Trusted: i.Trusted,
		SharedRedirect: i.SharedRedirect,
	}
	if o := i.OIDC; o != nil {
		p.Configuration = &pb.IdentityProvider_Oidc{Oidc: &pb.IdentityProvider_OIDC{
			Issuer: o.Issuer, ClientId: o.ClientID, AdditionalScopes: o.AdditionalScopes, GroupsClaim: o.GroupsClaim,
			CorrelationRule: pb.IdentityProvider_OIDC_CorrelationRule(o.CorrelationRule), PkceEnabled: o.PKCE,
		}}
	}
	return p
}

// ReadProvider copies the fields that clients may set from p to i, with the secret in
// plain text.
func ReadProvider(p *pb.IdentityProvider, i *resource.IdentityProvider) error {
	i.Name, i.Description, i.DefaultRole, i.OIDC = p.GetName(), p.GetDescription(), resource.UID(p.GetDefaultRole()), nil
	i.Disabled, i.SharedRedirect = p.GetDisabled(), p.GetSharedRedirect()
	if o := p.GetOidc(); o != nil {
		i.OIDC = &resource.OIDC{
			Issuer: o.GetIssuer(), ClientID: o.GetClientId(), ClientSecret: resource.Secret{Plain: o.GetClientSecret()},
			AdditionalScopes: o.GetAdditionalScopes(), GroupsClaim: o.GetGroupsClaim(),
			CorrelationRule: resource.CorrelationRule(o.GetCorrelationRule()), PKCE: o.GetPkceEnabled(),
		}
	}
	return nil
}

func (s *server) CreateIdentityProvider(
	ctx context.Context, r *pb.CreateIdentityProviderRequest,
) (*pb.IdentityProvider, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetIdentityProvider(), ReadProvider, s.IAM.CreateProvider,
		ProviderOf)
}

func (s *server) GetIdentityProvider(
	ctx context.Context, r *pb.GetIdentityProviderRequest,
) (*pb.IdentityProvider, error) {
	p, err := wire.Get(ctx, "uid", r.GetUid(), s.IAM.GetProvider, ProviderOf)
	if err != nil {
		return nil, err
	}
	return withDirectory(ctx, s.Directories, resource.UID(r.GetUid()), p)
}

func (s *server) UpdateIdentityProvider(
	ctx context.Context, r *pb.UpdateIdentityProviderRequest,
) (*pb.IdentityProvider, error) {
	if err := wire.Require("identity_provider", r.GetIdentityProvider()); err != nil {
		return nil, err
	}
	return wire.Get(ctx, "uid", r.GetIdentityProvider().GetUid(),
		func(ctx context.Context, uid resource.UID) (resource.IdentityProvider, error) {
			return s.IAM.UpdateProvider(ctx, uid, r.GetKeepPeople(),
				func(i *resource.IdentityProvider) error { return changeProvider(r, i) })
		}, ProviderOf)
}

// changeProvider applies r to i. The stored secret cannot be written into a message,
// so the message contains a random placeholder while the mask is applied. If the
// placeholder is still there afterwards, the secret is kept.
func changeProvider(r *pb.UpdateIdentityProviderRequest, i *resource.IdentityProvider) error {
	placeholder, secret := rand.Text(), i.OIDC.ClientSecret
	p := ProviderOf(*i)
	p.GetOidc().ClientSecret = placeholder
	if err := wire.Apply(r.GetUpdateMask(), r.GetIdentityProvider(), p); err != nil {
		return err
	}
	if err := ReadProvider(p, i); err != nil {
		return err
	}
	if i.OIDC != nil && i.OIDC.ClientSecret.Plain == placeholder {
		i.OIDC.ClientSecret = secret
	}
	return nil
}

func (s *server) DeleteIdentityProvider(
	ctx context.Context, r *pb.DeleteIdentityProviderRequest,
) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.IAM.DeleteProvider)
}

func (s *server) ListIdentityProviders(
	ctx context.Context, r *pb.ListIdentityProvidersRequest,
) (*pb.ListIdentityProvidersResponse, error) {
	p, err := wire.List(ctx, r, wire.Filter(r), s.IAM.ListProviders, ProviderOf)
	return &pb.ListIdentityProvidersResponse{
		IdentityProviders: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}
