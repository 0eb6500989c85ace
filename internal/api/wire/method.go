// Package wire is what every version of the API needs to turn protobuf messages
// into resources and back: the regular methods (get, create, update, delete,
// list), update masks, JSON, and the names that packages go by.
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

// Get runs get for the uid in the field of a request, and returns the result as a
// message. It returns fault.InvalidArgument, about that field, if the text is
// not a uid.
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

// Do runs f for the uid in the field of a request.
func Do(ctx context.Context, field, text string, f func(context.Context, resource.UID) error) error {
	uid, err := resource.ParseUID(field, text)
	if err != nil {
		return err
	}
	return f(ctx, uid)
}

// Delete runs del for the uid in the field of a request.
func Delete(
	ctx context.Context, field, text string, del func(context.Context, resource.UID) error,
) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, Do(ctx, field, text, del)
}

// Create reads a resource out of from, has create make it under the parent in the
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

// An updater changes a resource by a function. Services have one for each kind.
type updater[T, R any] func(ctx context.Context, uid resource.UID, change func(*T) error) (R, error)

// Replace has update read all that clients may set of a resource out of from, as
// updates without a mask do, and returns the result as a message.
func Replace[P, T, R, M any](
	ctx context.Context, field, text string, from P, read func(P, *T) error, update updater[T, R], write func(R) M,
) (M, error) {
	return Get(ctx, field, text, func(ctx context.Context, uid resource.UID) (R, error) {
		return update(ctx, uid, func(v *T) error { return read(from, v) })
	}, write)
}

// An Identified is a message that names the resource it is about.
type Identified interface {
	proto.Message
	GetUid() string
}

// Update has update change the fields of a resource that are in mask to what from
// says, and returns the result as a message. It returns fault.InvalidArgument if
// from, which is in the given field of the request, is missing.
func Update[T any, M Identified](
	ctx context.Context, mask *fieldmaskpb.FieldMask, field string, from M,
	read func(M, *T) error, update updater[T, T], write func(T) M,
) (M, error) {
	return UpdateTo(ctx, mask, field, from, read, write, update, write)
}

// UpdateTo is Update for a kind whose answers have more than what clients set:
// before is what the mask is applied to.
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

// Masked returns a function that changes the fields of a resource that are in
// mask to what from says.
func Masked[T any, M proto.Message](
	mask *fieldmaskpb.FieldMask, from M, read func(M, *T) error, write func(T) M) func(*T,
) error {
	return func(v *T) error {
		m := write(*v)
		if err := Apply(mask, from, m); err != nil {
			return err
		}
		return read(m, v)
	}
}

// pageRequest is what every request for a page has.
type pageRequest interface {
	GetPageSize() int32
	GetPageToken() string
	GetOrderBy() string
	GetSkip() int32
}

// Params returns which page a request asks for, and in which order.
func Params(r pageRequest) page.Params {
	return page.Params{Size: r.GetPageSize(), Token: r.GetPageToken(), OrderBy: r.GetOrderBy(), Skip: r.GetSkip()}
}

// A Page is a page of a list in the types that responses have.
type Page[M any] struct {
	Items   []M
	Next    string
	Total   *int64
	Skipped int32
}

// List returns the page that a request asks for of the resources that pass the
// filter.
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

// PageOf returns a page as messages. If the page token had expired, it sets the
// header that tells the client that the list has started again.
func PageOf[T, M any](ctx context.Context, p page.Page[T], write func(T) M) Page[M] {
	if p.Expired {
		_ = grpc.SetHeader(ctx, metadata.Pairs("holdfast-page-token", "expired")) // fails only after an answer
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

// Warn sets a header that tells the client what was done although it was
// probably not meant.
func Warn(ctx context.Context, warnings []string) {
	if len(warnings) > 0 {
		_ = grpc.SetHeader(ctx, metadata.MD{"holdfast-warning": warnings}) // fails only after an answer
	}
}

// Convert returns f of each item.
func Convert[T, U any](items []T, f func(T) U) []U {
	if len(items) == 0 {
		return nil
	}
	all := make([]U, len(items))
	for i, item := range items {
		all[i] = f(item)
	}
	return all
}

// OptionalUID returns the uid in a field that may be empty.
func OptionalUID(field, text string) (resource.UID, error) {
	if text == "" {
		return "", nil
	}
	return resource.ParseUID(field, text)
}

// Optional returns the value of an optional field: nil for "".
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

// ReadTime returns the time in a field, to the millisecond. Nil is the zero time.
func ReadTime(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, fault.Field(field, "is not a time between the years 1 and 9999")
	}
	return t.AsTime().Truncate(time.Millisecond), nil
}

// Problems collects what is wrong with a request, so that all of it is reported
// at once.
type Problems []fault.Violation

// Add adds the field violations of err, which may be nil.
func (p *Problems) Add(err error) {
	if err != nil {
		*p = append(*p, fault.From(err).Fields...)
	}
}

// UID returns the uid in a field.
func (p *Problems) UID(field, text string) resource.UID {
	uid, err := resource.ParseUID(field, text)
	p.Add(err)
	return uid
}

// Time returns the time in a field, to the nanosecond. Nil is the zero time.
func (p *Problems) Time(field string, t *timestamppb.Timestamp) time.Time {
	if _, err := ReadTime(field, t); err != nil || t == nil {
		p.Add(err)
		return time.Time{}
	}
	return t.AsTime()
}

// Err returns fault.InvalidArgument about everything that is wrong, or nil.
func (p *Problems) Err() error {
	if len(*p) == 0 {
		return nil
	}
	return fault.Fields(*p)
}
