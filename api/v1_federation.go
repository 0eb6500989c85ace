package api

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	iamv1pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/sts"
)

type identityProvidersV1 struct {
	iamv1pb.UnsafeIdentityProvidersServer
	iam *iam.Service
}

// providerV1 writes a provider, without its secret.
func providerV1(i resource.IdentityProvider) *iamv1pb.IdentityProvider {
	p := &iamv1pb.IdentityProvider{Id: string(i.UID), Name: i.Name, Description: i.Description, DefaultRole: string(i.DefaultRole)}
	if o, err := recode(providerOf(i).GetOidc(), &iamv1pb.IdentityProvider_OIDC{}); err == nil && i.OIDC != nil { // the two have the same fields
		p.Configuration = &iamv1pb.IdentityProvider_Oidc{Oidc: o}
	}
	return p
}

func readProviderV1(p *iamv1pb.IdentityProvider, i *resource.IdentityProvider) error {
	v2 := &iampb.IdentityProvider{Name: p.GetName(), Description: p.GetDescription(), DefaultRole: p.GetDefaultRole()}
	if p.GetOidc() != nil {
		o, err := recode(p.GetOidc(), &iampb.IdentityProvider_OIDC{})
		if err != nil {
			return err
		}
		v2.Configuration = &iampb.IdentityProvider_Oidc{Oidc: o}
	}
	readProvider(v2, i)
	return nil
}

// Create is of iamv1pb.IdentityProvidersServer.
func (s identityProvidersV1) Create(ctx context.Context, r *iamv1pb.CreateIdentityProviderRequest) (*iamv1pb.IdentityProvider, error) {
	parent, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	var i resource.IdentityProvider
	if err := readProviderV1(r.GetIdentityProvider(), &i); err != nil {
		return nil, err
	}
	if i, err = s.iam.CreateProvider(ctx, parent, i); err != nil {
		return nil, err
	}
	return providerV1(i), nil
}

// Update is of iamv1pb.IdentityProvidersServer. A secret that is left out stays.
func (s identityProvidersV1) Update(ctx context.Context, r *iamv1pb.IdentityProvider) (*iamv1pb.IdentityProvider, error) {
	uid, err := resource.ParseUID("id", r.GetId())
	if err != nil {
		return nil, err
	}
	i, err := s.iam.UpdateProvider(ctx, uid, false, func(i *resource.IdentityProvider) error {
		before := i.OIDC
		if err := readProviderV1(r, i); err != nil {
			return err
		}
		if before != nil && i.OIDC != nil && i.OIDC.ClientSecret.Plain == "" {
			i.OIDC.ClientSecret = before.ClientSecret
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return providerV1(i), nil
}

// List is of iamv1pb.IdentityProvidersServer.
func (s identityProvidersV1) List(ctx context.Context, r *iamv1pb.IdentityProviderFilter) (*iamv1pb.IdentityProviderList, error) {
	f := resource.Filter{Place: placeV1(r.GetUidp(), r.GetId()), Name: r.GetName()}
	all, err := everything(func(p page.Params) (page.Page[resource.IdentityProvider], error) {
		return s.iam.ListProviders(ctx, f, p)
	})
	if err != nil {
		return nil, err
	}
	return &iamv1pb.IdentityProviderList{Items: convert(all, providerV1)}, nil
}

// Delete is of iamv1pb.IdentityProvidersServer.
func (s identityProvidersV1) Delete(ctx context.Context, r *iamv1pb.DeleteIdentityProviderRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "id", r.GetId(), s.iam.DeleteProvider)
}

type groupInvitesV1 struct {
	iamv1pb.UnsafeGroupInvitesServer
	iam *iam.Service
}

// inviteRoleV1 is the role an invite promises, or none if it is gone.
func inviteRoleV1(i resource.GroupInvite) *iamv1pb.Role {
	if i.RoleInfo.UID == "" {
		return nil
	}
	return roleV1(i.RoleInfo)
}

func inviteV1(i resource.GroupInvite) *iamv1pb.StoredGroupInvite {
	return &iamv1pb.StoredGroupInvite{
		Id: string(i.UID), Expiration: timeOf(i.ExpirationTime), KeyId: i.KeyID, Role: inviteRoleV1(i),
		Email: i.Email, CreatedAt: timeOf(i.CreateTime), SingleUse: i.SingleUse,
	}
}

// Create is of iamv1pb.GroupInvitesServer.
func (s groupInvitesV1) Create(ctx context.Context, r *iamv1pb.GroupInviteRequest) (*iamv1pb.GroupInvite, error) {
	group, err := resource.ParseUID("group", r.GetGroup())
	if err != nil {
		return nil, err
	}
	if ttl := r.GetTtl(); ttl != nil && ttl.CheckValid() != nil {
		return nil, fault.Field("ttl", "is not a duration")
	}
	i, err := s.iam.CreateInvite(ctx, group, resource.GroupInvite{
		Role: resource.UID(r.GetRole()), Email: r.GetEmail(), SingleUse: r.GetSingleUse(),
	}, r.GetTtl().AsDuration())
	if err != nil {
		return nil, err
	}
	return &iamv1pb.GroupInvite{Id: string(i.UID), Expiration: timeOf(i.ExpirationTime), KeyId: i.KeyID, Role: inviteRoleV1(i), Code: i.Code}, nil
}

// CreateWithGroup is of iamv1pb.GroupInvitesServer.
func (s groupInvitesV1) CreateWithGroup(ctx context.Context, r *iamv1pb.GroupInviteRequest) (*iamv1pb.GroupInvite, error) {
	return s.Create(ctx, r)
}

// List is of iamv1pb.GroupInvitesServer.
func (s groupInvitesV1) List(ctx context.Context, r *iamv1pb.GroupInviteFilter) (*iamv1pb.GroupInviteList, error) {
	f := resource.Filter{Place: placeV1(nil, r.GetId()), KeyID: r.GetKeyId()}
	if r.GetGroup() != "" {
		f.Place.ChildrenOf = resource.UID(r.GetGroup())
	}
	all, err := everything(func(p page.Params) (page.Page[resource.GroupInvite], error) { return s.iam.ListInvites(ctx, f, p) })
	if err != nil {
		return nil, err
	}
	return &iamv1pb.GroupInviteList{Items: convert(all, inviteV1)}, nil
}

// Delete is of iamv1pb.GroupInvitesServer.
func (s groupInvitesV1) Delete(ctx context.Context, r *iamv1pb.DeleteGroupInviteRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "id", r.GetId(), s.iam.DeleteInvite)
}

type externalGroupRoleMappingsV1 struct {
	iamv1pb.UnsafeExternalGroupRoleMappingsServer
	iam *iam.Service
}

func mappingV1(m resource.ExternalGroupRoleMapping) *iamv1pb.ExternalGroupRoleMapping {
	return &iamv1pb.ExternalGroupRoleMapping{
		Id: string(m.UID), IdentityProviderUidp: string(m.Provider()), ExternalGroupId: m.ExternalGroup,
		RoleUidp: string(m.Role), Scope: string(m.Scope), CreatedAt: timeOf(m.CreateTime),
	}
}

// Create is of iamv1pb.ExternalGroupRoleMappingsServer.
func (s externalGroupRoleMappingsV1) Create(ctx context.Context, r *iamv1pb.CreateExternalGroupRoleMappingRequest) (*iamv1pb.ExternalGroupRoleMapping, error) {
	parent, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	p := r.GetMapping()
	m, err := s.iam.CreateMapping(ctx, parent, resource.ExternalGroupRoleMapping{
		ExternalGroup: p.GetExternalGroupId(), Role: resource.UID(p.GetRoleUidp()), Scope: resource.UID(p.GetScope()),
	})
	if err != nil {
		return nil, err
	}
	return mappingV1(m), nil
}

// Get is of iamv1pb.ExternalGroupRoleMappingsServer.
func (s externalGroupRoleMappingsV1) Get(ctx context.Context, r *iamv1pb.GetExternalGroupRoleMappingRequest) (*iamv1pb.ExternalGroupRoleMapping, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	m, err := s.iam.GetMapping(ctx, uid)
	if err != nil {
		return nil, err
	}
	return mappingV1(m), nil
}

// List is of iamv1pb.ExternalGroupRoleMappingsServer.
func (s externalGroupRoleMappingsV1) List(ctx context.Context, r *iamv1pb.ExternalGroupRoleMappingFilter) (*iamv1pb.ExternalGroupRoleMappingList, error) {
	f := resource.Filter{Place: placeIn(r.GetUidp())}
	if given := r.GetIdentityProviderUidp(); given != "" {
		var err error
		if f.Group, err = resource.ParseUID("identity_provider_uidp", given); err != nil {
			return nil, err
		}
	}
	all, err := everything(func(p page.Params) (page.Page[resource.ExternalGroupRoleMapping], error) {
		return s.iam.ListMappings(ctx, f, p)
	})
	if err != nil {
		return nil, err
	}
	return &iamv1pb.ExternalGroupRoleMappingList{Items: convert(all, mappingV1)}, nil
}

// Delete is of iamv1pb.ExternalGroupRoleMappingsServer.
func (s externalGroupRoleMappingsV1) Delete(ctx context.Context, r *iamv1pb.DeleteExternalGroupRoleMappingRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "id", r.GetId(), s.iam.DeleteMapping)
}

// BatchDelete is of iamv1pb.ExternalGroupRoleMappingsServer.
func (s externalGroupRoleMappingsV1) BatchDelete(ctx context.Context, r *iamv1pb.BatchDeleteExternalGroupRoleMappingsRequest) (*iamv1pb.BatchDeleteExternalGroupRoleMappingsResponse, error) {
	parent, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	uids, err := readNames("ids", r.GetIds())
	if err != nil {
		return nil, err
	}
	gone, err := s.iam.DeleteMappings(ctx, parent, uids)
	if err != nil {
		return nil, err
	}
	return &iamv1pb.BatchDeleteExternalGroupRoleMappingsResponse{ParentId: r.GetParentId(), Items: convert(gone, mappingV1)}, nil
}

type accountAssociationsV1 struct {
	iamv1pb.UnsafeGroupAccountAssociationsServer
	iam *iam.Service
	sts *sts.Service
}

// associationV1 writes an association. Its parts have the same fields in both
// versions; the whole numbers them differently.
func associationV1(a resource.AccountAssociation) (p *iamv1pb.AccountAssociations, err error) {
	v2 := associationOf(a)
	p = &iamv1pb.AccountAssociations{Group: v2.GetUid(), Name: v2.GetName(), Description: v2.GetDescription()}
	if m := v2.GetAmazon(); m != nil {
		p.Amazon = &iamv1pb.AccountAssociations_Amazon{Account: m.GetAccount()}
	}
	if m := v2.GetGoogle(); m != nil {
		p.Google = &iamv1pb.AccountAssociations_Google{ProjectId: m.GetProjectId(), ProjectNumber: m.GetProjectNumber()}
	}
	if m := v2.GetAzure(); m != nil {
		p.Azure = &iamv1pb.AccountAssociations_Azure{TenantId: m.GetTenantId(), ClientIds: m.GetClientIds()}
	}
	if m := v2.GetGithub(); m != nil {
		p.Github, err = recode(m, &iamv1pb.AccountAssociations_GitHub{})
	}
	if m := serviceBindings(v2); m != nil {
		setServiceBindingsV1(p, &iamv1pb.AccountAssociations_ServiceBindings{ServiceBindings: m.GetServiceBindings()})
	}
	return p, err
}

func readAssociationV1(p *iamv1pb.AccountAssociations, a *resource.AccountAssociation) (err error) {
	v2 := &iampb.AccountAssociation{Name: p.GetName(), Description: p.GetDescription()}
	if m := p.GetAmazon(); m != nil {
		v2.Amazon = &iampb.AccountAssociation_Amazon{Account: m.GetAccount()}
	}
	if m := p.GetGoogle(); m != nil {
		v2.Google = &iampb.AccountAssociation_Google{ProjectId: m.GetProjectId(), ProjectNumber: m.GetProjectNumber()}
	}
	if m := p.GetAzure(); m != nil {
		v2.Azure = &iampb.AccountAssociation_Azure{TenantId: m.GetTenantId(), ClientIds: m.GetClientIds()}
	}
	if m := p.GetGithub(); m != nil {
		if v2.Github, err = recode(m, &iampb.AccountAssociation_GitHub{}); err != nil {
			return err
		}
	}
	if m := serviceBindingsV1(p); m != nil {
		setServiceBindings(v2, &iampb.AccountAssociation_ServiceBindings{ServiceBindings: m.GetServiceBindings()})
	}
	readAssociation(v2, a)
	return nil
}

// Create is of iamv1pb.GroupAccountAssociationsServer.
func (s accountAssociationsV1) Create(ctx context.Context, r *iamv1pb.AccountAssociations) (*iamv1pb.AccountAssociations, error) {
	group, err := resource.ParseUID("group", r.GetGroup())
	if err != nil {
		return nil, err
	}
	var a resource.AccountAssociation
	if err := readAssociationV1(r, &a); err != nil {
		return nil, err
	}
	if a, err = s.iam.CreateAssociation(ctx, group, a); err != nil {
		return nil, err
	}
	return associationV1(a)
}

// Update is of iamv1pb.GroupAccountAssociationsServer.
func (s accountAssociationsV1) Update(ctx context.Context, r *iamv1pb.AccountAssociations) (*iamv1pb.AccountAssociations, error) {
	uid, err := resource.ParseUID("group", r.GetGroup())
	if err != nil {
		return nil, err
	}
	a, err := s.iam.UpdateAssociation(ctx, uid, func(a *resource.AccountAssociation) error { return readAssociationV1(r, a) })
	if err != nil {
		return nil, err
	}
	return associationV1(a)
}

// List is of iamv1pb.GroupAccountAssociationsServer.
func (s accountAssociationsV1) List(ctx context.Context, r *iamv1pb.AccountAssociationsFilter) (*iamv1pb.AccountAssociationsList, error) {
	f := resource.Filter{Place: placeV1(nil, r.GetGroup()), Name: r.GetName()}
	all, err := everything(func(p page.Params) (page.Page[resource.AccountAssociation], error) {
		return s.iam.ListAssociations(ctx, f, p)
	})
	if err != nil {
		return nil, err
	}
	out := &iamv1pb.AccountAssociationsList{}
	for _, a := range all {
		p, err := associationV1(a)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, p)
	}
	return out, nil
}

// Delete is of iamv1pb.GroupAccountAssociationsServer.
func (s accountAssociationsV1) Delete(ctx context.Context, r *iamv1pb.DeleteAccountAssociationsRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, remove(ctx, "group", r.GetGroup(), s.iam.DeleteAssociation)
}

// Check is of iamv1pb.GroupAccountAssociationsServer.
func (s accountAssociationsV1) Check(ctx context.Context, r *iamv1pb.AccountAssociationsCheckRequest) (*iamv1pb.AccountAssociationsStatus, error) {
	uid, err := resource.ParseUID("group", r.GetGroup())
	if err != nil {
		return nil, err
	}
	got, err := s.iam.CheckAssociation(ctx, uid, cloudsV1[r.GetAccountType()], s.sts.TryAccount)
	if err != nil {
		return nil, err
	}
	answer := iamv1pb.AccountAssociationsStatus_NotReady
	if got.Ready {
		answer = iamv1pb.AccountAssociationsStatus_Ready
	}
	return &iamv1pb.AccountAssociationsStatus{Ready: answer, Reason: got.Reason, Message: got.Message}, nil
}

// cloudsV1 are the clouds by the numbers of version 1.
var cloudsV1 = map[iamv1pb.AccountAssociationsCheckRequest_AccountType]resource.ProviderType{
	iamv1pb.AccountAssociationsCheckRequest_GOOGLE: resource.ProviderType(iampb.AccountProviderType_ACCOUNT_PROVIDER_TYPE_GOOGLE),
	iamv1pb.AccountAssociationsCheckRequest_AMAZON: resource.ProviderType(iampb.AccountProviderType_ACCOUNT_PROVIDER_TYPE_AMAZON),
	iamv1pb.AccountAssociationsCheckRequest_AZURE:  resource.ProviderType(iampb.AccountProviderType_ACCOUNT_PROVIDER_TYPE_AZURE),
}
