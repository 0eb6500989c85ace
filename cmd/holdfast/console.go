package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/term"
)

// A console is where a command reads and prints. Results go to out, and
// everything else to err.
type console struct {
	in     *os.File
	out    *bufio.Writer // its errors show when it is flushed
	err    *os.File
	colour bool     // out is a terminal that shows colours
	warned sync.Map // the warnings that were given
}

func newConsole(in, out, err *os.File) *console {
	return &console{
		in: in, out: bufio.NewWriterSize(out, 64<<10), err: err,
		colour: wantsColour(isTerminal(out), os.Getenv),
	}
}

func wantsColour(terminal bool, getenv func(string) string) bool {
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// note tells the person something that is not a result.
func (c *console) note(format string, args ...any) {
	fmt.Fprintln(c.err, "holdfast: "+printable(fmt.Sprintf(format, args...)))
}

// warn tells of a danger, once.
func (c *console) warn(text string) {
	if _, known := c.warned.LoadOrStore(text, true); !known {
		c.note("warning: %s", text)
	}
}

// paint colours text on a terminal.
func (c *console) paint(style, text string) string {
	if !c.colour || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

const (
	bold  = "1"
	faint = "2"
	red   = "31"
	green = "32"
)

// printable makes text safe to show: what could move the cursor or colour the
// screen is written as an escape.
func printable(s string) string {
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

// readText reads a file, or standard input for "-", without the space around it.
func (c *console) readText(path string) (string, error) {
	if path == "-" {
		text, err := io.ReadAll(c.in)
		return strings.TrimSpace(string(text)), err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", usage("%v", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// readSecret returns an argument, or standard input for "-": what is on a command
// line shows in the list of processes.
func (c *console) readSecret(text string) (string, error) {
	if text == "-" {
		return c.readText(text)
	}
	return text, nil
}
