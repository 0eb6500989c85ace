package output

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A Table aligns rows of text. The rows of the first page set the widths, because
// the others are printed as they arrive.
type Table struct {
	Console *Console
	Header  []string
	rows    [][]string
	widths  []int // known once the first page is out
}

// Add adds a row to the page.
func (t *Table) Add(row []string) {
	for i, cell := range row {
		row[i] = Printable(cell)
	}
	t.rows = append(t.rows, row)
}

// Flush prints the page.
func (t *Table) Flush() error {
	if t.widths == nil && len(t.rows) > 0 {
		t.widths = make([]int, len(t.Header))
		for _, row := range append([][]string{t.Header}, t.rows...) {
			for i, cell := range row {
				t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
			}
		}
		t.write(t.Header, Bold)
	}
	for _, row := range t.rows {
		t.write(row, "")
	}
	t.rows = t.rows[:0]
	return nil
}

func (t *Table) write(row []string, style string) {
	var line strings.Builder
	for i, cell := range row {
		line.WriteString(cell)
		if i < len(row)-1 {
			line.WriteString(strings.Repeat(" ", max(0, t.widths[i]-utf8.RuneCountInString(cell))+2))
		}
	}
	text := strings.TrimRight(line.String(), " ")
	if style != "" {
		text = t.Console.Paint(style, text)
	}
	fmt.Fprintln(t.Console.Out, text) // errors stay in the writer until it is flushed
}

func rowOf(columns []Column, m protoreflect.Message) []string {
	row := make([]string, len(columns))
	for i, c := range columns {
		row[i] = c.value(m)
	}
	return row
}

type tablePrinter struct {
	*Table
	columns []Column
	empty   string
}

func (p *tablePrinter) Add(m protoreflect.Message) error {
	p.Table.Add(rowOf(p.columns, m))
	return nil
}

func (p *tablePrinter) Close() error {
	if err := p.Flush(); err != nil {
		return err
	}
	if p.widths == nil {
		p.Console.Note("%s", p.empty)
	}
	return nil
}

type csvPrinter struct {
	w       *csv.Writer
	columns []Column
}

func (p *csvPrinter) Add(m protoreflect.Message) error {
	return p.w.Write(rowOf(p.columns, m))
}

func (p *csvPrinter) Flush() error {
	p.w.Flush()
	return p.w.Error()
}

func (p *csvPrinter) Close() error { return p.Flush() }

// unbuffered is the part of printers that write each message at once.
type unbuffered struct{}

func (unbuffered) Flush() error { return nil }
func (unbuffered) Close() error { return nil }

type idPrinter struct {
	unbuffered
	console *Console
	id      Column
}

func (p *idPrinter) Add(m protoreflect.Message) error {
	_, err := fmt.Fprintln(p.console.Out, p.id.value(m))
	return err
}

// A jsonPrinter writes one message as an object, and several as an array.
type jsonPrinter struct {
	unbuffered
	console *Console
	many    bool
	n       int
	buf     bytes.Buffer
}

func (p *jsonPrinter) Add(m protoreflect.Message) error {
	prefix := ""
	if p.many {
		prefix = "  "
		before := ",\n  "
		if p.n == 0 {
			before = "[\n  "
		}
		fmt.Fprint(p.console.Out, before)
	}
	p.n++
	p.buf.Reset()
	if err := json.Indent(&p.buf, appendJSON(nil, m), prefix, "  "); err != nil {
		return err
	}
	_, err := p.buf.WriteTo(p.console.Out)
	return err
}

func (p *jsonPrinter) Close() error {
	end := "\n"
	switch {
	case p.many && p.n == 0:
		end = "[]\n"
	case p.many:
		end = "\n]\n"
	}
	_, err := p.console.Out.WriteString(end)
	return err
}

// A yamlPrinter writes what a jsonPrinter does, as YAML.
type yamlPrinter struct {
	unbuffered
	console *Console
	many    bool
	n       int
}

func (p *yamlPrinter) Add(m protoreflect.Message) error {
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
	_, err := buf.WriteTo(p.console.Out)
	return err
}

// plain removes the braces and quotes of JSON where YAML needs none.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plain(c)
	}
}

func (p *yamlPrinter) Close() error {
	if p.many && p.n == 0 {
		fmt.Fprintln(p.console.Out, "[]")
	}
	return nil
}
