package noun

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// A Field is a flag that sets one field of a message. The type of the field determines
// how the text of the flag is parsed. The flag of a list or map can be repeated. An empty
// text clears the list or map.
type Field struct {
	Flag string
	Path string // path of the field, in snake_case, with dots; if "", the name of the flag
	Help string

	// Ref returns the kind of the resource that the text identifies. It is nil if the text
	// identifies none.
	Ref func() Noun
	// File reports whether the text is the name of a file that contains the value.
	File bool
	// Read parses texts and sets the field. It is nil if the type of the field determines
	// how to do that.
	Read func(m protoreflect.Message, texts []string) error
	Key  func(string) string // converts the key of a map entry to the API's form
	// createOnly reports whether the server accepts the field only in create.
	createOnly bool
}

func (f Field) path() string { return cmp.Or(f.Path, strings.ReplaceAll(f.Flag, "-", "_")) }

// register adds the flag to a command. The type of the field determines the type of the
// flag.
func (f Field) register(cmd *cobra.Command, d protoreflect.MessageDescriptor) {
	flags := cmd.Flags()
	fd := descend(d, f.path())
	switch {
	case fd.Kind() == protoreflect.BoolKind && fd.Cardinality() != protoreflect.Repeated:
		flags.Bool(f.Flag, false, f.Help)
	case fd.IsList() && fd.Kind() == protoreflect.EnumKind:
		flags.StringSlice(f.Flag, nil, f.Help) // splits a text at commas, which the values cannot contain
	case fd.IsList() || fd.IsMap():
		flags.StringArray(f.Flag, nil, f.Help)
	default:
		flags.String(f.Flag, "", f.Help)
	}
	if ed := fd.Enum(); ed != nil {
		CompleteWords(cmd, f.Flag, output.EnumWords(ed))
	}
}

// Fill sets the fields of m whose flags are given.
func (a *App) Fill(ctx context.Context, cmd *cobra.Command, fields []Field, m proto.Message) error {
	for _, f := range fields {
		if _, err := f.apply(ctx, a, cmd, m.ProtoReflect(), f.path()); err != nil {
			return err
		}
	}
	return nil
}

// apply sets the field at path if the flag is given. It reports whether it was given.
func (f Field) apply(
	ctx context.Context, a *App, cmd *cobra.Command, m protoreflect.Message, path string,
) (bool, error) {
	flag := cmd.Flags().Lookup(f.Flag)
	if flag == nil || !flag.Changed {
		return false, nil
	}
	texts := []string{flag.Value.String()}
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		texts = list.GetSlice()
	}
	if err := f.replaceAll(ctx, a, texts); err != nil {
		return false, err
	}
	return true, f.set(m, path, texts)
}

// replaceAll replaces files with their contents, and names with UIDs. In a map, the name
// is the value of an entry.
func (f Field) replaceAll(ctx context.Context, a *App, texts []string) (err error) {
	for i, text := range texts {
		switch {
		case text == "":
		case f.File:
			texts[i], err = a.ReadText(text)
		case f.Ref != nil && f.Read == nil:
			key := text[:strings.IndexByte(text, '=')+1] // key of a map entry, including the "="
			texts[i], err = a.Resolve(ctx, f.Ref(), text[len(key):])
			texts[i] = key + texts[i]
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", f.Flag, err)
		}
	}
	return nil
}

func (f Field) set(m protoreflect.Message, path string, texts []string) error {
	owner, fd := open(m, path)
	if (fd.IsList() || fd.IsMap()) && len(texts) == 1 && texts[0] == "" {
		owner.Clear(fd)
		return nil
	}
	err := error(nil)
	switch {
	case f.Read != nil:
		err = f.Read(owner, texts)
	case fd.IsList():
		list := owner.Mutable(fd).List()
		for _, text := range texts {
			v, bad := parse(fd, text)
			err = cmp.Or(err, bad)
			list.Append(v)
		}
	case fd.IsMap():
		err = f.setEntries(owner.Mutable(fd).Map(), texts)
	default:
		var v protoreflect.Value
		if v, err = parse(fd, texts[0]); err == nil {
			owner.Set(fd, v)
		}
	}
	if err != nil {
		return problem.Usage("--%s: %v", f.Flag, err)
	}
	return nil
}

// setEntries parses entries of the form key=value.
func (f Field) setEntries(m protoreflect.Map, texts []string) error {
	for _, text := range texts {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return fmt.Errorf("%q is not of the form key=value", text)
		}
		if f.Key != nil {
			k = f.Key(k)
		}
		m.Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(v))
	}
	return nil
}

// parse parses one value of a field.
func parse(fd protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		b, err := strconv.ParseBool(text)
		return protoreflect.ValueOfBool(b), err
	case protoreflect.EnumKind:
		n, err := ParseEnum(fd.Enum(), text)
		return protoreflect.ValueOfEnum(n), err
	case protoreflect.MessageKind:
		return parseKnown(fd.Message().FullName(), text)
	}
	return protoreflect.ValueOfString(text), nil
}

func parseKnown(name protoreflect.FullName, text string) (protoreflect.Value, error) {
	if name == "google.protobuf.Duration" {
		d, err := ParseDuration(text)
		return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), err
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		if t, err = time.Parse(time.DateOnly, text); err != nil {
			err = fmt.Errorf("%q is not a time like 2030-01-31 or 2030-01-31T12:00:00Z", text)
		}
	}
	return protoreflect.ValueOfMessage(timestamppb.New(t).ProtoReflect()), err
}

// ParseDuration parses a duration. The unit can also be d for days.
func ParseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration like 90m, 12h or 7d", text)
	}
	return d, nil
}

// ParseUntil parses the value of a flag: a time, or a duration from now. It returns nil
// if text is "".
func ParseUntil(flag, text string) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil
	}
	if d, err := ParseDuration(text); err == nil {
		return timestamppb.New(time.Now().Add(d)), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return timestamppb.New(t), nil
		}
	}
	return nil, problem.Usage("--%s: %q is neither a time like 2030-01-31T12:00:00Z nor a duration like 30d", flag, text)
}

// ParseMoment parses a time, or a duration before now.
func ParseMoment(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	if d, err := ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, problem.Usage("%q is not a time", text).Hint(
		"write a time like 2030-01-31, 2030-01-31T12:00:00Z or 7d, which is seven days ago")
}

// ParseEnum parses a word of EnumWords, or the name of an enum value.
func ParseEnum(d protoreflect.EnumDescriptor, text string) (protoreflect.EnumNumber, error) {
	for i := range d.Values().Len() {
		v := d.Values().Get(i)
		if strings.EqualFold(text, output.EnumWord(v)) || strings.EqualFold(text, string(v.Name())) {
			return v.Number(), nil
		}
	}
	if d.Values().Len() > 30 {
		return 0, fmt.Errorf("there is no %q; list the names: holdfast iam roles capabilities", text)
	}
	return 0, fmt.Errorf("%q is not one of %s", text, strings.Join(output.EnumWords(d), ", "))
}

// descend returns the field at a path. It panics if there is no such field.
func descend(d protoreflect.MessageDescriptor, path string) protoreflect.FieldDescriptor {
	var fd protoreflect.FieldDescriptor
	for name := range strings.SplitSeq(path, ".") {
		if fd = d.Fields().ByName(protoreflect.Name(name)); fd == nil {
			panic("there is no " + path)
		}
		d = fd.Message()
	}
	return fd
}

// open returns the field at a path and the message that contains it. It creates the
// message if necessary.
func open(m protoreflect.Message, path string) (protoreflect.Message, protoreflect.FieldDescriptor) {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		m = m.Mutable(m.Descriptor().Fields().ByName(protoreflect.Name(name))).Message()
	}
	return m, descend(m.Descriptor(), names[len(names)-1])
}

// Put sets the field at a path.
func Put(m protoreflect.Message, path string, v any) {
	owner, fd := open(m, path)
	owner.Set(fd, protoreflect.ValueOf(v))
}
