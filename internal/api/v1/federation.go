package v1

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	iamv2pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/v2/accessapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

type identityProviders struct {
	iampb.UnsafeIdentityProvidersServer
	iam         *iam.Service
	directories *scim.Service
}

var (
	providerOf   = writer[*iampb.IdentityProvider](accessapi.ProviderOf)
	readProvider = reader[*iampb.IdentityProvider](accessapi.ReadProvider)
)

func (s identityProviders) Create(
	ctx context.Context, r *iampb.CreateIdentityProviderRequest,
) (*iampb.IdentityProvider, error) {
	return wire.Create(ctx, "parent_id", r.GetParentId(), r.GetIdentityProvider(), readProvider, s.iam.CreateProvider,
		providerOf)
}

// Update replaces the fields of a provider. It keeps the secret if the request has none.
func (s identityProviders) Update(ctx context.Context, r *iampb.IdentityProvider) (*iampb.IdentityProvider, error) {
	read := func(p *iampb.IdentityProvider, i *resource.IdentityProvider) error {
		before := i.OIDC
		if err := readProvider(p, i); err != nil {
			return err
		}
		if before != nil && i.OIDC != nil && i.OIDC.ClientSecret.Plain == "" {
			i.OIDC.ClientSecret = before.ClientSecret
		}
		return nil
	}
	update := func(ctx context.Context, uid resource.UID,
		change func(*resource.IdentityProvider) error) (resource.IdentityProvider, error) {
		return s.iam.UpdateProvider(ctx, uid, false, change)
	}
	return wire.Replace(ctx, "id", r.GetId(), r, read, update, providerOf)
}

func (s identityProviders) List(
	ctx context.Context, r *iampb.IdentityProviderFilter,
) (*iampb.IdentityProviderList, error) {
	f := resource.Filter{UIDs: place(r.GetUidp(), r.GetId()), Name: r.GetName()}
	items, err := everything(ctx, f, s.iam.ListProviders, providerOf)
	return &iampb.IdentityProviderList{Items: items}, err
}

func (s identityProviders) Delete(ctx context.Context, r *iampb.DeleteIdentityProviderRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.iam.DeleteProvider)
}

// scimField is the field of the requests about directories that has the UID of the provider.
const scimField = "identity_provider_id"

func (s identityProviders) GenerateScimToken(
	ctx context.Context, r *iampb.GenerateScimTokenRequest,
) (*iampb.GenerateScimTokenResponse, error) {
	request := translate(r, &iamv2pb.GenerateScimTokenRequest{})
	out, err := accessapi.GenerateScimToken(ctx, s.directories, scimField, request)
	if err != nil {
		return nil, err
	}
	return translate(out, &iampb.GenerateScimTokenResponse{}), nil
}

func (s identityProviders) RegenerateScimToken(
	ctx context.Context, r *iampb.RegenerateScimTokenRequest,
) (*iampb.RegenerateScimTokenResponse, error) {
	request := translate(r, &iamv2pb.RegenerateScimTokenRequest{})
	out, err := accessapi.RegenerateScimToken(ctx, s.directories, scimField, request)
	if err != nil {
		return nil, err
	}
	return translate(out, &iampb.RegenerateScimTokenResponse{}), nil
}

func (s identityProviders) RevokeScimToken(
	ctx context.Context, r *iampb.RevokeScimTokenRequest,
) (*iampb.RevokeScimTokenResponse, error) {
	out, err := accessapi.RevokeScimToken(ctx, s.directories, scimField, translate(r, &iamv2pb.RevokeScimTokenRequest{}))
	if err != nil {
		return nil, err
	}
	return translate(out, &iampb.RevokeScimTokenResponse{}), nil
}

func (s identityProviders) SetScimEnabled(
	ctx context.Context, r *iampb.SetScimEnabledRequest,
) (*iampb.SetScimEnabledResponse, error) {
	out, err := accessapi.SetScimEnabled(ctx, s.directories, scimField, translate(r, &iamv2pb.SetScimEnabledRequest{}))
	if err != nil {
		return nil, err
	}
	return translate(out, &iampb.SetScimEnabledResponse{}), nil
}

type groupInvites struct {
	iampb.UnsafeGroupInvitesServer
	iam *iam.Service
}

var (
	newInviteOf    = writer[*iampb.GroupInvite](accessapi.InviteOf)
	storedInviteOf = writer[*iampb.StoredGroupInvite](accessapi.InviteOf)
)

// invitedRole returns the role that an invite promises, or nil if the role was
// deleted. Version 1 identifies capabilities by their names.
func invitedRole(i resource.GroupInvite) *iampb.Role {
	if i.RoleInfo.UID == "" {
		return nil
	}
	return roleOf(i.RoleInfo)
}

func (s groupInvites) Create(ctx context.Context, r *iampb.GroupInviteRequest) (*iampb.GroupInvite, error) {
	i := resource.GroupInvite{Role: resource.UID(r.GetRole()), Email: r.GetEmail(), SingleUse: r.GetSingleUse()}
	return accessapi.CreateInvite(ctx, s.iam, "group", r.GetGroup(), i, r.GetTtl(),
		func(i resource.GroupInvite) *iampb.GroupInvite {
			p := newInviteOf(i)
			p.Role = invitedRole(i)
			return p
		})
}

func (s groupInvites) CreateWithGroup(ctx context.Context, r *iampb.GroupInviteRequest) (*iampb.GroupInvite, error) {
	return s.Create(ctx, r)
}

func (s groupInvites) List(ctx context.Context, r *iampb.GroupInviteFilter) (*iampb.GroupInviteList, error) {
	f := resource.Filter{UIDs: place(nil, r.GetId()), KeyID: r.GetKeyId()}
	if r.GetGroup() != "" {
		f.UIDs.ChildrenOf = resource.UID(r.GetGroup())
	}
	items, err := everything(ctx, f, s.iam.ListInvites, func(i resource.GroupInvite) *iampb.StoredGroupInvite {
		p := storedInviteOf(i)
		p.Role = invitedRole(i)
		return p
	})
	return &iampb.GroupInviteList{Items: items}, err
}

func (s groupInvites) Delete(ctx context.Context, r *iampb.DeleteGroupInviteRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.iam.DeleteInvite)
}

type externalGroupRoleMappings struct {
	iampb.UnsafeExternalGroupRoleMappingsServer
	iam *iam.Service
}

var (
	mappingOf   = writer[*iampb.ExternalGroupRoleMapping](accessapi.MappingOf)
	readMapping = reader[*iampb.ExternalGroupRoleMapping](accessapi.ReadMapping)
)

func (s externalGroupRoleMappings) Create(
	ctx context.Context, r *iampb.CreateExternalGroupRoleMappingRequest,
) (*iampb.ExternalGroupRoleMapping, error) {
	return wire.Create(ctx, "parent_id", r.GetParentId(), r.GetMapping(), readMapping, s.iam.CreateMapping, mappingOf)
}

func (s externalGroupRoleMappings) Get(
	ctx context.Context, r *iampb.GetExternalGroupRoleMappingRequest,
) (*iampb.ExternalGroupRoleMapping, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.iam.GetMapping, mappingOf)
}

func (s externalGroupRoleMappings) List(
	ctx context.Context, r *iampb.ExternalGroupRoleMappingFilter,
) (*iampb.ExternalGroupRoleMappingList, error) {
	provider, err := wire.OptionalUID("identity_provider_uidp", r.GetIdentityProviderUidp())
	if err != nil {
		return nil, err
	}
	f := resource.Filter{UIDs: wire.UIDFilter(r.GetUidp()), Group: provider}
	items, err := everything(ctx, f, s.iam.ListMappings, mappingOf)
	return &iampb.ExternalGroupRoleMappingList{Items: items}, err
}

func (s externalGroupRoleMappings) Delete(
	ctx context.Context, r *iampb.DeleteExternalGroupRoleMappingRequest,
) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "id", r.GetId(), s.iam.DeleteMapping)
}

func (s externalGroupRoleMappings) BatchDelete(
	ctx context.Context, r *iampb.BatchDeleteExternalGroupRoleMappingsRequest,
) (*iampb.BatchDeleteExternalGroupRoleMappingsResponse, error) {
	deleted, err := accessapi.DeleteMappings(ctx, s.iam, "parent_id", r.GetParentId(), "ids", r.GetIds())
	return &iampb.BatchDeleteExternalGroupRoleMappingsResponse{
		ParentId: r.GetParentId(), Items: wire.Convert(deleted, mappingOf),
	}, err
}

type accountAssociations struct {
	iampb.UnsafeGroupAccountAssociationsServer
	iam *iam.Service
	sts *sts.Service
}

var (
	associationOf   = writer[*iampb.AccountAssociations](accessapi.AssociationOf)
	readAssociation = reader[*iampb.AccountAssociations](accessapi.ReadAssociation)
)

func (s accountAssociations) Create(
	ctx context.Context, r *iampb.AccountAssociations,
) (*iampb.AccountAssociations, error) {
	return wire.Create(ctx, "group", r.GetGroup(), r, readAssociation, s.iam.CreateAssociation, associationOf)
}

func (s accountAssociations) Update(
	ctx context.Context, r *iampb.AccountAssociations,
) (*iampb.AccountAssociations, error) {
	return wire.Replace(ctx, "group", r.GetGroup(), r, readAssociation, s.iam.UpdateAssociation, associationOf)
}

func (s accountAssociations) List(
	ctx context.Context, r *iampb.AccountAssociationsFilter,
) (*iampb.AccountAssociationsList, error) {
	f := resource.Filter{UIDs: place(nil, r.GetGroup()), Name: r.GetName()}
	items, err := everything(ctx, f, s.iam.ListAssociations, associationOf)
	return &iampb.AccountAssociationsList{Items: items}, err
}

func (s accountAssociations) Delete(
	ctx context.Context, r *iampb.DeleteAccountAssociationsRequest,
) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "group", r.GetGroup(), s.iam.DeleteAssociation)
}

func (s accountAssociations) Check(
	ctx context.Context, r *iampb.AccountAssociationsCheckRequest,
) (*iampb.AccountAssociationsStatus, error) {
	uid, err := resource.ParseUID("group", r.GetGroup())
	if err != nil {
		return nil, err
	}
	got, err := s.iam.CheckAssociation(ctx, uid, clouds[r.GetAccountType()], s.sts.TryAccount)
	answer := iampb.AccountAssociationsStatus_NotReady
	if got.Ready {
		answer = iampb.AccountAssociationsStatus_Ready
	}
	return &iampb.AccountAssociationsStatus{Ready: answer, Reason: got.Reason, Message: got.Message}, err
}

// clouds maps the account types of version 1 to the types of cloud providers.
var clouds = map[iampb.AccountAssociationsCheckRequest_AccountType]resource.ProviderType{
	iampb.AccountAssociationsCheckRequest_GOOGLE: resource.ProviderType(
		iamv2pb.AccountProviderType_ACCOUNT_PROVIDER_TYPE_GOOGLE),
	iampb.AccountAssociationsCheckRequest_AMAZON: resource.ProviderType(
		iamv2pb.AccountProviderType_ACCOUNT_PROVIDER_TYPE_AMAZON),
	iampb.AccountAssociationsCheckRequest_AZURE: resource.ProviderType(
		iamv2pb.AccountProviderType_ACCOUNT_PROVIDER_TYPE_AZURE),
}
