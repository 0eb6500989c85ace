package output

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/itchyny/gojq"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// maxQueried is the largest input of a query, in bytes.
const maxQueried = 256 << 20

// A query is a jq expression that transforms the output of a command. It can read neither
// the environment nor files.
type query struct {
	code *gojq.Code
	json bytes.Buffer // output of the command so far
	out  io.Writer    // destination of the results
}

// Query makes the output of the command the input of a jq expression. Answer then prints
// the results instead.
func (c *Console) Query(expression string) error {
	parsed, err := gojq.Parse(expression)
	if wrong, ok := errors.AsType[*gojq.ParseError](err); ok {
		offset := max(0, min(wrong.Offset-len(wrong.Token), len(expression)))
		return problem.Usage("--jq: %v, at character %d", err, len([]rune(expression[:offset]))+1).
			Hint("here: " + expression[:offset] + " → " + expression[offset:])
	}
	var code *gojq.Code
	if err == nil {
		code, err = gojq.Compile(parsed)
	}
	if err != nil {
		return problem.Usage("--jq: %v", err)
	}
	c.query = &query{code: code, out: c.file}
	c.Out.Reset(c.query)
	return nil
}

// Write buffers the output of the command.
func (q *query) Write(p []byte) (int, error) {
	if q.json.Len()+len(p) > maxQueried {
		return 0, problem.New(problem.ExitError, "--jq reads at most %d MiB", maxQueried>>20).
			Hint("use --limit, or pipe -o json into jq")
	}
	return q.json.Write(p)
}

// Answer prints the results of the query, if there is one. If failed is true, it prints
// the original output of the command.
func (c *Console) Answer(ctx context.Context, failed bool) error {
	q := c.query
	if q == nil {
		return c.Out.Flush()
	}
	if err := c.Out.Flush(); err != nil {
		return err
	}
	c.query = nil
	c.Out.Reset(q.out)
	if failed {
		_, err := c.Out.Write(q.json.Bytes())
		return errors.Join(err, c.Out.Flush())
	}
	for d := json.NewDecoder(&q.json); ; {
		var input any
		err := d.Decode(&input)
		if errors.Is(err, io.EOF) {
			return c.Out.Flush()
		}
		if err != nil {
			return problem.Usage("--jq needs JSON, which this command does not print")
		}
		if err := c.evaluate(ctx, q.code, input); err != nil {
			return errors.Join(c.Out.Flush(), err)
		}
	}
}

// evaluate prints the results of an expression for one input: strings without quotes, and
// other values as JSON on one line.
func (c *Console) evaluate(ctx context.Context, code *gojq.Code, input any) error {
	results := code.RunWithContext(ctx, input)
	for n := 1; ; n++ {
		v, ok := results.Next()
		if !ok {
			return nil
		}
		if err, ok := v.(error); ok {
			if halt, ok := errors.AsType[*gojq.HaltError](err); ok && halt.Value() == nil {
				return nil
			}
			return problem.Usage("--jq: %v, at result %d", err, n)
		}
		text, isText := v.(string)
		if !isText {
			b, err := gojq.Marshal(v)
			if err != nil {
				return fmt.Errorf("--jq: %w", err)
			}
			text = string(b)
		}
		if isText && IsTerminal(c.file) { // text on a terminal is escaped; a pipe gets the original bytes
			lines := strings.Split(text, "\n")
			for i := range lines {
				lines[i] = Printable(lines[i])
			}
			text = strings.Join(lines, "\n")
		}
		fmt.Fprintln(c.Out, text) // the writer returns the error when it is flushed
	}
}
