package api

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/fault"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// pageRequest is what every request for a page has.
type pageRequest interface {
	GetPageSize() int32
	GetPageToken() string
	GetOrderBy() string
	GetSkip() int32
}

// listRequest is what a request for a page of resources has.
type listRequest interface {
	pageRequest
	GetUidp() *commonpb.UIDPFilter
}

func pageOf(r pageRequest) page.Params {
	return page.Params{Size: r.GetPageSize(), Token: r.GetPageToken(), OrderBy: r.GetOrderBy(), Skip: r.GetSkip()}
}

func placeOf(r listRequest) resource.PlaceFilter { return placeIn(r.GetUidp()) }

func placeIn(u *commonpb.UIDPFilter) resource.PlaceFilter {
	return resource.PlaceFilter{
		AncestorsOf:   resource.UID(u.GetAncestorsOf()),
		DescendantsOf: resource.UID(u.GetDescendantsOf()),
		ChildrenOf:    resource.UID(u.GetChildrenOf()),
		InRoot:        u.GetInRoot(),
		IDs:           convert(u.GetIds(), func(s string) resource.UID { return resource.UID(s) }),
	}
}

// tellExpired lets the client know that its page token had expired and the list
// has started again, which the answer itself does not show.
func tellExpired(ctx context.Context, expired bool) {
	if expired {
		_ = grpc.SetHeader(ctx, metadata.Pairs("holdfast-page-token", "expired")) // fails only after an answer
	}
}

// warn lets the client know what was done and was probably not meant.
func warn(ctx context.Context, warnings []string) {
	if len(warnings) > 0 {
		_ = grpc.SetHeader(ctx, metadata.MD{"holdfast-warning": warnings}) // fails only after an answer
	}
}

// convert returns f of each item.
func convert[T, U any](items []T, f func(T) U) []U {
	if len(items) == 0 {
		return nil
	}
	all := make([]U, len(items))
	for i, item := range items {
		all[i] = f(item)
	}
	return all
}

// timeOf writes a time. The zero time is no time.
func timeOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// readTime reads a time to the millisecond. None is the zero time.
func readTime(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, fault.Field(field, "is not a time between the years 1 and 9999")
	}
	return t.AsTime().Truncate(time.Millisecond), nil
}
