package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/extract"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/layer"
)

// childName is the program name with which Image starts a child.
const childName = "holdfastd-inspect"

// IsChild reports whether this process is a child that Image started.
func IsChild() bool {
	ready = true
	return len(os.Args) == 1 && os.Args[0] == childName
}

// ready is true after main has called IsChild. A program that never calls IsChild would run its normal code as a child.
var ready bool

// Ready reports whether Image can be used. It can be used after main has called IsChild.
func Ready() bool { return ready }

// Child reads images from standard input, writes their packages to standard output, and ends the process.
func Child() {
	out := os.Stdout
	os.Stdout = os.Stderr // keeps messages that a library prints about databases out of the answer
	if err := serve(os.Stdin, out); err != nil {
		fmt.Fprintln(os.Stderr, "holdfastd-inspect:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve reads a request, confines this process, and only then reads the image and writes the answer. Then it does so
// for further requests, which have the same limits, until the input ends.
func serve(in io.Reader, out io.Writer) error {
	frames, encoder := newFrameReader(in), json.NewEncoder(out)
	var memory func() int64
	for {
		content, err := frames.request()
		if memory != nil && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var req request
		if err := json.Unmarshal(content, &req); err != nil {
			return err
		}
		if memory == nil {
			runtime.GOMAXPROCS(2) // one processor for reading, one for garbage collection
			debug.SetMemoryLimit(req.Limits.MemoryBytes / 2)
			memory = openMemory()
			if err := confine(req.Limits, os.TempDir()); err != nil {
				return err
			}
		}
		a := read(context.Background(), frames, req, func(c LayerCost) error { return encoder.Encode(answer{Layer: &c}) })
		if a.Result != nil {
			a.Result.MemoryBytes = memory()
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
}

// read reads the image or the document of the request. It calls report with the cost of each layer, also if the layer
// cannot be read.
func read(ctx context.Context, frames *frameReader, req request, report func(LayerCost) error) answer {
	if req.Document != "" {
		return readDocument(frames, req)
	}
	return index(ctx, frames, req, report)
}

// index reads the layers of an image. A layer that the image has several times is read once.
func index(ctx context.Context, frames *frameReader, req request, report func(LayerCost) error) answer {
	l := req.Limits
	finder, err := extract.New(extract.Limits{Packages: l.Packages, Warnings: maxWarnings})
	if err != nil {
		return answer{Failed: err.Error()}
	}
	stack := layer.New(layer.Limits{Bytes: l.Bytes, Entries: l.Entries, Kept: 5 * l.Packages,
		InMemory: 8 << 20, Spool: l.FileBytes}, finder)
	defer stack.Close()
	if len(req.Reads) > 0 {
		stack.Read(req.Reads)
	}
	for i, digest := range req.Layers {
		first := slices.Index(req.Layers, digest)
		if first < i {
			if err := stack.Repeat(first); err != nil {
				return answer{NotUnderstood: short(explain(i, digest, err))}
			}
			continue
		}
		if err := frames.next(); err != nil {
			return answer{Failed: err.Error()}
		}
		add := stack.Add
		if slices.Contains(req.Layers[i+1:], digest) {
			add = stack.Record
		}
		bytes, begun := stack.Bytes(), processorTime()
		failed := add(ctx, frames)
		cost := LayerCost{Layer: i, Bytes: stack.Bytes() - bytes, Processor: processorTime() - begun}
		if err := report(cost); err != nil {
			return answer{Failed: err.Error()}
		}
		if failed != nil {
			return answer{NotUnderstood: short(explain(i, digest, failed))}
		}
	}
	if err := frames.skip(); err != nil { // reads the data after the last archive to its end, to find errors in it
		return answer{Failed: err.Error()}
	}
	if unread := stack.Unread(); len(unread) > 0 {
		return answer{Unread: unread}
	}
	found, err := finder.Finish(stack)
	if err != nil {
		return answer{NotUnderstood: short(fmt.Sprintf("the image is %v", err))}
	}
	return answer{Result: &Result{Distribution: found.Distribution, Packages: found.Packages,
		Warnings: found.Warnings, Version: Version}}
}

// explain returns the reason why a layer cannot be read.
func explain(i int, digest string, err error) string {
	if errors.Is(err, layer.ErrLimit) {
		return fmt.Sprintf("the image is %v", err)
	}
	return fmt.Sprintf("layer %d (%s) is %v", i+1, digest, err)
}
