package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/yaml.v3"
)

var formats = []string{"table", "wide", "json", "yaml", "csv", "id"}

func checkFormat(s string) error {
	if !slices.Contains(formats, s) {
		return fmt.Errorf("%q is none of %s", s, strings.Join(formats, ", "))
	}
	return nil
}

// A printer writes results one after the other. What it has been given may wait
// until flush.
type printer interface {
	add(protoreflect.Message) error
	flush() error
	close() error
}

// A view is how results of one kind are shown.
type view struct {
	plural  string // what several are called in a sentence
	id      string // the field that -o id shows; "" is uid
	columns []column
	wide    []column // also shown by wide and csv
}

// newPrinter returns the printer of a format for messages of one kind. chosen
// names columns in place of those of the view; many tells whether the result is a
// list.
func newPrinter(
	c *console, format string, chosen []string, v view, d protoreflect.MessageDescriptor, many bool,
) (printer, error) {
	if len(chosen) > 0 && slices.Contains([]string{"json", "yaml", "id"}, format) {
		return nil, usage("--columns goes with table, wide and csv, not with %s", format)
	}
	switch format {
	case "json":
		return &jsonPrinter{console: c, many: many}, nil
	case "yaml":
		return &yamlPrinter{console: c, many: many}, nil
	case "id":
		return &idPrinter{console: c, id: column{path: cmp.Or(v.id, "uid")}}, nil
	}
	columns := v.columns
	if format == "wide" || format == "csv" {
		columns = slices.Concat(columns, v.wide)
	}
	if len(chosen) > 0 {
		var err error
		if columns, err = v.choose(chosen, d); err != nil {
			return nil, err
		}
	}
	var header []string
	for _, c := range columns {
		header = append(header, c.name)
	}
	if format == "csv" {
		p := &csvPrinter{w: csv.NewWriter(c.out), columns: columns}
		return p, p.w.Write(header)
	}
	for i, name := range header {
		header[i] = strings.ToUpper(name)
	}
	return &tablePrinter{table: &table{console: c, header: header}, columns: columns, empty: "no " + v.plural}, nil
}

// A column is one field in a table or CSV.
type column struct {
	name string // in capitals, its header
	path string
	text func(protoreflect.Message) string // in place of path
}

// columnsOf returns columns that are named like their fields, or name=path.
func columnsOf(specs ...string) (all []column) {
	for _, spec := range specs {
		name, path, named := strings.Cut(spec, "=")
		if !named {
			path = name
		}
		all = append(all, column{name: name, path: path})
	}
	return all
}

// choose finds columns by name: those of the view, or any field by its JSON name.
func (v view) choose(names []string, d protoreflect.MessageDescriptor) ([]column, error) {
	known := slices.Concat(v.columns, v.wide)
	var chosen []column
	for _, name := range names {
		i := slices.IndexFunc(known, func(c column) bool { return strings.EqualFold(c.name, name) })
		switch {
		case i >= 0:
			chosen = append(chosen, known[i])
		case hasPath(d, name):
			chosen = append(chosen, column{name: name, path: name})
		default:
			return nil, usage("--columns: %s have no field %q", v.plural, name).hint("-o json shows every field")
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

// value is the text of the column for one resource. What is not set is "".
func (c column) value(m protoreflect.Message) string {
	if c.text != nil {
		return c.text(m)
	}
	names := strings.Split(c.path, ".")
	for _, name := range names[:len(names)-1] {
		m = m.Get(fieldNamed(m.Descriptor(), name)).Message() // of what is not set, empty
	}
	return textOf(m, fieldNamed(m.Descriptor(), names[len(names)-1]))
}

// textOf writes one field for people.
func textOf(m protoreflect.Message, fd protoreflect.FieldDescriptor) string {
	if !m.Has(fd) {
		if fd.Kind() == protoreflect.BoolKind {
			return "false"
		}
		return ""
	}
	v := m.Get(fd)
	if fd.IsList() && fd.Message() == nil {
		var all []string
		for i := range v.List().Len() {
			all = append(all, scalarText(fd, v.List().Get(i)))
		}
		return strings.Join(all, ",")
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
		return enumWord(d)
	}
	return fmt.Sprint(v.Enum())
}

// A table is rows of text, aligned over those of the first page: the rest goes
// out as it comes.
type table struct {
	console *console
	header  []string
	rows    [][]string
	widths  []int // known once the first page is out
}

func (t *table) add(row []string) {
	for i, cell := range row {
		row[i] = printable(cell)
	}
	t.rows = append(t.rows, row)
}

func (t *table) flush() error {
	if t.widths == nil && len(t.rows) > 0 {
		t.widths = make([]int, len(t.header))
		for _, row := range append([][]string{t.header}, t.rows...) {
			for i, cell := range row {
				t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
			}
		}
		t.write(t.header, bold)
	}
	for _, row := range t.rows {
		t.write(row, "")
	}
	t.rows = t.rows[:0]
	return nil
}

func (t *table) write(row []string, style string) {
	var line strings.Builder
	for i, cell := range row {
		line.WriteString(cell)
		if i < len(row)-1 {
			line.WriteString(strings.Repeat(" ", max(0, t.widths[i]-utf8.RuneCountInString(cell))+2))
		}
	}
	text := strings.TrimRight(line.String(), " ")
	if style != "" {
		text = t.console.paint(style, text)
	}
	fmt.Fprintln(t.console.out, text) // errors stay in the writer until it is flushed
}

func rowOf(columns []column, m protoreflect.Message) []string {
	row := make([]string, len(columns))
	for i, c := range columns {
		row[i] = c.value(m)
	}
	return row
}

type tablePrinter struct {
	*table
	columns []column
	empty   string
}

func (p *tablePrinter) add(m protoreflect.Message) error {
	p.table.add(rowOf(p.columns, m))
	return nil
}

func (p *tablePrinter) close() error {
	if err := p.flush(); err != nil {
		return err
	}
	if p.widths == nil {
		p.console.note("%s", p.empty)
	}
	return nil
}

type csvPrinter struct {
	w       *csv.Writer
	columns []column
}

func (p *csvPrinter) add(m protoreflect.Message) error {
	return p.w.Write(rowOf(p.columns, m))
}

func (p *csvPrinter) flush() error {
	p.w.Flush()
	return p.w.Error()
}

func (p *csvPrinter) close() error { return p.flush() }

// unbuffered is the part of printers that write each message at once.
type unbuffered struct{}

func (unbuffered) flush() error { return nil }
func (unbuffered) close() error { return nil }

type idPrinter struct {
	unbuffered
	console *console
	id      column
}

func (p *idPrinter) add(m protoreflect.Message) error {
	_, err := fmt.Fprintln(p.console.out, p.id.value(m))
	return err
}

// A jsonPrinter writes one resource as an object, and a list as an array,
// element by element.
type jsonPrinter struct {
	unbuffered
	console *console
	many    bool
	n       int
	buf     bytes.Buffer
}

func (p *jsonPrinter) add(m protoreflect.Message) error {
	prefix := ""
	if p.many {
		prefix = "  "
		before := ",\n  "
		if p.n == 0 {
			before = "[\n  "
		}
		fmt.Fprint(p.console.out, before)
	}
	p.n++
	p.buf.Reset()
	if err := json.Indent(&p.buf, appendJSON(nil, m), prefix, "  "); err != nil {
		return err
	}
	_, err := p.buf.WriteTo(p.console.out)
	return err
}

func (p *jsonPrinter) close() error {
	end := "\n"
	switch {
	case p.many && p.n == 0:
		end = "[]\n"
	case p.many:
		end = "\n]\n"
	}
	_, err := p.console.out.WriteString(end)
	return err
}

// A yamlPrinter writes what a jsonPrinter does, as YAML.
type yamlPrinter struct {
	unbuffered
	console *console
	many    bool
	n       int
}

func (p *yamlPrinter) add(m protoreflect.Message) error {
	p.n++
	var doc yaml.Node
	if err := yaml.Unmarshal(appendJSON(nil, m), &doc); err != nil { // JSON is YAML, and keeps its order
		return err
	}
	node := doc.Content[0]
	plain(node)
	var value any = node
	if p.many {
		value = []*yaml.Node{node}
	}
	var buf bytes.Buffer
	e := yaml.NewEncoder(&buf)
	e.SetIndent(2)
	if err := e.Encode(value); err != nil {
		return err
	}
	_, err := buf.WriteTo(p.console.out)
	return err
}

// plain takes away the style of JSON: braces and quotes where none are needed.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plain(c)
	}
}

func (p *yamlPrinter) close() error {
	if p.many && p.n == 0 {
		fmt.Fprintln(p.console.out, "[]")
	}
	return nil
}

// printPairs prints what has a value, one to a line.
func (c *console) pairs(pairs [][2]string) {
	for _, p := range pairs {
		if p[1] != "" {
			fmt.Fprintf(c.out, "%s %s\n", c.paint(bold, fmt.Sprintf("%-10s", p[0])), printable(p[1]))
		}
	}
}

func (c *console) json(v any) error {
	e := json.NewEncoder(c.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
