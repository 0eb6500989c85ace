package api

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/resource"
)

type tags struct {
	registrypb.UnsafeTagsServiceServer
	registry *registry.Service
}

// tagOf writes a tag.
func tagOf(t resource.Tag) *registrypb.Tag {
	return &registrypb.Tag{
		Uid: string(t.UID), Name: t.Name, Digest: t.Digest, UpdateTime: timeOf(t.UpdateTime),
		Deprecated: t.Deprecated, Bundles: t.Bundles,
	}
}

// CreateTag is of registrypb.TagsServiceServer.
func (s tags) CreateTag(ctx context.Context, r *registrypb.CreateTagRequest) (*registrypb.Tag, error) {
	repo, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	p := r.GetTag()
	t, err := s.registry.CreateTag(ctx, repo, resource.Tag{
		Name: p.GetName(), Digest: p.GetDigest(), Deprecated: p.GetDeprecated(), Bundles: p.GetBundles(),
	})
	if err != nil {
		return nil, err
	}
	return tagOf(t), nil
}

// GetTag is of registrypb.TagsServiceServer.
func (s tags) GetTag(ctx context.Context, r *registrypb.GetTagRequest) (*registrypb.Tag, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	t, err := s.registry.GetTag(ctx, uid)
	if err != nil {
		return nil, err
	}
	return tagOf(t), nil
}

// DeleteTag is of registrypb.TagsServiceServer.
func (s tags) DeleteTag(ctx context.Context, r *registrypb.DeleteTagRequest) (*emptypb.Empty, error) {
	uid, err := resource.ParseUID("uid", r.GetUid())
	if err != nil {
		return nil, err
	}
	if err := s.registry.DeleteTag(ctx, uid); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// ListTags is of registrypb.TagsServiceServer.
func (s tags) ListTags(ctx context.Context, r *registrypb.ListTagsRequest) (*registrypb.ListTagsResponse, error) {
	since, err := readTime("updated_since", r.GetUpdatedSince())
	if err != nil {
		return nil, err
	}
	f := resource.Filter{Place: placeOf(r), Name: r.GetName(), Digest: r.GetDigest(), UpdatedSince: since, Classes: classesOf(r)}
	p, err := s.registry.ListTags(ctx, f, pageOf(r))
	if err != nil {
		return nil, err
	}
	tellExpired(ctx, p.Expired)
	return &registrypb.ListTagsResponse{
		Tags: convert(p.Items, tagOf), NextPageToken: p.Next, TotalCount: proto.Int64(p.Total), Skipped: int32(p.Skipped),
	}, nil
}

// classesOf is the sorts of tags that a request asks for beside the plain ones.
func classesOf(r *registrypb.ListTagsRequest) (all []resource.TagClass) {
	if r.GetIncludeReferrers() {
		all = append(all, resource.ReferrerTag)
	}
	if r.GetIncludeDates() {
		all = append(all, resource.DateTag)
	}
	if r.GetIncludeEpochs() {
		all = append(all, resource.EpochTag)
	}
	return all
}
