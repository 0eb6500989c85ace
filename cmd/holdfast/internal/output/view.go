package output

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
)

// Formats are the formats of results.
var Formats = []string{"table", "wide", "json", "yaml", "csv", "id"}

// A Printer writes messages. It may buffer them until Flush.
type Printer interface {
	Add(protoreflect.Message) error
	Flush() error
	Close() error
}

// A View defines how results of one kind are shown.
type View struct {
	Plural  string // plural of the kind in a sentence
	ID      string // field that -o id prints; if "", uid
	Columns []Column
	Wide    []Column      // additional columns of the formats wide and csv
	Sorted  bool          // whether the rows of each page of a table are sorted by their cells
	Empty   func() string // returns the note below a table without rows; if nil, "no " and the plural
}

// NewPrinter returns a printer for messages of one kind. If chosen is not empty, it names
// the columns to print instead of the view's columns. many is true if the result is a
// list. names looks up the names of UIDs.
func NewPrinter(
	c *Console, format string, chosen []string, v View, d protoreflect.MessageDescriptor, many bool, names Names,
) (Printer, error) {
	if len(chosen) > 0 && slices.Contains([]string{"json", "yaml", "id"}, format) {
		return nil, problem.Usage("--columns needs -o table, wide or csv: it cannot be used with %s", format)
	}
	switch format {
	case "json":
		return &jsonPrinter{console: c, many: many}, nil
	case "yaml":
		return &yamlPrinter{console: c, many: many}, nil
	case "id":
		return &idPrinter{console: c, id: Column{path: cmp.Or(v.ID, "uid")}}, nil
	}
	columns := slices.Clone(v.Columns)
	if format == "wide" || format == "csv" {
		columns = slices.Concat(columns, v.Wide)
	}
	if len(chosen) > 0 {
		var err error
		if columns, err = v.choose(chosen, d); err != nil {
			return nil, err
		}
	}
	var header []string
	for _, c := range columns {
		header = append(header, c.Name)
	}
	r := rower{columns: columns, names: names, now: time.Now()}
	if format == "csv" {
		for i, c := range columns {
			if c.raw != "" {
				columns[i] = Column{Name: c.Name, path: c.raw}
			}
		}
		p := &csvPrinter{w: csv.NewWriter(c.Out), rower: r}
		return p, p.w.Write(header)
	}
	t := &Table{Console: c}
	for _, c := range columns {
		t.Header = append(t.Header, strings.ToUpper(words(c.Name)))
		t.tails, t.wholes = append(t.tails, c.tail), append(t.wholes, c.whole)
		t.spares, t.wraps = append(t.spares, c.spare), append(t.wraps, c.wrap)
	}
	if c.Terminal && format != "wide" {
		t.Width, r.relative = c.Width, true
	}
	empty := v.Empty
	if empty == nil {
		empty = func() string { return "no " + v.Plural }
	}
	return &tablePrinter{Table: t, rower: r, empty: empty, sorted: v.Sorted}, nil
}

// words splits a name in camel case into words.
func words(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// A Column is one field in a table or CSV.
type Column struct {
	Name string // header in CSV; a table shows it in capitals
	path string
	text func(protoreflect.Message) string // returns the text of the cell; if nil, the text is the field at path

	uids  func(protoreflect.Message) []string // returns the UIDs whose names the text contains
	named func(protoreflect.Message, Called) string
	whole bool   // whether the text is never shortened
	spare bool   // whether the column is left out if the table is too wide
	wrap  bool   // whether a text that does not fit continues on the next line
	tail  bool   // whether the end of the text is shown if it does not fit
	raw   string // path of the field that CSV shows; if "", CSV shows the same text
}

// Whole returns the column of a field that is never shortened, such as a link that is
// shown once.
func Whole(name, path string) Column { return Column{Name: name, path: path, whole: true} }

// Whole returns the column, whose texts are never shortened.
func (c Column) Whole() Column {
	c.whole = true
	return c
}

// Spare returns the column, which a table leaves out if it is too wide for the terminal.
func (c Column) Spare() Column {
	c.spare = true
	return c
}

// Wrapped returns the column, whose texts continue on the next line if they do not fit into a terminal.
func (c Column) Wrapped() Column {
	c.wrap = true
	return c
}

// InCSV returns the column with another field for CSV, because programs read CSV.
func (c Column) InCSV(path string) Column {
	c.raw = path
	return c
}

// Columns returns columns from specs. A spec is a Column or a string: the path of a field,
// or name=path.
func Columns(specs ...any) (columns []Column) {
	for _, spec := range specs {
		c, isColumn := spec.(Column)
		if !isColumn {
			name, path, named := strings.Cut(spec.(string), "=")
			if !named {
				path = name
			}
			c = Column{Name: name, path: path}
		}
		columns = append(columns, c)
	}
	return columns
}

// Text returns a column whose text is computed from a message.
func Text[T proto.Message](name string, text func(T) string) Column {
	return Column{Name: name, text: func(m protoreflect.Message) string { return text(m.Interface().(T)) }}
}

// choose returns columns by name: columns of the view, or any field by its JSON name.
func (v View) choose(names []string, d protoreflect.MessageDescriptor) ([]Column, error) {
	known := slices.Concat(v.Columns, v.Wide)
	var chosen []Column
	for _, name := range names {
		i := slices.IndexFunc(known, func(c Column) bool { return strings.EqualFold(c.Name, name) })
		switch {
		case i >= 0:
			chosen = append(chosen, known[i])
		case hasPath(d, name):
			chosen = append(chosen, Column{Name: name, path: name})
		default:
			return nil, problem.Usage("--columns: %s have no field %q", v.Plural, name).Hint("-o json shows every field")
		}
	}
	return chosen, nil
}

func hasPath(d protoreflect.MessageDescriptor, path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		if d == nil {
			return false
		}
		fd := fieldNamed(d, name)
		if fd == nil {
			return false
		}
		d = nil
		if fd.Message() != nil && !fd.IsList() && !fd.IsMap() {
			d = fd.Message()
		}
	}
	return true
}

func fieldNamed(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := d.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return d.Fields().ByName(protoreflect.Name(name))
}

// value returns the text of the column for a message, or "" if the field is not set.
func (c Column) value(m protoreflect.Message) string {
	if c.text != nil {
		return c.text(m)
	}
	m, fd := c.field(m)
	return textOf(m, fd)
}

// field returns the field of the column and the message that contains it.
func (c Column) field(m protoreflect.Message) (protoreflect.Message, protoreflect.FieldDescriptor) {
	names := strings.Split(c.path, ".")
	for _, name := range names[:len(names)-1] {
		m = m.Get(fieldNamed(m.Descriptor(), name)).Message() // an empty message if the field is not set
	}
	return m, fieldNamed(m.Descriptor(), names[len(names)-1])
}

// textOf returns the text of a field.
func textOf(m protoreflect.Message, fd protoreflect.FieldDescriptor) string {
	if !m.Has(fd) {
		if fd.Kind() == protoreflect.BoolKind {
			return "false"
		}
		return ""
	}
	v := m.Get(fd)
	if fd.IsList() && fd.Message() == nil {
		var texts []string
		for i := range v.List().Len() {
			texts = append(texts, scalarText(fd, v.List().Get(i)))
		}
		return strings.Join(texts, ",")
	}
	if fd.IsList() || fd.IsMap() || fd.Message() != nil {
		return strings.Trim(string(appendField(nil, fd, v)), `"`)
	}
	return scalarText(fd, v)
}

func scalarText(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	if fd.Enum() == nil {
		return v.String()
	}
	if d := fd.Enum().Values().ByNumber(v.Enum()); d != nil {
		return EnumWord(d)
	}
	return fmt.Sprint(v.Enum())
}

// EnumWords returns the words for the values of an enum, without internal values.
func EnumWords(d protoreflect.EnumDescriptor) (words []string) {
	for i := range d.Values().Len() {
		v := d.Values().Get(i)
		if word := EnumWord(v); v.Number() != 0 && !slices.Contains(strings.Split(word, "."), "internal") {
			words = append(words, word)
		}
	}
	return words
}

// EnumWord returns the word for an enum value: the dotted name of a capability, and
// otherwise the name in lower case without the prefix of the type.
func EnumWord(v protoreflect.EnumValueDescriptor) string {
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
