package v1

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// writer returns a function that converts a resource to a message of version 1. It
// translates the message that write returns.
func writer[M proto.Message, T any, N proto.Message](write func(T) N) func(T) M {
	return func(v T) M {
		var m M
		return translate(write(v), m.ProtoReflect().New().Interface().(M))
	}
}

// reader returns a function that reads a message of version 1 into a resource. It
// translates the message and calls read.
func reader[M proto.Message, T any, N proto.Message](read func(N, *T) error) func(M, *T) error {
	return func(from M, v *T) error {
		var n N
		return read(translate(from, n.ProtoReflect().New().Interface().(N)), v)
	}
}

// renamed are fields that later versions have renamed. Each pair has the name in version
// 1 and the name in later versions. translate uses the pairs in both directions.
var renamed = [][2]protoreflect.Name{
	{"id", "uid"}, {"group", "uid"}, {"static", "static_keys"}, {"status", "review_state"},
	{"company_name", "company"}, {"created_at", "create_time"}, {"timestamp", "create_time"},
	{"updated_at", "update_time"}, {"last_updated", "update_time"}, {"deleted_at", "delete_time"},
	{"last_seen", "last_seen_time"}, {"expiration", "expiration_time"},
	{"identity_provider_uidp", "identity_provider_uid"}, {"identity_provider_id", "identity_provider_uid"},
	{"role_uidp", "role_uid"},
	{"updatesOptIn", "updates_opt_in"}, {"legacyAdvisoryID", "legacy_advisory_id"},
	{"subpackage_name", "subpackage"}, {"component_name", "component"}, {"artifact_name", "artifact_names"},
	{"artifact_type", "artifact_types"}, {"artifact_architecture", "artifact_architectures"},
	{"component_name", "component_names"}, {"component_type", "component_types"},
	{"component_location", "component_locations"}, {"event_author", "event_authors"},
	{"exclude_event_author", "exclude_event_authors"}, {"event_reviewer", "event_reviewers"},
	{"event_statuses", "event_review_states"},
}

// translate copies the fields of from to the fields of to that have the same name, or
// its counterpart in renamed, and returns to. It omits fields that have another type
// in to.
func translate[M proto.Message](from proto.Message, to M) M {
	copyNamed(from.ProtoReflect(), to.ProtoReflect())
	return to
}

func copyNamed(from, to protoreflect.Message) {
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		t := counterpart(f, to.Descriptor().Fields())
		switch {
		case t == nil:
		case f.IsMap():
			m := to.Mutable(t).Map()
			v.Map().Range(func(k protoreflect.MapKey, e protoreflect.Value) bool {
				m.Set(k, copyValue(e, m.NewValue))
				return true
			})
		case f.IsList():
			list := to.Mutable(t).List()
			for i := range v.List().Len() {
				list.Append(copyValue(v.List().Get(i), list.NewElement))
			}
		default:
			to.Set(t, copyValue(v, func() protoreflect.Value { return to.NewField(t) }))
		}
		return true
	})
}

// copyValue returns v, or a translation of v if v is a message.
func copyValue(v protoreflect.Value, empty func() protoreflect.Value) protoreflect.Value {
	from, ok := v.Interface().(protoreflect.Message)
	if !ok {
		return v
	}
	to := empty()
	copyNamed(from, to.Message())
	return to
}

// counterpart returns the field with the same meaning as f, or nil.
func counterpart(f protoreflect.FieldDescriptor, fields protoreflect.FieldDescriptors) protoreflect.FieldDescriptor {
	lookup := func(name protoreflect.Name) protoreflect.FieldDescriptor {
		t := fields.ByName(name)
		if t == nil || t.Kind() != f.Kind() || t.IsList() != f.IsList() || t.IsMap() != f.IsMap() {
			return nil
		}
		return t
	}
	if t := lookup(f.Name()); t != nil {
		return t
	}
	for _, pair := range renamed {
		for i, name := range pair {
			if t := lookup(pair[1-i]); name == f.Name() && t != nil {
				return t
			}
		}
	}
	return nil
}
