package api

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/fault"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/resource"
)

// maxMetadata is how long one text of a person's metadata may be.
const maxMetadata = 2048

// metadataFields calls f for each field of IdentityMetadata that is kept as
// metadata, under its name in JSON: all but those of the identity itself.
func metadataFields(m *iampb.IdentityMetadata, f func(m protoreflect.Message, field protoreflect.FieldDescriptor)) {
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); field.Name() != "uid" && field.Name() != "name" {
			f(r, field)
		}
	}
}

// metadataOf writes what a person told about themselves.
func metadataOf(i resource.Identity) *iampb.IdentityMetadata {
	p := &iampb.IdentityMetadata{Uid: string(i.UID), Name: i.Name}
	metadataFields(p, func(m protoreflect.Message, field protoreflect.FieldDescriptor) {
		switch v := i.Metadata[field.JSONName()].(type) {
		case string:
			if field.Kind() == protoreflect.StringKind {
				m.Set(field, protoreflect.ValueOfString(v))
			}
		case bool:
			if field.Kind() == protoreflect.BoolKind {
				m.Set(field, protoreflect.ValueOfBool(v))
			}
		}
	})
	return p
}

// readMetadata reads p into the metadata of i, where values at their default
// have no place. What else is there stays.
func readMetadata(p *iampb.IdentityMetadata, i *resource.Identity) error {
	all := map[string]any{}
	for k, v := range i.Metadata {
		all[k] = v
	}
	var bad []fault.Violation
	metadataFields(p, func(m protoreflect.Message, field protoreflect.FieldDescriptor) {
		delete(all, field.JSONName())
		if !m.Has(field) {
			return
		}
		v := m.Get(field).Interface()
		if s, ok := v.(string); ok && len(s) > maxMetadata {
			bad = append(bad, fault.Violation{Subject: string(field.Name()), Description: "must have at most 2048 bytes"})
		}
		all[field.JSONName()] = v
	})
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	i.Metadata = all
	return nil
}
