package v2

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/resource"
)

// ofIdentity are the fields of IdentityMetadata that are not stored as metadata.
var ofIdentity = []protoreflect.Name{"uid", "name", "company"}

// metadataFields calls f for each field of IdentityMetadata that is stored as
// metadata, under its name in JSON.
func metadataFields(m *iampb.IdentityMetadata, f func(m protoreflect.Message, field protoreflect.FieldDescriptor)) {
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); !slices.Contains(ofIdentity, field.Name()) {
			f(r, field)
		}
	}
}

// MetadataOf returns the message of what a person has said about themselves.
func MetadataOf(i resource.Identity) *iampb.IdentityMetadata {
	p := &iampb.IdentityMetadata{Uid: string(i.UID), Name: i.Name, Company: i.Company}
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

// ReadMetadata copies p to the metadata of i, without fields at their default.
// Other metadata stays.
func ReadMetadata(p *iampb.IdentityMetadata, i *resource.Identity) error {
	all := map[string]any{}
	maps.Copy(all, i.Metadata)
	metadataFields(p, func(m protoreflect.Message, field protoreflect.FieldDescriptor) {
		delete(all, field.JSONName())
		if m.Has(field) {
			all[field.JSONName()] = m.Get(field).Interface()
		}
	})
	i.Metadata, i.Company = all, p.GetCompany()
	return nil
}
