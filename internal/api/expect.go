package api

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// ifMatch is the name of the HTTP header, and of the gRPC metadata, with the expected
// version of the updated resource. A version is the time of the last change, in
// quotes as RFC 9110 requires.
const ifMatch = "if-match"

// isVersioned reports whether a method updates one resource and returns the time of
// the update.
func isVersioned(m protoreflect.MethodDescriptor) bool {
	return strings.HasPrefix(string(m.Name()), "Update") && m.Output().Fields().ByName("update_time") != nil
}

// etag returns the version of a message that is a resource, or "".
func etag(m proto.Message) string {
	r := m.ProtoReflect()
	fd := r.Descriptor().Fields().ByName("update_time")
	if fd == nil || !r.Has(fd) {
		return ""
	}
	updated, ok := r.Get(fd).Message().Interface().(interface{ AsTime() time.Time })
	if !ok {
		return ""
	}
	return `"` + updated.AsTime().UTC().Format(resource.Milliseconds) + `"`
}

// expect returns a context in which the resource of a request is changed only if it
// still has the version that the caller names. Without a version it returns ctx.
func expect(ctx context.Context, req any) (context.Context, error) {
	k := callOf(ctx)
	given := k.origin.ifMatch
	if !k.origin.gateway {
		given = metadata.ValueFromIncomingContext(ctx, ifMatch)
	}
	if len(given) == 0 || k.rule.read {
		return ctx, nil
	}
	if !k.rule.versioned {
		return ctx, fault.Field(ifMatch, "is not supported by this method")
	}
	version, err := time.Parse(`"`+time.RFC3339Nano+`"`, strings.TrimPrefix(given[0], "W/"))
	if err != nil || len(given) > 1 {
		return ctx, fault.Field(ifMatch, `must be an updateTime in quotes, such as "2026-11-01T12:00:00.000Z"`)
	}
	return resource.WithExpected(ctx, uidOf(req.(proto.Message).ProtoReflect()), version), nil
}

// uidOf returns the UID of the resource that a request names in a field, or in a
// field of the resource that it contains.
func uidOf(m protoreflect.Message) (uid resource.UID) {
	fields := m.Descriptor().Fields()
	for _, name := range []protoreflect.Name{"uid", "id", "group_uid"} {
		if fd := fields.ByName(name); fd != nil && fd.Kind() == protoreflect.StringKind {
			return resource.UID(m.Get(fd).String())
		}
	}
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Kind() == protoreflect.MessageKind && !fd.IsList() && !fd.IsMap() && fd.Name() != "update_mask" && m.Has(fd) {
			return uidOf(m.Get(fd).Message())
		}
	}
	return ""
}
