package accessapi

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// MappingOf converts a mapping to a message.
func MappingOf(m resource.ExternalGroupRoleMapping) *pb.ExternalGroupRoleMapping {
	return &pb.ExternalGroupRoleMapping{
		Uid: string(m.UID), IdentityProviderUid: string(m.Provider()), ExternalGroupId: m.ExternalGroup,
		RoleUid: string(m.Role), Scope: string(m.Scope), CreateTime: wire.Time(m.CreateTime),
	}
}

// ReadMapping copies the fields that clients may set from p to m.
func ReadMapping(p *pb.ExternalGroupRoleMapping, m *resource.ExternalGroupRoleMapping) error {
	m.ExternalGroup, m.Role, m.Scope = p.GetExternalGroupId(), resource.UID(p.GetRoleUid()), resource.UID(p.GetScope())
	return nil
}

func (s *server) CreateExternalGroupRoleMapping(
	ctx context.Context, r *pb.CreateExternalGroupRoleMappingRequest,
) (*pb.ExternalGroupRoleMapping, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetExternalGroupRoleMapping(), ReadMapping, s.IAM.CreateMapping,
		MappingOf)
}

func (s *server) GetExternalGroupRoleMapping(
	ctx context.Context, r *pb.GetExternalGroupRoleMappingRequest,
) (*pb.ExternalGroupRoleMapping, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.IAM.GetMapping, MappingOf)
}

func (s *server) DeleteExternalGroupRoleMapping(
	ctx context.Context, r *pb.DeleteExternalGroupRoleMappingRequest,
) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.IAM.DeleteMapping)
}

func (s *server) BatchDeleteExternalGroupRoleMappings(
	ctx context.Context, r *pb.BatchDeleteExternalGroupRoleMappingsRequest,
) (*pb.BatchDeleteExternalGroupRoleMappingsResponse, error) {
	deleted, err := DeleteMappings(ctx, s.IAM, "parent", r.GetParent(), "names", r.GetNames())
	return &pb.BatchDeleteExternalGroupRoleMappingsResponse{
		Parent: r.GetParent(), ExternalGroupRoleMappings: wire.Convert(deleted, MappingOf),
	}, err
}

// DeleteMappings deletes a batch of mappings and returns them. The error names the given
// fields of the request, and lists every text that is not a UID.
func DeleteMappings(
	ctx context.Context, s *iam.Service, parentField, parent, field string, texts []string,
) ([]resource.ExternalGroupRoleMapping, error) {
	provider, err := resource.ParseUID(parentField, parent)
	if err != nil {
		return nil, err
	}
	if len(texts) > resource.MaxBatchDelete {
		return nil, fault.Field(field, "must have 1 to %d uids", resource.MaxBatchDelete)
	}
	uids := make([]resource.UID, len(texts))
	var bad wire.Problems
	for i, text := range texts {
		uids[i] = bad.UID(fmt.Sprintf("%s[%d]", field, i), text)
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	return s.DeleteMappings(ctx, provider, field, uids)
}

func (s *server) ListExternalGroupRoleMappings(
	ctx context.Context, r *pb.ListExternalGroupRoleMappingsRequest,
) (*pb.ListExternalGroupRoleMappingsResponse, error) {
	provider, err := wire.OptionalUID("identity_provider_uid", r.GetIdentityProviderUid())
	if err != nil {
		return nil, err
	}
	p, err := wire.List(ctx, r, resource.Filter{UIDs: wire.UIDFilter(r.GetUidp()), Group: provider}, s.IAM.ListMappings,
		MappingOf)
	return &pb.ListExternalGroupRoleMappingsResponse{
		ExternalGroupRoleMappings: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped,
	}, err
}
