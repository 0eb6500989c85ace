package output

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/width"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A Table aligns rows of text. The rows of the first page determine the widths, because
// later pages are printed when they arrive.
type Table struct {
	Console *Console
	Header  []string
	Width   int    // width of a line in cells, to which rows are shortened; if 0, nothing is shortened
	tails   []bool // by column: whether the end of a long cell is shown, and not its beginning
	wholes  []bool // by column: whether cells are never shortened
	spares  []bool // by column: whether the column is left out if the table is too wide
	wraps   []bool // by column: whether a long cell continues on the next line, and is not shortened
	rows    [][]string
	widths  []int // widths of the columns, determined by the first page
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
				t.widths[i] = max(t.widths[i], cells(cell))
			}
		}
		if t.Width > 0 {
			t.leaveOut()
			t.fit()
		}
		t.write(t.Header, Bold)
	}
	for _, row := range t.rows {
		t.write(row, "")
	}
	t.rows = t.rows[:0]
	return nil
}

// write prints a row. The rest of a long cell of a wrapped column follows on the next lines.
func (t *Table) write(row []string, style string) {
	for row != nil {
		var rest []string
		for i := range row {
			if i < len(t.wraps) && t.wraps[i] && t.Width > 0 && cells(row[i]) > t.widths[i] && t.widths[i] > 0 {
				if rest == nil {
					row, rest = slices.Clone(row), make([]string, len(row))
				}
				row[i], rest[i] = split(row[i], t.widths[i])
			}
		}
		t.writeLine(row, style)
		row = rest
	}
}

func (t *Table) writeLine(row []string, style string) {
	var line strings.Builder
	for i, cell := range row {
		if t.widths[i] == 0 { // the column is left out
			continue
		}
		if t.Width > 0 && !(i < len(t.wholes) && t.wholes[i]) {
			cell = cut(cell, t.widths[i], i < len(t.tails) && t.tails[i])
		}
		line.WriteString(cell)
		if i < len(row)-1 {
			line.WriteString(strings.Repeat(" ", max(0, t.widths[i]-cells(cell))+gap))
		}
	}
	text := strings.TrimRight(line.String(), " ")
	if style != "" {
		text = t.Console.Paint(style, text)
	}
	fmt.Fprintln(t.Console.Out, text) // the writer returns the error when it is flushed
}

// gap is the space between columns. leastWidth is the smallest width to which a column is
// reduced. Both are in cells.
const (
	gap        = 2
	leastWidth = 6
)

// leaveOut removes spare columns, the last first, until the other columns fit without being shortened.
func (t *Table) leaveOut() {
	for i := len(t.spares) - 1; i >= 0 && t.total() > t.Width; i-- {
		if t.spares[i] {
			t.widths[i] = 0
		}
	}
}

// total returns the width of the table. A column without width is left out.
func (t *Table) total() int {
	total := -gap
	for _, w := range t.widths {
		if w > 0 {
			total += w + gap
		}
	}
	return total
}

// fit reduces the widest columns until a line has Width cells.
func (t *Table) fit() {
	for total := t.total(); total > t.Width; total-- {
		widest := -1
		for i, w := range t.widths {
			if w > leastWidth && !(i < len(t.wholes) && t.wholes[i]) && (widest < 0 || w > t.widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		t.widths[widest]--
	}
}

// cells returns the number of terminal cells that a text occupies.
func cells(s string) (n int) {
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	if r < 0x300 { // the common case, one cell
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// cut shortens a text to n cells, with an ellipsis for its end, or for its beginning if
// tail is true.
func cut(s string, n int, tail bool) string {
	if cells(s) <= n {
		return s
	}
	runes := []rune(s)
	if tail {
		slices.Reverse(runes)
	}
	used, i := 1, 0
	for ; i < len(runes) && used+runeCells(runes[i]) <= n; i++ {
		used += runeCells(runes[i])
	}
	runes = append(runes[:i], '…')
	if tail {
		slices.Reverse(runes)
	}
	return string(runes)
}

// split returns the beginning of a text, which has at most n cells, and the rest. It prefers to split after a
// separator.
func split(s string, n int) (first, rest string) {
	used, end, separator := 0, 0, 0
	for i, r := range s {
		if used += runeCells(r); used > n {
			break
		}
		if end = i + len(string(r)); strings.ContainsRune("/:.-_+ ", r) {
			separator = end
		}
	}
	if separator > end/2 {
		end = separator
	}
	return s[:max(end, 1)], s[max(end, 1):]
}

type tablePrinter struct {
	*Table
	rower
	page   []protoreflect.Message
	empty  func() string
	sorted bool
}

func (p *tablePrinter) Add(m protoreflect.Message) error {
	p.page = append(p.page, m)
	return nil
}

func (p *tablePrinter) Flush() error {
	rows := p.rower.rows(p.page)
	if p.sorted {
		slices.SortStableFunc(rows, slices.Compare[[]string])
	}
	for _, row := range rows {
		p.Table.Add(row)
	}
	p.page = p.page[:0]
	return p.Table.Flush()
}

func (p *tablePrinter) Close() error {
	if err := p.Flush(); err != nil {
		return err
	}
	if p.widths == nil {
		p.Console.Note("%s", p.empty())
	}
	return nil
}

type csvPrinter struct {
	rower
	w    *csv.Writer
	page []protoreflect.Message
}

func (p *csvPrinter) Add(m protoreflect.Message) error {
	p.page = append(p.page, m)
	return nil
}

func (p *csvPrinter) Flush() error {
	for _, row := range p.rows(p.page) {
		for i, cell := range row {
			row[i] = inert(cell)
		}
		if err := p.w.Write(row); err != nil {
			return err
		}
	}
	p.page = p.page[:0]
	p.w.Flush()
	return p.w.Error()
}

// inert returns a cell of CSV with an apostrophe in front if a spreadsheet would compute
// it as a formula, because strangers choose the names in cells. It does not change numbers.
func inert(cell string) string {
	if cell == "" || !strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return cell
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil {
		return cell
	}
	return "'" + cell
}

func (p *csvPrinter) Close() error { return p.Flush() }

// unbuffered is embedded in printers that write each message immediately.
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

// A yamlPrinter writes the same structure as a jsonPrinter, in YAML.
type yamlPrinter struct {
	unbuffered
	console *Console
	many    bool
	n       int
}

func (p *yamlPrinter) Add(m protoreflect.Message) error {
	p.n++
	var doc yaml.Node
	// JSON is valid YAML, and the nodes keep the order of the keys
	if err := yaml.Unmarshal(appendJSON(nil, m), &doc); err != nil {
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

// plain removes the braces and quotes of JSON where YAML does not need them.
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
