package registryapi

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// TagOf converts a tag to a message.
func TagOf(t registry.Tag) *pb.Tag {
	return &pb.Tag{
		Uid: string(t.UID), Name: t.Name, Digest: t.Digest, UpdateTime: wire.Time(t.UpdateTime),
		Deprecated: t.Deprecated, Bundles: t.Bundles, CreateTime: wire.Time(t.CreateTime),
	}
}

// ReadTag copies the fields that clients may set from p to t.
func ReadTag(p *pb.Tag, t *registry.Tag) error {
	*t = registry.Tag{Name: p.GetName(), Digest: p.GetDigest(), Deprecated: p.GetDeprecated(), Bundles: p.GetBundles()}
	return nil
}

func (s *server) CreateTag(ctx context.Context, r *pb.CreateTagRequest) (*pb.Tag, error) {
	return wire.Create(ctx, "parent", r.GetParent(), r.GetTag(), ReadTag, s.Registry.CreateTag, TagOf)
}

func (s *server) GetTag(ctx context.Context, r *pb.GetTagRequest) (*pb.Tag, error) {
	return wire.Get(ctx, "uid", r.GetUid(), s.Registry.GetTag, TagOf)
}

func (s *server) DeleteTag(ctx context.Context, r *pb.DeleteTagRequest) (*emptypb.Empty, error) {
	return wire.Delete(ctx, "uid", r.GetUid(), s.Registry.DeleteTag)
}

func (s *server) ListTags(ctx context.Context, r *pb.ListTagsRequest) (*pb.ListTagsResponse, error) {
	since, err := wire.ReadTime("updated_since", r.GetUpdatedSince())
	if err != nil {
		return nil, err
	}
	f := resource.Filter{
		UIDs: wire.UIDFilter(r.GetUidp()), Name: r.GetName(), Digest: r.GetDigest(), UpdatedSince: since,
		Classes: classesOf(r),
	}
	p, err := wire.List(ctx, r, f, s.Registry.ListTags, TagOf)
	return &pb.ListTagsResponse{Tags: p.Items, NextPageToken: p.Next, TotalCount: p.Total, Skipped: p.Skipped}, err
}

// classesOf returns the classes of tags that a request asks for in addition to plain
// tags.
func classesOf(r *pb.ListTagsRequest) (classes []resource.TagClass) {
	if r.GetIncludeReferrers() {
		classes = append(classes, resource.ReferrerTag)
	}
	if r.GetIncludeDates() {
		classes = append(classes, resource.DateTag)
	}
	if r.GetIncludeEpochs() {
		classes = append(classes, resource.EpochTag)
	}
	return classes
}
