// Package model describes organizations as files describe them: resources with names and
// paths in place of UIDs. The same model is read from a file and through the API, so that
// the two can be compared.
//
// The kinds of resources are a table. Parsing, printing, the JSON Schema, reading from the
// API, comparison and requests are derived from it.
package model

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// A Kind is a kind of resource that a file can contain.
type Kind struct {
	Name  string // section of the file, such as folders
	One   string // singular, for sentences
	About string // what the schema says about it
	// Key are the fields that identify a resource within its parent. A resource with a name
	// has none: its path identifies it.
	Key    []string
	Fields []Field
	// Parent is the kind of the resource that contains it: folders, or another kind.
	Parent string
	// Here means that there is at most one such resource for each folder below the group, and
	// that its UID is the UID of the folder.
	Here bool

	Service protoreflect.ServiceDescriptor
	Message protoreflect.MessageDescriptor
	// Over reports whether a resource has ended, so that only its history is left. If it is nil, none has.
	Over func(m protoreflect.Message) bool
}

// A Field is a field of a resource in a file.
type Field struct {
	Name    string // in the file: the path of the API's JSON, such as claimMatch.issuer
	Path    string // in the message, such as claim_match.issuer
	Read    string // path from which the API's answers are read, if not Path
	Ref     string // kind of the resources that it refers to; "" if it is no reference
	Secret  bool   // whether the file has only a reference to the value, which the server never returns
	Derived bool   // whether the server chooses a value if the field is absent, so that an absent value equals any
	// DerivedFrom is the name of another field. If that field is present, this one is derived.
	DerivedFrom string
	Trimmed     bool // whether the server removes white space around the value
}

// A Type is the form of a field's value.
type Type int

// The types of fields.
const (
	Text Type = iota
	Flag
	Number
	Time
	Duration
	Word // a value of an enumeration
	Texts
	Words
	Table // texts by texts
)

// Named reports whether resources of the kind are identified by their paths.
func (k *Kind) Named() bool { return len(k.Key) == 0 && !k.Here }

// Field returns the field with a name in files, or nil.
func (k *Kind) Field(name string) *Field {
	for i := range k.Fields {
		if k.Fields[i].Name == name {
			return &k.Fields[i]
		}
	}
	return nil
}

// Descriptor returns the field of the message.
func (k *Kind) Descriptor(f *Field) protoreflect.FieldDescriptor {
	return descend(k.Message, f.Path)
}

// Type returns the type of a field.
func (k *Kind) Type(f *Field) Type { return typeOf(k.Descriptor(f)) }

func typeOf(fd protoreflect.FieldDescriptor) Type {
	switch {
	case fd.IsMap():
		return Table
	case fd.IsList() && fd.Kind() == protoreflect.EnumKind:
		return Words
	case fd.IsList():
		return Texts
	case fd.Kind() == protoreflect.EnumKind:
		return Word
	case fd.Kind() == protoreflect.BoolKind:
		return Flag
	case fd.Kind() == protoreflect.Int32Kind || fd.Kind() == protoreflect.Int64Kind:
		return Number
	case fd.Kind() == protoreflect.MessageKind && fd.Message().FullName() == "google.protobuf.Timestamp":
		return Time
	case fd.Kind() == protoreflect.MessageKind:
		return Duration
	}
	return Text
}

// Method returns the method of the kind whose name is verb and the name of the message, or
// nil if there is none. The verb List has the plural.
func (k *Kind) Method(verb string) protoreflect.MethodDescriptor {
	methods := k.Service.Methods()
	if verb != "List" {
		return methods.ByName(protoreflect.Name(verb) + k.Message.Name())
	}
	for i := range methods.Len() {
		m := methods.Get(i)
		if strings.HasPrefix(string(m.Name()), "List") && m.Output().Fields().ByNumber(1).Message() == k.Message {
			return m
		}
	}
	return nil
}

// Body returns the field of a request that contains the resource, or nil if there is none.
func (k *Kind) Body(request protoreflect.MessageDescriptor) protoreflect.FieldDescriptor {
	for i := range request.Fields().Len() {
		if fd := request.Fields().Get(i); fd.Message() == k.Message {
			return fd
		}
	}
	return nil
}

// Changeable reports whether a resource of the kind can be changed. Otherwise it can only
// be created and deleted.
func (k *Kind) Changeable() bool { return k.Method("Update") != nil || k.Method("Set") != nil }

func descend(d protoreflect.MessageDescriptor, path string) protoreflect.FieldDescriptor {
	var fd protoreflect.FieldDescriptor
	for name := range strings.SplitSeq(path, ".") {
		if fd = d.Fields().ByName(protoreflect.Name(name)); fd == nil {
			panic("there is no field " + path + " in " + string(d.FullName()))
		}
		d = fd.Message()
	}
	return fd
}

// camel returns the name of a path in the API's JSON.
func camel(path string) string {
	var b strings.Builder
	upper := false
	for _, r := range path {
		switch {
		case r == '_':
			upper = true
			continue
		case upper:
			b.WriteString(strings.ToUpper(string(r)))
		default:
			b.WriteRune(r)
		}
		upper = false
	}
	return b.String()
}

// RefersTo reports whether a field can refer to resources of a kind.
func (f *Field) RefersTo(kind string) bool {
	switch f.Ref {
	case Identities:
		return kind == Workloads
	case Targets:
		return kind == Folders || kind == Repos
	}
	return f.Ref == kind
}
