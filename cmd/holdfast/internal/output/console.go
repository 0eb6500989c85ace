// Package output prints notes on the terminal, and messages of the API as tables, CSV,
// JSON, YAML or IDs. A View defines how messages of one kind are shown.
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

// A Console contains the input and outputs of a command. Results go to Out, and
// everything else to Err.
type Console struct {
	In  *os.File
	Out *bufio.Writer // write errors are returned by Flush
	Err *os.File
	// Terminal is true if results go to a terminal. Its lines have Width cells.
	Terminal bool
	Width    int
	file     *os.File // file to which Out writes
	query    *query   // transforms the results; nil if there is no query
	color    bool     // whether to color Out
	paints   bool     // whether to color Err
	warned   sync.Map // warnings that were already printed
}

// NewConsole returns a Console with a buffer for out.
func NewConsole(in, out, err *os.File) *Console {
	c := &Console{In: in, Out: bufio.NewWriterSize(out, 64<<10), Err: err, file: out, Terminal: IsTerminal(out)}
	c.color, c.paints = wantsColor(c.Terminal, os.Getenv), wantsColor(IsTerminal(err), os.Getenv)
	if c.Width = usualWidth; c.Terminal {
		if width, _, err := term.GetSize(int(out.Fd())); err == nil && width > 0 {
			c.Width = width
		}
	}
	return c
}

// usualWidth is the width of a terminal of unknown size.
const usualWidth = 100

// Colors are the arguments of SetColor. The first is the default.
var Colors = []string{"auto", "always", "never"}

// SetColor sets when to use colors: auto (on a terminal that supports them), always or
// never.
func (c *Console) SetColor(when string) error {
	if !slices.Contains(Colors, when) {
		return problem.Usage("--color must be one of %s", strings.Join(Colors, ", "))
	}
	if when != "auto" {
		c.color, c.paints = when == "always", when == "always"
	}
	return nil
}

func wantsColor(terminal bool, getenv func(string) string) bool {
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Note prints a line that is not a result.
func (c *Console) Note(format string, args ...any) {
	fmt.Fprintln(c.Err, "holdfast: "+Printable(fmt.Sprintf(format, args...)))
}

// Fail prints an error.
func (c *Console) Fail(text string) {
	if text = Printable(text); c.paints {
		text = painted(Red, text)
	}
	fmt.Fprintln(c.Err, "holdfast: "+text)
}

// Warn prints a warning. It prints the same warning only once.
func (c *Console) Warn(text string) {
	if _, known := c.warned.LoadOrStore(text, true); !known {
		c.Note("warning: %s", text)
	}
}

// Paint returns text in a style, if the terminal supports colors.
func (c *Console) Paint(style, text string) string {
	if !c.color || text == "" {
		return text
	}
	return painted(style, text)
}

func painted(style, text string) string { return "\x1b[" + style + "m" + text + "\x1b[0m" }

// The styles of Paint.
const (
	Bold  = "1"
	Faint = "2"
	Red   = "31"
	Green = "32"
)

// Printable replaces characters that could move the cursor or change colors with escape
// sequences.
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

// unprintable reports whether r is a control character or changes the direction of text.
func unprintable(r rune) bool {
	return unicode.IsControl(r) || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069)
}

// ReadText reads a file, or standard input if path is "-". It trims white space.
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

// ReadSecret returns text, or standard input if text is "-". Secrets can be passed that
// way because arguments are visible in the list of processes.
func (c *Console) ReadSecret(text string) (string, error) {
	if text == "-" {
		return c.ReadText(text)
	}
	return text, nil
}

// Pairs prints names and values, one pair per line. It omits empty values.
func (c *Console) Pairs(pairs [][2]string) {
	width := 10
	for _, p := range pairs {
		width = max(width, len(p[0]))
	}
	for _, p := range pairs {
		if p[1] != "" {
			fmt.Fprintf(c.Out, "%s %s\n", c.Paint(Bold, fmt.Sprintf("%-*s", width, p[0])), Printable(p[1]))
		}
	}
}

// JSON prints v as indented JSON.
func (c *Console) JSON(v any) error {
	e := json.NewEncoder(c.Out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
