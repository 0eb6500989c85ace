package wire

import (
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

// Limits of an update mask.
const (
	maxPaths      = 64
	maxPathLength = 256
)

// Apply makes a deep copy of the fields in mask from one message to another of the
// same type.
//
// Without a mask it copies the fields of from that do not have their default value,
// and with "*" all fields. Paths are in snake_case or lowerCamel. They may lead into
// messages, which Apply creates if onto does not have them. Lists and maps are
// replaced as a whole. Apply ignores fields that are OUTPUT_ONLY, because clients
// send back messages that they have received. It returns fault.InvalidArgument about
// update_mask for a path that is not a field, even if the path begins with an
// OUTPUT_ONLY field.
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
	var bad Problems
	var found [][]protoreflect.FieldDescriptor
	for _, path := range paths {
		fields, problem := resolve(src.Descriptor(), path)
		switch {
		case problem != "":
			bad.Add(fault.Field("update_mask", "%s", problem))
		case fields != nil:
			found = append(found, fields)
		}
	}
	if err := bad.Err(); err != nil {
		return err
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

// resolve returns the fields along path, no fields if the path is ignored, or a
// description of the problem with the path.
func resolve(d protoreflect.MessageDescriptor, path string) (fields []protoreflect.FieldDescriptor, problem string) {
	ignored := false
	for segment := range strings.SplitSeq(path, ".") {
		if d == nil {
			return nil, strconv.Quote(path) + " leads into a value that has no fields"
		}
		f := FieldNamed(d, segment)
		if f == nil {
			return nil, strconv.Quote(path) + " is not a field"
		}
		ignored = ignored || HasBehavior(f, annotations.FieldBehavior_OUTPUT_ONLY)
		if ignored && f.Message() != nil && !Nested(f) {
			return nil, "" // the path leads into a time or a map, so the rest of it does not matter
		}
		fields = append(fields, f)
		d = nil
		if Nested(f) {
			d = f.Message()
		}
	}
	if ignored {
		return nil, ""
	}
	return fields, ""
}

// FieldNamed returns the field with a name, which may be its name in the definition,
// in JSON or in lowerCamel. It returns nil if there is none.
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

// SnakeInJSON reports whether the JSON name of a field is in snake_case, where
// clients expect lowerCamel.
func SnakeInJSON(f protoreflect.FieldDescriptor) bool {
	return f.JSONName() == string(f.Name()) && strings.Contains(f.JSONName(), "_")
}

// LowerCamel converts a name from snake_case to lowerCamel.
func LowerCamel(name protoreflect.Name) string {
	words := strings.Split(string(name), "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// Nested reports whether a field is a message whose fields can be changed one by
// one. Messages of google.protobuf, such as times, are single values.
func Nested(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && !f.IsList() && !f.IsMap() && f.Message().ParentFile().Package() != "google.protobuf"
}

// copyPath copies the value at the end of a path of fields. It creates a message
// along the path only if there is a value to copy into it.
func copyPath(src, dst protoreflect.Message, fields []protoreflect.FieldDescriptor) {
	f := fields[0]
	if len(fields) == 1 {
		copyField(src, dst, f)
		return
	}
	if !dst.Has(f) && !hasValueAt(src, fields) {
		return
	}
	copyPath(src.Get(f).Message(), dst.Mutable(f).Message(), fields[1:])
}

func hasValueAt(src protoreflect.Message, fields []protoreflect.FieldDescriptor) bool {
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

// copyPopulated copies the fields that are set in src, and in its nested messages, as
// a JSON body with the same fields would set them.
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
	isEmpty := true
	m.Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		isEmpty = false
		return false
	})
	return isEmpty
}

// copyField copies a field of src to dst. Setting a member of a oneof clears the
// other members. Clearing a member that is not set has no effect.
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
