// Package output prints: notes on the terminal, and messages of the API as
// tables, CSV, JSON, YAML or ids. A View says how messages of one kind look.
package output

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/term"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// A Console is where a command reads and prints. Results go to out, and
// everything else to err.
type Console struct {
	In     *os.File
	Out    *bufio.Writer // its errors show when it is flushed
	Err    *os.File
	colour bool     // out is a terminal that shows colours
	warned sync.Map // the warnings that were given
}

func NewConsole(in, out, err *os.File) *Console {
	return &Console{
		In: in, Out: bufio.NewWriterSize(out, 64<<10), Err: err,
		colour: wantsColour(IsTerminal(out), os.Getenv),
	}
}

func wantsColour(terminal bool, getenv func(string) string) bool {
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Note tells the person something that is not a result.
func (c *Console) Note(format string, args ...any) {
	fmt.Fprintln(c.Err, "holdfast: "+Printable(fmt.Sprintf(format, args...)))
}

// Warn tells of a danger, once.
func (c *Console) Warn(text string) {
	if _, known := c.warned.LoadOrStore(text, true); !known {
		c.Note("warning: %s", text)
	}
}

// Paint colours text on a terminal.
func (c *Console) Paint(style, text string) string {
	if !c.colour || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

const (
	Bold  = "1"
	Faint = "2"
	Red   = "31"
	Green = "32"
)

// Printable makes text safe to show: what could move the cursor or colour the
// screen is written as an escape.
func Printable(s string) string {
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// unprintable holds for controls, and for the marks that reorder what is shown.
func unprintable(r rune) bool {
	return unicode.IsControl(r) || slices.ContainsFunc([][2]rune{{0x202a, 0x202e}, {0x2066, 0x2069}}, func(span [2]rune) bool {
		return r >= span[0] && r <= span[1]
	})
}

// ReadText reads a file, or standard input for "-", without the space around it.
func (c *Console) ReadText(path string) (string, error) {
	if path == "-" {
		text, err := io.ReadAll(c.In)
		return strings.TrimSpace(string(text)), err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", problem.Usage("%v", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// ReadSecret returns an argument, or standard input for "-": what is on a command
// line shows in the list of processes.
func (c *Console) ReadSecret(text string) (string, error) {
	if text == "-" {
		return c.ReadText(text)
	}
	return text, nil
}

// printPairs prints what has a value, one to a line.
func (c *Console) Pairs(pairs [][2]string) {
	for _, p := range pairs {
		if p[1] != "" {
			fmt.Fprintf(c.Out, "%s %s\n", c.Paint(Bold, fmt.Sprintf("%-10s", p[0])), Printable(p[1]))
		}
	}
}

func (c *Console) JSON(v any) error {
	e := json.NewEncoder(c.Out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
