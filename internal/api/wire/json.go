package wire

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// An Encoder writes messages as JSON. The result is equivalent to the JSON of
// protojson, but equal messages always have equal bytes. The JSON contains every
// scalar, list and map, even if it is empty. It omits messages and oneof members that
// are not set, fields that are INPUT_ONLY, and empty fields that the public API does not
// have, because strict clients of that API reject unknown fields. A time has three
// fraction digits. The zero value is ready to use and safe for concurrent use.
type Encoder struct{ plans sync.Map } // protoreflect.MessageDescriptor → *plan

// A plan describes the JSON of one type of message.
type plan struct {
	form   form
	fields []plannedField // fields of a message that has no special form in JSON
}

type form uint8

const (
	plain     form = iota
	timestamp      // a time, written with three fraction digits
	wellKnown      // another type of google.protobuf, written by protojson
)

type plannedField struct {
	desc     protoreflect.FieldDescriptor
	key      string // JSON key of the field, with quotes and the colon
	optional bool   // whether to omit the field if it is not set
	value    plannedValue
}

// A plannedValue describes the JSON of a field, or of an element of a list or map.
type plannedValue struct {
	kind    protoreflect.Kind
	message *plan
	enum    protoreflect.EnumValueDescriptors
}

// Append adds m to b.
func (e *Encoder) Append(b []byte, m proto.Message) ([]byte, error) {
	r := m.ProtoReflect()
	return appendMessage(b, e.plan(r.Descriptor()), r)
}

// Marshal returns m as JSON.
func (e *Encoder) Marshal(m proto.Message) ([]byte, error) {
	text, err := e.Append(nil, m)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return text, nil
}

func (e *Encoder) plan(d protoreflect.MessageDescriptor) *plan {
	if p, ok := e.plans.Load(d); ok {
		return p.(*plan)
	}
	p := planMessage(d, map[protoreflect.MessageDescriptor]*plan{})
	e.plans.Store(d, p)
	return p
}

// planMessage returns the plan of d. known contains the plans that are being built,
// because a type may contain itself.
func planMessage(d protoreflect.MessageDescriptor, known map[protoreflect.MessageDescriptor]*plan) *plan {
	if p := known[d]; p != nil {
		return p
	}
	p := &plan{}
	known[d] = p
	switch {
	case d.FullName() == "google.protobuf.Timestamp":
		p.form = timestamp
		return p
	case d.ParentFile().Package() == "google.protobuf":
		p.form = wellKnown
		return p
	}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if HasBehavior(f, annotations.FieldBehavior_INPUT_ONLY) {
			continue
		}
		element := f
		if f.IsMap() {
			element = f.MapValue()
		}
		v := plannedValue{kind: element.Kind()}
		if md := element.Message(); md != nil {
			v.message = planMessage(md, known)
		}
		if ed := element.Enum(); ed != nil {
			v.enum = ed.Values()
		}
		p.fields = append(p.fields, plannedField{desc: f, key: strconv.Quote(f.JSONName()) + ":",
			optional: f.HasPresence() || f.Number() >= firstAddition, value: v})
	}
	return p
}

// firstAddition is the smallest number of a field that we have added to a message of the public API.
const firstAddition = 1000

// HasBehavior reports whether the API's definition marks a field with b.
func HasBehavior(f protoreflect.FieldDescriptor, b annotations.FieldBehavior) bool {
	marks, _ := proto.GetExtension(f.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
	return slices.Contains(marks, b)
}

func appendMessage(b []byte, p *plan, m protoreflect.Message) ([]byte, error) {
	switch p.form {
	case timestamp:
		return appendTime(b, m)
	case wellKnown:
		return appendWellKnown(b, m)
	}
	b = append(b, '{')
	first := true
	for i := range p.fields {
		f := &p.fields[i]
		if f.optional && !m.Has(f.desc) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, f.key...)
		var err error
		if b, err = appendField(b, f, m.Get(f.desc)); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func appendField(b []byte, f *plannedField, v protoreflect.Value) ([]byte, error) {
	switch {
	case f.desc.IsList():
		return appendList(b, &f.value, v.List())
	case f.desc.IsMap():
		return appendMap(b, f, v.Map())
	}
	return appendValue(b, &f.value, v)
}

func appendList(b []byte, v *plannedValue, list protoreflect.List) ([]byte, error) {
	b = append(b, '[')
	for i := range list.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendValue(b, v, list.Get(i)); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

// appendMap writes the entries in the order of their keys.
func appendMap(b []byte, f *plannedField, m protoreflect.Map) ([]byte, error) {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(x, y protoreflect.MapKey) int { return compareKeys(f.desc.MapKey().Kind(), x, y) })
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = appendString(b, k.String()); err != nil {
			return b, err
		}
		b = append(b, ':')
		if b, err = appendValue(b, &f.value, m.Get(k)); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func appendValue(b []byte, p *plannedValue, v protoreflect.Value) ([]byte, error) {
	switch p.kind {
	case protoreflect.StringKind:
		return appendString(b, v.String())
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool()), nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return append(strconv.AppendInt(append(b, '"'), v.Int(), 10), '"'), nil
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return append(strconv.AppendUint(append(b, '"'), v.Uint(), 10), '"'), nil
	case protoreflect.FloatKind:
		return appendFloat(b, v.Float(), float32(v.Float()))
	case protoreflect.DoubleKind:
		return appendFloat(b, v.Float(), v.Float())
	case protoreflect.BytesKind:
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), v.Bytes()), '"'), nil
	case protoreflect.EnumKind:
		return appendEnum(b, p, v.Enum()), nil
	}
	return appendMessage(b, p.message, v.Message())
}

// appendEnum writes the name of a value, or its number if it has no name in this
// version.
func appendEnum(b []byte, p *plannedValue, n protoreflect.EnumNumber) []byte {
	d := p.enum.ByNumber(n)
	if d == nil {
		return strconv.AppendInt(b, int64(n), 10)
	}
	b = append(b, '"')
	b = append(b, d.Name()...)
	return append(b, '"')
}

func appendFloat(b []byte, f float64, number any) ([]byte, error) {
	switch {
	case math.IsNaN(f):
		return append(b, `"NaN"`...), nil
	case math.IsInf(f, 1):
		return append(b, `"Infinity"`...), nil
	case math.IsInf(f, -1):
		return append(b, `"-Infinity"`...), nil
	}
	text, err := json.Marshal(number)
	return append(b, text...), err
}

// The range of times in RFC 3339: the years 1 to 9999.
const (
	minSeconds = -62135596800
	maxSeconds = 253402300799
)

// appendTime writes a Timestamp in UTC with three fraction digits, truncated to the
// millisecond.
func appendTime(b []byte, m protoreflect.Message) ([]byte, error) {
	fields := m.Descriptor().Fields()
	seconds, nanos := m.Get(fields.ByNumber(1)).Int(), m.Get(fields.ByNumber(2)).Int()
	if seconds < minSeconds || seconds > maxSeconds || nanos < 0 || nanos >= 1e9 {
		return b, fmt.Errorf("time out of range: %d seconds, %d nanoseconds", seconds, nanos)
	}
	return time.Unix(seconds, nanos).UTC().AppendFormat(b, `"2006-01-02T15:04:05.000Z"`), nil
}

// appendWellKnown writes the JSON of protojson without its varying spaces.
func appendWellKnown(b []byte, m protoreflect.Message) ([]byte, error) {
	text, err := protojson.Marshal(m.Interface())
	if err != nil {
		return b, err
	}
	buf := bytes.NewBuffer(b)
	err = json.Compact(buf, text)
	return buf.Bytes(), err
}

const hexDigits = "0123456789abcdef"

// appendString writes s in quotes. It returns an error if s is not UTF-8, which
// should not happen because requests are checked.
func appendString(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return b, fmt.Errorf("text is not valid UTF-8: %q", s)
	}
	b = append(b, '"')
	done := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[done:i]...)
		done = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	b = append(b, s[done:]...)
	return append(b, '"'), nil
}

// compareKeys orders map keys: text by bytes, numbers by value, false first.
func compareKeys(kind protoreflect.Kind, x, y protoreflect.MapKey) int {
	switch kind {
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return cmp.Compare(x.Uint(), y.Uint())
	case protoreflect.StringKind, protoreflect.BoolKind:
		return cmp.Compare(x.String(), y.String())
	}
	return cmp.Compare(x.Int(), y.Int())
}
