package output

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// appendJSON writes a message as the JSON API does: with every scalar, list and map, even
// if empty, but without unset messages and without input-only fields. Unlike protojson,
// it always produces the same bytes.
func appendJSON(b []byte, m protoreflect.Message) []byte {
	if t, ok := m.Interface().(*timestamppb.Timestamp); ok {
		return t.AsTime().UTC().AppendFormat(b, `"`+milliseconds+`"`)
	}
	if d, ok := m.Interface().(*durationpb.Duration); ok {
		return append(strconv.AppendFloat(append(b, '"'), d.AsDuration().Seconds(), 'f', -1, 64), `s"`...)
	}
	if s, ok := m.Interface().(*structpb.Struct); ok { // a Struct contains JSON
		text, err := json.Marshal(s.AsMap())
		problem.Must(err) // never fails, because the value was decoded from JSON
		return append(b, text...)
	}
	b = append(b, '{')
	fields := m.Descriptor().Fields()
	first := true
	for i := range fields.Len() {
		fd := fields.Get(i)
		if inputOnly(fd) || (fd.HasPresence() && !m.Has(fd)) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendText(b, fd.JSONName()), ':')
		b = appendField(b, fd, m.Get(fd))
	}
	return append(b, '}')
}

const milliseconds = "2006-01-02T15:04:05.000Z07:00"

// inputOnly reports whether a field is input only.
func inputOnly(fd protoreflect.FieldDescriptor) bool {
	marks, _ := proto.GetExtension(fd.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	return slices.Contains(marks, annotations.FieldBehavior_INPUT_ONLY)
}

func appendField(b []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch {
	case fd.IsList():
		b = append(b, '[')
		for i := range v.List().Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, fd, v.List().Get(i))
		}
		return append(b, ']')
	case fd.IsMap():
		return appendEntries(b, fd, v.Map())
	}
	return appendValue(b, fd, v)
}

// appendEntries writes a map sorted by its keys, which can be numbers.
func appendEntries(b []byte, fd protoreflect.FieldDescriptor, m protoreflect.Map) []byte {
	var keys []protoreflect.MapKey
	for k := range m.Range {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y protoreflect.MapKey) int {
		if fd.MapKey().Kind() == protoreflect.Int64Kind {
			return cmp.Compare(x.Int(), y.Int())
		}
		return strings.Compare(x.String(), y.String())
	})
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, k.String()), ':')
		b = appendValue(b, fd.MapValue(), m.Get(k))
	}
	return append(b, '}')
}

// appendValue writes one value. It supports the kinds that the API uses.
func appendValue(b []byte, fd protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool())
	case protoreflect.Int32Kind:
		return strconv.AppendInt(b, v.Int(), 10)
	case protoreflect.DoubleKind: // is always between 0 and 1, so it is never a value that JSON cannot express
		return strconv.AppendFloat(b, v.Float(), 'f', -1, 64)
	case protoreflect.EnumKind:
		if d := fd.Enum().Values().ByNumber(v.Enum()); d != nil {
			return appendText(b, string(d.Name()))
		}
		return strconv.AppendInt(b, int64(v.Enum()), 10)
	case protoreflect.BytesKind:
		return appendText(b, base64.StdEncoding.EncodeToString(v.Bytes()))
	case protoreflect.MessageKind:
		return appendJSON(b, v.Message())
	}
	return appendText(b, v.String()) // also used for 64-bit numbers, which are strings in JSON
}

func appendText(b []byte, s string) []byte {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		return append(append(append(b, '"'), s...), '"') // the common case; it is much faster than the encoder
	}
	var buf strings.Builder
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	problem.Must(e.Encode(s)) // a string can always be encoded
	return append(b, strings.TrimSuffix(buf.String(), "\n")...)
}

// When formats a time. On a terminal it adds the time relative to now.
func (c *Console) When(t time.Time) string {
	if c.Terminal {
		return ShortTime(t) + " (" + Relative(t, time.Now()) + ")"
	}
	return ShortTime(t)
}

// ShortTime formats a time without fractional seconds.
func ShortTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
