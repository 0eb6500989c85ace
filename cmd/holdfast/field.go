package main

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

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
)

// A field is a flag that sets one field of a message. The type of the field says
// how the flag's text is read: a list or map takes the flag any number of times,
// and is emptied by one empty text.
type field struct {
	flag string
	path string // of the field, in the API's snake_case, with dots
	help string

	ref        func() noun                                        // the text names one of these
	file       bool                                               // the text names a file that holds the value
	read       func(m protoreflect.Message, texts []string) error // sets the field where its type is not enough
	key        func(string) string                                // how the key of a map is sent
	createOnly bool                                               // the server lets nobody change it
}

// register adds the flag to a command. The kind of the field decides the kind of
// the flag.
func (f field) register(cmd *cobra.Command, d protoreflect.MessageDescriptor) {
	flags := cmd.Flags()
	fd := descend(d, f.path)
	switch {
	case fd.Kind() == protoreflect.BoolKind && fd.Cardinality() != protoreflect.Repeated:
		flags.Bool(f.flag, false, f.help)
	case fd.IsList() && fd.Kind() == protoreflect.EnumKind:
		flags.StringSlice(f.flag, nil, f.help) // names have no commas
	case fd.IsList() || fd.IsMap():
		flags.StringArray(f.flag, nil, f.help)
	default:
		flags.String(f.flag, "", f.help)
	}
	if ed := fd.Enum(); ed != nil {
		must(cmd.RegisterFlagCompletionFunc(f.flag, cobra.FixedCompletions(enumWords(ed), cobra.ShellCompDirectiveNoFileComp)))
	}
}

// apply sets the field of m as the flag says. It does nothing, and returns
// false, if the flag is not given.
func (f field) apply(ctx context.Context, a *app, flags *pflag.FlagSet, m protoreflect.Message, path string) (bool, error) {
	flag := flags.Lookup(f.flag)
	if flag == nil || !flag.Changed {
		return false, nil
	}
	texts := []string{flag.Value.String()}
	if all, ok := flag.Value.(pflag.SliceValue); ok {
		texts = all.GetSlice()
	}
	if err := f.replaceAll(ctx, a, texts); err != nil {
		return false, err
	}
	return true, f.set(m, path, texts)
}

// replaceAll puts contents in place of files, and uids in place of names. A
// reference in a map is the value of its entry.
func (f field) replaceAll(ctx context.Context, a *app, texts []string) (err error) {
	for i, text := range texts {
		switch {
		case text == "":
		case f.file:
			texts[i], err = a.readText(text)
		case f.ref != nil && f.read == nil:
			key, name, isEntry := strings.Cut(text, "=")
			if !isEntry {
				name, key = text, ""
			}
			var uid string
			uid, err = a.resolve(ctx, f.ref(), name)
			texts[i] = uid
			if isEntry {
				texts[i] = key + "=" + uid
			}
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", f.flag, err)
		}
	}
	return nil
}

func (f field) set(m protoreflect.Message, path string, texts []string) error {
	owner, fd := open(m, path)
	if (fd.IsList() || fd.IsMap()) && len(texts) == 1 && texts[0] == "" {
		owner.Clear(fd)
		return nil
	}
	err := error(nil)
	switch {
	case f.read != nil:
		err = f.read(owner, texts)
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
		return usage("--%s: %v", f.flag, err)
	}
	return nil
}

// setEntries reads key=value. The maps that people write have text in both.
func (f field) setEntries(m protoreflect.Map, texts []string) error {
	for _, text := range texts {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return fmt.Errorf("%q is not of the form key=value", text)
		}
		if f.key != nil {
			k = f.key(k)
		}
		m.Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(v))
	}
	return nil
}

// parse reads one value of a field.
func parse(fd protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		b, err := strconv.ParseBool(text)
		return protoreflect.ValueOfBool(b), err
	case protoreflect.EnumKind:
		n, err := parseEnum(fd.Enum(), text)
		return protoreflect.ValueOfEnum(n), err
	case protoreflect.MessageKind:
		return parseKnown(fd.Message().FullName(), text)
	}
	return protoreflect.ValueOfString(text), nil
}

func parseKnown(name protoreflect.FullName, text string) (protoreflect.Value, error) {
	if name == "google.protobuf.Duration" {
		d, err := parseDuration(text)
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

// parseDuration also knows days, which is what people count invites in.
func parseDuration(text string) (time.Duration, error) {
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

func parseEnum(d protoreflect.EnumDescriptor, text string) (protoreflect.EnumNumber, error) {
	for i := range d.Values().Len() {
		v := d.Values().Get(i)
		if strings.EqualFold(text, enumWord(v)) || strings.EqualFold(text, string(v.Name())) {
			return v.Number(), nil
		}
	}
	if d.Values().Len() > 30 {
		return 0, fmt.Errorf("there is no %q; holdfast iam roles capabilities lists what there is", text)
	}
	return 0, fmt.Errorf("%q is none of %s", text, strings.Join(enumWords(d), ", "))
}

// enumWords is what people may write for an enum.
func enumWords(d protoreflect.EnumDescriptor) (words []string) {
	for i := range d.Values().Len() {
		if v := d.Values().Get(i); v.Number() != 0 {
			words = append(words, enumWord(v))
		}
	}
	return words
}

// enumWord is how people write a value: a capability by its dotted name, any
// other without the name of its type, in lower case.
func enumWord(v protoreflect.EnumValueDescriptor) string {
	if name, _ := proto.GetExtension(v.Options(), capabilitiespb.E_Name).(string); name != "" {
		return name
	}
	zero := v.Parent().(protoreflect.EnumDescriptor).Values().ByNumber(0)
	prefix := ""
	if zero != nil {
		prefix = strings.TrimSuffix(string(zero.Name()), "UNSPECIFIED")
	}
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix)), "_", "-")
}

// descend returns the field that a path leads to. Paths are this program's own.
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

// open returns the field that a path leads to, and the message that has it,
// which is made where there is none.
func open(m protoreflect.Message, path string) (protoreflect.Message, protoreflect.FieldDescriptor) {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		m = m.Mutable(m.Descriptor().Fields().ByName(protoreflect.Name(name))).Message()
	}
	return m, descend(m.Descriptor(), names[len(names)-1])
}

// put sets a field of a request that this program fills in itself.
func put(m protoreflect.Message, path string, v any) {
	owner, fd := open(m, path)
	owner.Set(fd, protoreflect.ValueOf(v))
}
