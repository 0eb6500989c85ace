package main

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestEveryFieldHasAKindThatIsWritten guards appendValue, which takes what it
// does not know for text.
func TestEveryFieldHasAKindThatIsWritten(t *testing.T) {
	known := map[protoreflect.Kind]bool{
		protoreflect.StringKind: true, protoreflect.BoolKind: true, protoreflect.Int32Kind: true,
		protoreflect.Int64Kind: true, protoreflect.EnumKind: true, protoreflect.MessageKind: true,
		protoreflect.BytesKind: true, protoreflect.DoubleKind: true,
	}
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		d := mt.Descriptor()
		name := string(d.FullName())
		if !strings.HasPrefix(name, "holdfast.") || strings.HasPrefix(name, "holdfast.registry.v1.") { // which the command does not call
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
