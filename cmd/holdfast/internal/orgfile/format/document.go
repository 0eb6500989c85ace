// Package format reads and writes files that describe organizations.
//
// A file is hostile until it is parsed: its size, its number of nodes and its depth are
// limited, and aliases, anchors, merge keys, tags, duplicate keys, unknown keys and several
// documents are errors that name the file and the line.
package format

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
)

// Version is the apiVersion of files.
const Version = "holdfast.dev/organization/v1"

// Limits of a file.
const (
	MaxSize  = 32 << 20  // bytes
	maxMarks = 3_000_000 // characters that can begin a value, counted before parsing because each value needs memory
	maxDepth = 16
)

// An Error is a mistake in a file.
type Error struct {
	At   model.Position
	Text string
}

// Error returns the position and the mistake.
func (e *Error) Error() string { return e.At.String() + ": " + e.Text }

// Mistakes are several mistakes. It is an error if it has any.
type Mistakes []*Error

// Error returns one line for each mistake.
func (m Mistakes) Error() string {
	var lines []string
	for _, e := range m {
		lines = append(lines, e.Error())
	}
	return strings.Join(lines, "\n")
}

// maxMistakes limits the mistakes that are reported for a file.
const maxMistakes = 20

// A parser parses one file.
type parser struct {
	file     string
	mistakes Mistakes
}

func (p *parser) fail(n *yaml.Node, format string, args ...any) {
	if len(p.mistakes) < maxMistakes {
		p.mistakes = append(p.mistakes, &Error{p.at(n), fmt.Sprintf(format, args...)})
	}
}

func (p *parser) at(n *yaml.Node) model.Position {
	if n == nil {
		return model.Position{File: p.file, Line: 1}
	}
	return model.Position{File: p.file, Line: n.Line}
}

func (p *parser) err() error {
	if len(p.mistakes) == 0 {
		return nil
	}
	return p.mistakes
}

// load returns the root mapping of a document.
func (p *parser) load(text []byte) (*yaml.Node, error) {
	if err := p.checkSize(text); err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &Error{p.at(nil), "the file is empty"}
		}
		return nil, p.syntax(err)
	}
	var next yaml.Node
	if err := decoder.Decode(&next); err == nil {
		return nil, &Error{p.at(&next), "a file contains one document, and another begins here"}
	} else if !errors.Is(err, io.EOF) {
		return nil, p.syntax(err)
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, &Error{p.at(root), "a file is a mapping that begins with apiVersion: " + Version}
	}
	p.checkNode(root, 0)
	return root, p.err()
}

// checkSize refuses a file whose nodes would need too much memory.
func (p *parser) checkSize(text []byte) error {
	if len(text) > MaxSize {
		return &Error{p.at(nil), fmt.Sprintf("the file is larger than %d MiB: split it into a folder of files", MaxSize>>20)}
	}
	marks, line := 0, 1
	for _, c := range text {
		switch c {
		case '\n', ',', '[', '{', ':', '-', '?':
			marks++
		}
		if marks > maxMarks {
			return &Error{model.Position{File: p.file, Line: line},
				"the file has too many values: split it into a folder of files"}
		}
		if c == '\n' {
			line++
		}
	}
	return nil
}

// syntax returns an error of the YAML library with the file and the line. The library
// writes the line into its text.
func (p *parser) syntax(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if _, scanErr := fmt.Sscanf(text, "line %d:", &line); scanErr == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	return &Error{model.Position{File: p.file, Line: line}, "this is not YAML: " + text}
}

// checkNode refuses parts of YAML that hide what a file says.
func (p *parser) checkNode(n *yaml.Node, depth int) {
	switch {
	case depth > maxDepth:
		p.fail(n, "values are nested too deeply")
		return
	case n.Kind == yaml.AliasNode:
		p.fail(n, "aliases are not allowed: write the value again")
		return
	case n.Anchor != "":
		p.fail(n, "anchors are not allowed")
	case n.Style&yaml.TaggedStyle != 0:
		p.fail(n, "tags are not allowed")
	}
	if n.Kind == yaml.MappingNode {
		p.checkKeys(n)
	}
	for _, child := range n.Content {
		if len(p.mistakes) >= maxMistakes {
			return
		}
		p.checkNode(child, depth+1)
	}
}

func (p *parser) checkKeys(n *yaml.Node) {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode:
			p.fail(key, "a key is a text")
		case key.Tag == "!!merge":
			p.fail(key, "merge keys are not allowed: write the values again")
		case seen[key.Value] > 0:
			p.fail(key, "the key %q is here twice; the first is in line %d", clip(key.Value), seen[key.Value])
		}
		seen[key.Value] = key.Line
	}
}

// clip shortens a text for a message.
func clip(text string) string {
	if len(text) > 60 {
		return strings.ToValidUTF8(text[:60], "") + "…"
	}
	return text
}
