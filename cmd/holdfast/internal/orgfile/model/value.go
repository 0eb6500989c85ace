package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
)

// A Value is the value of a field: a string, bool, int64, []string or map[string]string.
// Times, durations, words and references are strings. Lists of words are sorted. Equal
// values have equal texts.
type Value any

// Equal reports whether two values are equal. nil is an absent value.
func Equal(x, y Value) bool {
	switch x := x.(type) {
	case []string:
		y, ok := y.([]string)
		return ok && slices.Equal(x, y)
	case map[string]string:
		y, ok := y.(map[string]string)
		return ok && maps.Equal(x, y)
	}
	switch y.(type) {
	case []string, map[string]string:
		return false
	}
	return x == y
}

// Format returns a value on one line.
func Format(v Value) string {
	switch v := v.(type) {
	case nil:
		return "(none)"
	case string:
		return strconv.Quote(v)
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case map[string]string:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, k+": "+v[k])
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v)
}

// Take returns the value of a field of a message, or nil if the field has its zero value.
// References are still UIDs.
func (k *Kind) Take(f *Field, m protoreflect.Message) Value {
	names := strings.Split(f.Read, ".")
	for _, name := range names[:len(names)-1] {
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if !m.Has(fd) {
			return nil
		}
		m = m.Get(fd).Message()
	}
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(names[len(names)-1]))
	if !m.Has(fd) {
		return nil
	}
	return take(fd, m.Get(fd))
}

func take(fd protoreflect.FieldDescriptor, v protoreflect.Value) Value {
	switch typeOf(fd) {
	case Flag:
		return v.Bool()
	case Number:
		return v.Int()
	case Time:
		return v.Message().Interface().(*timestamppb.Timestamp).AsTime().Format(time.RFC3339Nano)
	case Duration:
		return formatDuration(v.Message().Interface().(*durationpb.Duration).AsDuration())
	case Word:
		return word(fd, v.Enum())
	case Texts, Words:
		var texts []string
		for list, i := v.List(), 0; i < list.Len(); i++ {
			if typeOf(fd) == Words {
				texts = append(texts, word(fd, list.Get(i).Enum()))
				continue
			}
			texts = append(texts, list.Get(i).String())
		}
		if typeOf(fd) == Words {
			slices.Sort(texts)
		}
		return texts
	case Table:
		table := map[string]string{}
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			table[k.String()] = v.String()
			return true
		})
		return table
	}
	return v.String()
}

// word returns the word for a number of an enumeration. A number that this program does
// not know stays a number, so that it is not lost.
func word(fd protoreflect.FieldDescriptor, n protoreflect.EnumNumber) string {
	if v := fd.Enum().Values().ByNumber(n); v != nil {
		return strings.TrimPrefix(output.EnumWord(v), prefix(fd.Enum()))
	}
	return strconv.Itoa(int(n))
}

// prefix returns the prefix of the words of an enumeration whose first value has no prefix to
// remove, such as severity-.
func prefix(d protoreflect.EnumDescriptor) string { return strings.ToLower(string(d.Name())) + "-" }

// parseWord is the inverse of word.
func parseWord(d protoreflect.EnumDescriptor, text string) (protoreflect.EnumNumber, error) {
	if n, err := noun.ParseEnum(d, prefix(d)+text); err == nil {
		return n, nil
	}
	return noun.ParseEnum(d, text)
}

// Words returns the words that a field can have.
func (k *Kind) Words(f *Field) (words []string) {
	d := k.Descriptor(f).Enum()
	for _, w := range output.EnumWords(d) {
		words = append(words, strings.TrimPrefix(w, prefix(d)))
	}
	return words
}

// formatDuration returns the shortest text that noun.ParseDuration reads as d.
func formatDuration(d time.Duration) string {
	if d > 0 && d%(24*time.Hour) == 0 {
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Put sets the field of a message to a value. References are already UIDs. The value nil
// leaves the field unset.
func (k *Kind) Put(f *Field, m protoreflect.Message, v Value) error {
	if v == nil {
		return nil
	}
	names := strings.Split(f.Path, ".")
	for _, name := range names[:len(names)-1] {
		m = m.Mutable(m.Descriptor().Fields().ByName(protoreflect.Name(name))).Message()
	}
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(names[len(names)-1]))
	switch v := v.(type) {
	case []string:
		list := m.Mutable(fd).List()
		for _, text := range v {
			one, err := scalar(fd, text)
			if err != nil {
				return err
			}
			list.Append(one)
		}
	case map[string]string:
		table := m.Mutable(fd).Map()
		for key, text := range v {
			table.Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(text))
		}
	case bool:
		m.Set(fd, protoreflect.ValueOfBool(v))
	case int64:
		if fd.Kind() == protoreflect.Int32Kind {
			m.Set(fd, protoreflect.ValueOfInt32(int32(v)))
			return nil
		}
		m.Set(fd, protoreflect.ValueOfInt64(v))
	case string:
		one, err := scalar(fd, v)
		if err != nil {
			return err
		}
		m.Set(fd, one)
	}
	return nil
}

func scalar(fd protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	switch {
	case fd.Kind() == protoreflect.EnumKind:
		n, err := parseWord(fd.Enum(), text)
		return protoreflect.ValueOfEnum(n), err
	case fd.Kind() != protoreflect.MessageKind:
		return protoreflect.ValueOfString(text), nil
	case typeOf(fd) == Time:
		t, err := time.Parse(time.RFC3339Nano, text)
		return protoreflect.ValueOfMessage(timestamppb.New(t).ProtoReflect()), err
	}
	d, err := noun.ParseDuration(text)
	return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), err
}

// Clean returns the canonical form of a value that a file has, or why it has none. A zero
// value is nil, because a field that the server may leave out is absent.
func (k *Kind) Clean(f *Field, v Value) (Value, error) {
	fd := k.Descriptor(f)
	switch v := v.(type) {
	case string:
		return cleanText(fd, f, v)
	case []string:
		return cleanList(fd, v)
	case map[string]string:
		if len(v) == 0 {
			return nil, nil
		}
	case bool:
		if !v && !fd.HasPresence() {
			return nil, nil
		}
	case int64:
		if fd.Kind() == protoreflect.Int32Kind && v != int64(int32(v)) {
			return nil, fmt.Errorf("%d is too large", v)
		}
		if v == 0 && !fd.HasPresence() {
			return nil, nil
		}
	}
	return v, nil
}

func cleanText(fd protoreflect.FieldDescriptor, f *Field, text string) (Value, error) {
	if f.Trimmed {
		text = strings.TrimSpace(text)
	}
	if text == "" {
		return nil, nil
	}
	switch typeOf(fd) {
	case Time:
		for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
			if t, err := time.Parse(layout, text); err == nil {
				return t.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano), nil
			}
		}
		return nil, fmt.Errorf("%q is not a time like 2030-01-31 or 2030-01-31T12:00:00Z", text)
	case Duration:
		d, err := noun.ParseDuration(text)
		if err != nil || d == 0 {
			return nil, err
		}
		return formatDuration(d), nil
	case Word:
		n, err := parseWord(fd.Enum(), text)
		if err != nil || n == 0 {
			return nil, err
		}
		return word(fd, n), nil
	}
	if f.Secret {
		if kind, rest, _ := strings.Cut(text, ":"); rest == "" || kind != "env" && kind != "file" {
			return nil, fmt.Errorf("a secret is written as env:NAME or file:PATH, and never as its value")
		}
	}
	return text, nil
}

func cleanList(fd protoreflect.FieldDescriptor, texts []string) (Value, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	if fd.Kind() != protoreflect.EnumKind {
		return texts, nil
	}
	var list []string
	for _, text := range texts {
		n, err := parseWord(fd.Enum(), text)
		if err != nil {
			return nil, err
		}
		list = append(list, word(fd, n))
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
