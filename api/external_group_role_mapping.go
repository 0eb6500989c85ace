package api

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-dev/holdfast/fault"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/resource"
)

type externalGroupRoleMappings struct {
	iampb.UnsafeExternalGroupRoleMappingsServiceServer
	iam *iam.Service
}

func mappingOf(m resource.ExternalGroupRoleMapping) *iampb.ExternalGroupRoleMapping {
	return &iampb.ExternalGroupRoleMapping{
		Uid: string(m.UID), IdentityProviderUid: string(m.Provider()), ExternalGroupId: m.ExternalGroup,
		RoleUid: string(m.Role), Scope: string(m.Scope), CreateTime: timeOf(m.CreateTime),
	}
}

// CreateExternalGroupRoleMapping is of iampb.ExternalGroupRoleMappingsServiceServer.
func (s externalGroupRoleMappings) CreateExternalGroupRoleMapping(ctx context.Context, r *iampb.CreateExternalGroupRoleMappingRequest) (*iampb.ExternalGroupRoleMapping, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	p := r.GetExternalGroupRoleMapping()
	m, err := s.iam.CreateMapping(ctx, parent, resource.ExternalGroupRoleMapping{
		ExternalGroup: p.GetExternalGroupId(), Role: resource.UID(p.GetRoleUid()), Scope: resource.UID(p.GetScope()),
	})
	if err != nil {
		return nil, err
	}
	return mappingOf(m), nil
}

// GetExternalGroupRoleMapping is of iampb.ExternalGroupRoleMappingsServiceServer.
func (s externalGroupRoleMappings) GetExternalGroupRoleMapping(ctx context.Context, r *iampb.GetExternalGroupRoleMappingRequest) (*iampb.ExternalGroupRoleMapping, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	m, err := s.iam.GetMapping(ctx, uid)
	if err != nil {
		return nil, err
	}
	return mappingOf(m), nil
}

// DeleteExternalGroupRoleMapping is of iampb.ExternalGroupRoleMappingsServiceServer.
func (s externalGroupRoleMappings) DeleteExternalGroupRoleMapping(ctx context.Context, r *iampb.DeleteExternalGroupRoleMappingRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.iam.DeleteMapping(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// BatchDeleteExternalGroupRoleMappings is of iampb.ExternalGroupRoleMappingsServiceServer.
func (s externalGroupRoleMappings) BatchDeleteExternalGroupRoleMappings(ctx context.Context, r *iampb.BatchDeleteExternalGroupRoleMappingsRequest) (*iampb.BatchDeleteExternalGroupRoleMappingsResponse, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	uids, err := readNames("names", r.GetNames())
	if err != nil {
		return nil, err
	}
	gone, err := s.iam.DeleteMappings(ctx, parent, uids)
	if err != nil {
		return nil, err
	}
	return &iampb.BatchDeleteExternalGroupRoleMappingsResponse{
		Parent: r.GetParent(), ExternalGroupRoleMappings: convert(gone, mappingOf),
	}, nil
}

// readNames reads the uids of a batch and reports every one that is none.
func readNames(field string, names []string) ([]resource.UID, error) {
	if len(names) > resource.MaxBatchDelete {
		return nil, fault.Field(field, "must have 1 to %d uids", resource.MaxBatchDelete)
	}
	uids := make([]resource.UID, len(names))
	var bad []fault.Violation
	for i, name := range names {
		uid, err := resource.ParseUID(fmt.Sprintf("%s[%d]", field, i), name)
		if err != nil {
			bad = append(bad, fault.From(err).Fields...)
		}
		uids[i] = uid
	}
	if len(bad) > 0 {
		return nil, fault.Fields(bad)
	}
	return uids, nil
}

// ListExternalGroupRoleMappings is of iampb.ExternalGroupRoleMappingsServiceServer.
func (s externalGroupRoleMappings) ListExternalGroupRoleMappings(ctx context.Context, r *iampb.ListExternalGroupRoleMappingsRequest) (*iampb.ListExternalGroupRoleMappingsResponse, error) {
	f := resource.Filter{Place: placeOf(r)}
	if given := r.GetIdentityProviderUid(); given != "" {
		var err error
		if f.Group, err = resource.ParseUID("identity_provider_uid", given); err != nil {
			return nil, err
		}
	}
	p, err := s.iam.ListMappings(ctx, f, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &iampb.ListExternalGroupRoleMappingsResponse{
		ExternalGroupRoleMappings: convert(p.Items, mappingOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}
