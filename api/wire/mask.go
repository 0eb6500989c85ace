package wire

import (
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/holdfast-dev/holdfast/fault"
)

// How large an update mask may be.
const (
	maxPaths      = 64
	maxPathLength = 256
)

// Apply changes onto, a resource as it is, to what from says of the fields in
// mask. Both are of one type, and nothing of from is shared or altered.
//
// Without a mask it changes the fields that from sets to something other than
// their default; with "*" all of them. Paths are in snake_case or lowerCamel and
// may lead into messages, which are made where onto has none; lists and maps
// change as a whole. What only the service sets stays as it is, without
// complaint, for clients that send back what they got. It returns
// fault.InvalidArgument, about update_mask, for a path that leads nowhere.
func Apply(mask *fieldmaskpb.FieldMask, from, onto proto.Message) error {
	paths := mask.GetPaths()
	if err := checkSize(paths); err != nil {
		return err
	}
	src, dst := from.ProtoReflect(), onto.ProtoReflect()
	if len(paths) == 0 {
		copyPopulated(src, dst)
		return nil
	}
	if len(paths) == 1 && paths[0] == "*" {
		copyAll(src, dst)
		return nil
	}
	var bad []fault.Violation
	var found [][]protoreflect.FieldDescriptor
	for _, path := range paths {
		fields, problem := resolve(src.Descriptor(), path)
		switch {
		case problem != "":
			bad = append(bad, fault.Violation{Subject: "update_mask", Description: problem})
		case fields != nil:
			found = append(found, fields)
		}
	}
	if len(bad) > 0 {
		return fault.Fields(bad)
	}
	for _, fields := range found {
		copyPath(src, dst, fields)
	}
	return nil
}

func checkSize(paths []string) error {
	if len(paths) > maxPaths {
		return fault.Field("update_mask", "must have at most %d paths", maxPaths)
	}
	for _, p := range paths {
		if len(p) > maxPathLength {
			return fault.Field("update_mask", "a path must have at most %d bytes", maxPathLength)
		}
	}
	return nil
}

// resolve returns the fields along path, none of them if the path is to be
// passed over, or what is wrong with it.
func resolve(d protoreflect.MessageDescriptor, path string) (fields []protoreflect.FieldDescriptor, problem string) {
	for segment := range strings.SplitSeq(path, ".") {
		if d == nil {
			return nil, strconv.Quote(path) + " leads into something that has no fields of its own to change"
		}
		f := FieldNamed(d, segment)
		if f == nil {
			return nil, strconv.Quote(path) + " is not a field"
		}
		if HasBehavior(f, annotations.FieldBehavior_OUTPUT_ONLY) {
			return nil, ""
		}
		fields = append(fields, f)
		d = nil
		if Nested(f) {
			d = f.Message()
		}
	}
	return fields, ""
}

// FieldNamed finds a field by its name in the definition or in JSON, or by the
// lowerCamel of one that is spelled otherwise there.
func FieldNamed(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := d.Fields().ByName(protoreflect.Name(name)); f != nil {
		return f
	}
	if f := d.Fields().ByJSONName(name); f != nil {
		return f
	}
	for i := range d.Fields().Len() {
		if f := d.Fields().Get(i); SnakeInJSON(f) && LowerCamel(f.Name()) == name {
			return f
		}
	}
	return nil
}

// SnakeInJSON tells whether the definition gives a field the same name in JSON, which
// clients expect to be lowerCamel.
func SnakeInJSON(f protoreflect.FieldDescriptor) bool {
	return f.JSONName() == string(f.Name()) && strings.Contains(f.JSONName(), "_")
}

func LowerCamel(name protoreflect.Name) string {
	words := strings.Split(string(name), "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// Nested tells whether a field is a message with fields of its own to change. A
// time, for one, is a single value.
func Nested(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && !f.IsList() && !f.IsMap() && f.Message().ParentFile().Package() != "google.protobuf"
}

// copyPath copies the value that fields lead to. A message on the way is made
// only if there is something to put into it.
func copyPath(src, dst protoreflect.Message, fields []protoreflect.FieldDescriptor) {
	f := fields[0]
	if len(fields) == 1 {
		copyField(src, dst, f)
		return
	}
	if !dst.Has(f) && !leadsSomewhere(src, fields) {
		return
	}
	copyPath(src.Get(f).Message(), dst.Mutable(f).Message(), fields[1:])
}

func leadsSomewhere(src protoreflect.Message, fields []protoreflect.FieldDescriptor) bool {
	for _, f := range fields[:len(fields)-1] {
		src = src.Get(f).Message()
	}
	return src.Has(fields[len(fields)-1])
}

func copyAll(src, dst protoreflect.Message) {
	fields := src.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); !HasBehavior(f, annotations.FieldBehavior_OUTPUT_ONLY) {
			copyField(src, dst, f)
		}
	}
}

// copyPopulated copies what src sets, leaf by leaf, as a JSON body of the same
// content would.
func copyPopulated(src, dst protoreflect.Message) {
	src.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case HasBehavior(f, annotations.FieldBehavior_OUTPUT_ONLY):
		case Nested(f) && !empty(v.Message()):
			copyPopulated(v.Message(), dst.Mutable(f).Message())
		default:
			copyField(src, dst, f)
		}
		return true
	})
}

func empty(m protoreflect.Message) bool {
	none := true
	m.Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		none = false
		return false
	})
	return none
}

// copyField makes dst's field a copy of src's. Setting a member of a oneof
// unsets the others; clearing one that is not set does nothing.
func copyField(src, dst protoreflect.Message, f protoreflect.FieldDescriptor) {
	if !src.Has(f) {
		dst.Clear(f)
		return
	}
	v := src.Get(f)
	switch {
	case f.IsList():
		list := dst.NewField(f).List()
		for i := range v.List().Len() {
			list.Append(copyOf(v.List().Get(i), f))
		}
		dst.Set(f, protoreflect.ValueOfList(list))
	case f.IsMap():
		m := dst.NewField(f).Map()
		v.Map().Range(func(k protoreflect.MapKey, e protoreflect.Value) bool {
			m.Set(k, copyOf(e, f.MapValue()))
			return true
		})
		dst.Set(f, protoreflect.ValueOfMap(m))
	default:
		dst.Set(f, copyOf(v, f))
	}
}

func copyOf(v protoreflect.Value, f protoreflect.FieldDescriptor) protoreflect.Value {
	if f.Message() == nil {
		return v
	}
	return protoreflect.ValueOfMessage(proto.Clone(v.Message().Interface()).ProtoReflect())
}
