package main

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestEveryFieldHasAKindThatIsWritten checks that appendValue supports the kind of every
// field, because it writes a field of any other kind as text.
func TestEveryFieldHasAKindThatIsWritten(t *testing.T) {
	known := map[protoreflect.Kind]bool{
		protoreflect.StringKind: true, protoreflect.BoolKind: true, protoreflect.Int32Kind: true,
		protoreflect.Int64Kind: true, protoreflect.EnumKind: true, protoreflect.MessageKind: true,
		protoreflect.BytesKind: true, protoreflect.DoubleKind: true,
	}
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		d := mt.Descriptor()
		name := string(d.FullName())
		// The command does not print messages of other packages.
		if !strings.HasPrefix(name, "holdfast.") || strings.HasPrefix(name, "holdfast.registry.v1.") {
			return true
		}
		for i := range d.Fields().Len() {
			if fd := d.Fields().Get(i); !known[fd.Kind()] {
				t.Errorf("%s has the kind %s", fd.FullName(), fd.Kind())
			}
		}
		return true
	})
}
