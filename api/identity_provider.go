package api

import (
	"context"
	"crypto/rand"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

type identityProviders struct {
	iampb.UnsafeIdentityProvidersServiceServer
	iam *iam.Service
}

// providerOf writes a provider, without its secret. There is no SCIM here.
func providerOf(i resource.IdentityProvider) *iampb.IdentityProvider {
	p := &iampb.IdentityProvider{
		Uid: string(i.UID), Name: i.Name, Description: i.Description, DefaultRole: string(i.DefaultRole),
		CreateTime: timeOf(i.CreateTime), UpdateTime: timeOf(i.UpdateTime), Disabled: i.Disabled, Trusted: i.Trusted,
	}
	if o := i.OIDC; o != nil {
		p.Configuration = &iampb.IdentityProvider_Oidc{Oidc: &iampb.IdentityProvider_OIDC{
			Issuer: o.Issuer, ClientId: o.ClientID, AdditionalScopes: o.AdditionalScopes, GroupsClaim: o.GroupsClaim,
			CorrelationRule: iampb.IdentityProvider_OIDC_CorrelationRule(o.CorrelationRule), PkceEnabled: o.PKCE,
		}}
	}
	return p
}

// readProvider reads into i what clients may set, the secret as they sent it.
func readProvider(p *iampb.IdentityProvider, i *resource.IdentityProvider) {
	i.Name, i.Description, i.DefaultRole, i.OIDC = p.GetName(), p.GetDescription(), resource.UID(p.GetDefaultRole()), nil
	i.Disabled = p.GetDisabled()
	if o := p.GetOidc(); o != nil {
		i.OIDC = &resource.OIDC{
			Issuer: o.GetIssuer(), ClientID: o.GetClientId(), ClientSecret: resource.Secret{Plain: o.GetClientSecret()},
			AdditionalScopes: o.GetAdditionalScopes(), GroupsClaim: o.GetGroupsClaim(),
			CorrelationRule: resource.CorrelationRule(o.GetCorrelationRule()), PKCE: o.GetPkceEnabled(),
		}
	}
}

// CreateIdentityProvider is of iampb.IdentityProvidersServiceServer.
func (s identityProviders) CreateIdentityProvider(ctx context.Context, r *iampb.CreateIdentityProviderRequest) (*iampb.IdentityProvider, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	var i resource.IdentityProvider
	readProvider(r.GetIdentityProvider(), &i)
	i, err = s.iam.CreateProvider(ctx, parent, i)
	if err != nil {
		return nil, err
	}
	return providerOf(i), nil
}

// GetIdentityProvider is of iampb.IdentityProvidersServiceServer.
func (s identityProviders) GetIdentityProvider(ctx context.Context, r *iampb.GetIdentityProviderRequest) (*iampb.IdentityProvider, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	i, err := s.iam.GetProvider(ctx, uid)
	if err != nil {
		return nil, err
	}
	return providerOf(i), nil
}

// UpdateIdentityProvider is of iampb.IdentityProvidersServiceServer.
func (s identityProviders) UpdateIdentityProvider(ctx context.Context, r *iampb.UpdateIdentityProviderRequest) (*iampb.IdentityProvider, error) {
	if r.GetIdentityProvider() == nil {
		return nil, fault.Field("identity_provider", "is required")
	}
	uid, err := resource.ParseUID("uid", r.GetIdentityProvider().GetUid())
	if err != nil {
		return nil, err
	}
	i, err := s.iam.UpdateProvider(ctx, uid, r.GetKeepPeople(), func(i *resource.IdentityProvider) error { return changeProvider(r, i) })
	if err != nil {
		return nil, err
	}
	return providerOf(i), nil
}

// changeProvider applies r to i. The secret there is cannot be written into a
// message, so while the mask is applied a word that nobody can send stands for
// it: what the mask leaves alone is kept.
func changeProvider(r *iampb.UpdateIdentityProviderRequest, i *resource.IdentityProvider) error {
	kept, secret := rand.Text(), i.OIDC.ClientSecret
	p := providerOf(*i)
	p.GetOidc().ClientSecret = kept
	if err := apply(r.GetUpdateMask(), r.GetIdentityProvider(), p); err != nil {
		return err
	}
	readProvider(p, i)
	if i.OIDC != nil && i.OIDC.ClientSecret.Plain == kept {
		i.OIDC.ClientSecret = secret
	}
	return nil
}

// DeleteIdentityProvider is of iampb.IdentityProvidersServiceServer.
func (s identityProviders) DeleteIdentityProvider(ctx context.Context, r *iampb.DeleteIdentityProviderRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.iam.DeleteProvider(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// ListIdentityProviders is of iampb.IdentityProvidersServiceServer.
func (s identityProviders) ListIdentityProviders(ctx context.Context, r *iampb.ListIdentityProvidersRequest) (*iampb.ListIdentityProvidersResponse, error) {
	p, err := s.iam.ListProviders(ctx, resource.Filter{Place: placeOf(r), Name: r.GetName()}, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &iampb.ListIdentityProvidersResponse{
		IdentityProviders: convert(p.Items, providerOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}
