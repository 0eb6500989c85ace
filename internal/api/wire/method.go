// Package wire converts between protobuf messages and resources for every version of
// the API. It has the regular methods (get, create, update, delete, list), update
// masks, JSON, the names of packages, and the kinds of events.
package wire

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Get calls get with the UID in the field of a request, and returns the result as a
// message. It returns fault.InvalidArgument about that field if the text is not a
// UID.
func Get[T, M any](
	ctx context.Context, field, text string,
	get func(context.Context, resource.UID) (T, error), write func(T) M,
) (m M, err error) {
	uid, err := resource.ParseUID(field, text)
	if err != nil {
		return m, err
	}
	v, err := get(ctx, uid)
	if err != nil {
		return m, err
	}
	return write(v), nil
}

// Do calls f with the UID in the field of a request.
func Do(ctx context.Context, field, text string, f func(context.Context, resource.UID) error) error {
	uid, err := resource.ParseUID(field, text)
	if err != nil {
		return err
	}
	return f(ctx, uid)
}

// Delete calls del with the UID in the field of a request.
func Delete(
	ctx context.Context, field, text string, del func(context.Context, resource.UID) error,
) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, Do(ctx, field, text, del)
}

// Create reads a resource from a message, calls create with it and the parent in the
// field of the request, and returns the result as a message.
func Create[P, T, R, M any](
	ctx context.Context, field, text string, from P, read func(P, *T) error,
	create func(context.Context, resource.UID, T) (R, error), write func(R) M,
) (M, error) {
	return Get(ctx, field, text, func(ctx context.Context, parent resource.UID) (made R, err error) {
		var v T
		if err := read(from, &v); err != nil {
			return made, err
		}
		return create(ctx, parent, v)
	}, write)
}

// An updater calls change to change a resource. Services have one for each kind.
type updater[T, R any] func(ctx context.Context, uid resource.UID, change func(*T) error) (R, error)

// Replace calls update to replace every field of a resource that clients may set by
// the fields of from, and returns the result as a message. Updates of version 1
// work this way.
func Replace[P, T, R, M any](
	ctx context.Context, field, text string, from P, read func(P, *T) error, update updater[T, R], write func(R) M,
) (M, error) {
	return Get(ctx, field, text, func(ctx context.Context, uid resource.UID) (R, error) {
		return update(ctx, uid, func(v *T) error { return read(from, v) })
	}, write)
}

// An Identified is a message with the UID of its resource.
type Identified interface {
	proto.Message
	GetUid() string
}

// Update calls update to copy the fields in mask from a message to a resource, and
// returns the result as a message. It returns fault.InvalidArgument if from, which
// is in the given field of the request, is missing.
func Update[T any, M Identified](
	ctx context.Context, mask *fieldmaskpb.FieldMask, field string, from M,
	read func(M, *T) error, update updater[T, T], write func(T) M,
) (M, error) {
	return UpdateTo(ctx, mask, field, from, read, write, update, write)
}

// UpdateTo is Update for a kind whose answers have fields that clients cannot set.
// before returns the message to which the mask is applied.
func UpdateTo[T, R any, M Identified](
	ctx context.Context, mask *fieldmaskpb.FieldMask, field string, from M,
	read func(M, *T) error, before func(T) M, update updater[T, R], write func(R) M,
) (m M, err error) {
	if err := Require(field, from); err != nil {
		return m, err
	}
	return Get(ctx, "uid", from.GetUid(), func(ctx context.Context, uid resource.UID) (R, error) {
		return update(ctx, uid, Masked(mask, from, read, before))
	}, write)
}

// Require returns fault.InvalidArgument if the message in a field of a request is
// missing.
func Require(field string, m proto.Message) error {
	if !m.ProtoReflect().IsValid() {
		return fault.Field(field, "is required")
	}
	return nil
}

// Masked returns a function that copies the fields in mask from a message to a
// resource.
func Masked[T any, M proto.Message](
	mask *fieldmaskpb.FieldMask, from M, read func(M, *T) error, write func(T) M,
) func(*T) error {
	return func(v *T) error {
		m := write(*v)
		if err := Apply(mask, from, m); err != nil {
			return err
		}
		return read(m, v)
	}
}

// A pageRequest has the fields of every request for a page.
type pageRequest interface {
	GetPageSize() int32
	GetPageToken() string
	GetOrderBy() string
	GetSkip() int32
}

// Params returns the page parameters of a request, with its order.
func Params(r pageRequest) page.Params {
	return page.Params{Size: r.GetPageSize(), Token: r.GetPageToken(), OrderBy: r.GetOrderBy(), Skip: r.GetSkip()}
}

// A Page is a page of a list whose items are messages.
type Page[M any] struct {
	Items   []M
	Next    string
	Total   *int64
	Skipped int32
}

// List calls list with the filter and the page parameters of a request, and returns
// the page as messages.
func List[F, T, M any](
	ctx context.Context, r pageRequest, filter F,
	list func(context.Context, F, page.Params) (page.Page[T], error), write func(T) M,
) (Page[M], error) {
	p, err := list(ctx, filter, Params(r))
	if err != nil {
		return Page[M]{}, err
	}
	return PageOf(ctx, p, write), nil
}

// PageOf returns a page as messages. If the page token had expired, it sets a header
// that informs the client that the list has started again.
func PageOf[T, M any](ctx context.Context, p page.Page[T], write func(T) M) Page[M] {
	if p.Expired {
		_ = grpc.SetHeader(ctx, metadata.Pairs("holdfast-page-token", "expired")) // fails only after the answer was sent
	}
	return Page[M]{Items: Convert(p.Items, write), Next: p.Next, Total: proto.Int64(p.Total), Skipped: int32(p.Skipped)}
}

// UIDFilter returns the filter by UIDs that u describes.
func UIDFilter(u *commonpb.UIDPFilter) resource.UIDFilter {
	return resource.UIDFilter{
		AncestorsOf:   resource.UID(u.GetAncestorsOf()),
		DescendantsOf: resource.UID(u.GetDescendantsOf()),
		ChildrenOf:    resource.UID(u.GetChildrenOf()),
		InRoot:        u.GetInRoot(),
		IDs:           Convert(u.GetIds(), func(s string) resource.UID { return resource.UID(s) }),
	}
}

// Filter returns the filter of a request for resources by place and name.
func Filter(r interface {
	GetUidp() *commonpb.UIDPFilter
	GetName() string
}) resource.Filter {
	return resource.Filter{UIDs: UIDFilter(r.GetUidp()), Name: r.GetName()}
}

// Warn sets a header with warnings about effects of the request that the client
// probably did not intend.
func Warn(ctx context.Context, warnings []string) {
	if len(warnings) > 0 {
		_ = grpc.SetHeader(ctx, metadata.MD{"holdfast-warning": warnings}) // fails only after the answer was sent
	}
}

// Convert returns the results of f for each item.
func Convert[T, U any](items []T, f func(T) U) []U {
	if len(items) == 0 {
		return nil
	}
	results := make([]U, len(items))
	for i, item := range items {
		results[i] = f(item)
	}
	return results
}

// OptionalUID returns the UID in a field that may be empty.
func OptionalUID(field, text string) (resource.UID, error) {
	if text == "" {
		return "", nil
	}
	return resource.ParseUID(field, text)
}

// Optional returns the value of an optional field: a pointer to s, or nil if s is "".
func Optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Time returns t as a message. The zero time is nil.
func Time(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// ReadTime returns the time in a field, truncated to the millisecond. Nil is the zero
// time.
func ReadTime(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, fault.Field(field, "is not a time between the years 1 and 9999")
	}
	return t.AsTime().Truncate(time.Millisecond), nil
}

// Problems collects the violations of a request, so that the error lists all of them.
type Problems []fault.Violation

// Add adds the field violations of err, which may be nil.
func (p *Problems) Add(err error) {
	if err != nil {
		*p = append(*p, fault.From(err).Fields...)
	}
}

// UID returns the UID in a field.
func (p *Problems) UID(field, text string) resource.UID {
	uid, err := resource.ParseUID(field, text)
	p.Add(err)
	return uid
}

// Time returns the time in a field, not truncated. Nil is the zero time.
func (p *Problems) Time(field string, t *timestamppb.Timestamp) time.Time {
	if _, err := ReadTime(field, t); err != nil || t == nil {
		p.Add(err)
		return time.Time{}
	}
	return t.AsTime()
}

// Err returns fault.InvalidArgument with all violations, or nil if there are none.
func (p *Problems) Err() error {
	if len(*p) == 0 {
		return nil
	}
	return fault.Fields(*p)
}
