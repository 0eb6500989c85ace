package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/layer"
)

const (
	folderPrefix = "holdfast-inspect-"
	maxAnswer    = 64 << 20 // maximum size of an answer in bytes
	maxComplaint = 4 << 10  // maximum number of bytes that are kept from the child's standard error
	exitDelay    = 5 * time.Second
)

// A request is the content of the first frame.
type request struct {
	Limits   Limits
	Layers   []string // digests of the layers; data follows for the first layer with each digest
	Document string   `json:",omitempty"` // digest of the image, if the only layer is an SBOM of that image

	Reads []layer.HardLink `json:",omitempty"` // hard links whose targets an earlier child could not read
}

// An answer is the output of the child.
type answer struct {
	Result        *Result `json:",omitempty"`
	NotUnderstood string  `json:",omitempty"`
	Failed        string  `json:",omitempty"` // error that was not caused by the image

	Unread []layer.HardLink `json:",omitempty"` // hard links that can only be read if the image is read again

	// Layer is the cost of a layer. The child writes an answer with only this field after each layer, so that the parent
	// also knows it if the child is killed.
	Layer *LayerCost `json:",omitempty"`
}

// An unreadError is the answer of a child that has to read the image again.
type unreadError struct{ links []layer.HardLink }

func (e *unreadError) Error() string { return fmt.Sprintf("%d hard links were not read", len(e.links)) }

// runChild starts a child, which reads the image or a document about the image, in a new folder. It returns the child's
// answer. The request has the limits, the document and the reads of the argument.
func runChild(ctx context.Context, layers []Layer, req request) (Result, error) {
	limits := req.Limits
	removeStale(time.Duration(limits.Seconds) * time.Second * (clockFactor + 1))
	folder, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(folder) }()

	type outcome struct {
		result Result
		err    error
	}
	done := make(chan outcome)
	go func() {
		// The kernel kills the child when the thread that started the child ends. If a thread is locked to a goroutine,
		// and unlocked again, it lasts as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		c := child{name: childName, starts: confinedStarts(), request: req, folder: folder}
		result, err := c.run(ctx, layers)
		done <- outcome{result, err}
	}()
	o := <-done
	return o.result, o.err
}

// removeStale removes folders that remain from servers that were killed.
func removeStale(age time.Duration) {
	// Glob cannot fail, because the pattern is valid.
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	for _, f := range folders {
		if info, err := os.Lstat(f); err == nil && info.IsDir() && time.Since(info.ModTime()) > age+time.Hour {
			_ = os.RemoveAll(f)
		}
	}
}

// A child is the parent's view of the child process.
type child struct {
	name      string
	starts    []*syscall.SysProcAttr // ways to start the child, the best first
	request   request
	folder    string
	complaint head
	cmd       *exec.Cmd
	in        io.WriteCloser
	out       io.ReadCloser
}

// start starts this program again, with the best confinement that the system allows.
func (c *child) start(ctx context.Context) (err error) {
	for _, attributes := range c.starts {
		c.cmd = exec.CommandContext(ctx, self())
		c.cmd.Args = []string{c.name}
		c.cmd.Env = []string{"TMPDIR=" + c.folder}
		c.cmd.Dir = c.folder
		c.cmd.Stderr = &c.complaint
		c.cmd.WaitDelay = exitDelay
		c.cmd.SysProcAttr = attributes
		if c.out, err = c.cmd.StdoutPipe(); err != nil {
			return err
		}
		in, write, pipeErr := os.Pipe()
		if pipeErr != nil {
			return pipeErr
		}
		widen(write)
		c.cmd.Stdin = in
		err = c.cmd.Start()
		_ = in.Close() // only the child needs this end of the pipe
		if err == nil {
			c.in = write
			return nil
		}
		_ = write.Close()
	}
	return fmt.Errorf("start the child that reads images: %w", err)
}

// run starts the child, feeds it, and returns its answer.
func (c *child) run(ctx context.Context, layers []Layer) (Result, error) {
	alive, stop := context.WithCancel(ctx)
	defer stop()
	if err := c.start(alive); err != nil {
		return Result{}, err
	}
	fed := make(chan error, 1)
	go func() {
		err := c.feed(alive, layers)
		if err != nil {
			stop() // kills the child, which would otherwise wait for more input
		}
		fed <- err
	}()
	output, readErr := io.ReadAll(io.LimitReader(c.out, maxAnswer+1))
	if len(output) > maxAnswer {
		stop()
	}
	waitErr := c.cmd.Wait()
	_ = c.in.Close() // makes feed return if it is still writing
	if err := <-fed; err != nil {
		return Result{}, err
	}
	output, costs := c.splitCosts(output, layers)
	if waitErr != nil || readErr != nil || len(output) > maxAnswer {
		return Result{}, c.withCosts(c.died(ctx, waitErr), costs)
	}
	r, err := c.parseAnswer(output, len(layers))
	r.Processor, r.Layers = c.processor(), costs
	return r, c.withCosts(err, costs)
}

// splitCosts splits the output of the child into the last answer and the costs of the layers before it. If the child
// was killed, the rest of its processor time counts for the layer after the last one that it reported. splitCosts
// trusts neither the number of the costs nor their sum.
func (c *child) splitCosts(output []byte, layers []Layer) (rest []byte, costs []LayerCost) {
	left, next := c.processor(), 0
	for {
		line, after, ended := bytes.Cut(output, []byte("\n"))
		var a answer
		if !ended || !bytes.HasPrefix(line, []byte(`{"Layer":`)) || json.Unmarshal(line, &a) != nil ||
			a.Layer == nil || a.Layer.Layer < next || a.Layer.Layer >= len(layers) {
			break
		}
		next = a.Layer.Layer + 1
		a.Layer.Bytes = max(a.Layer.Bytes, 0)
		a.Layer.Processor = min(max(a.Layer.Processor, 0), left)
		left -= a.Layer.Processor
		costs, output = append(costs, *a.Layer), after
	}
	for i := next; i < len(layers) && len(output) == 0; i++ {
		if firstOf(layers, i) {
			return output, append(costs, LayerCost{Layer: i, Processor: left})
		}
	}
	return output, costs
}

// firstOf reports whether no layer before the layer at position i has the same digest.
func firstOf(layers []Layer, i int) bool {
	return slices.IndexFunc(layers, func(l Layer) bool { return l.Digest == layers[i].Digest }) == i
}

// withCosts adds the costs of an image to err if it is a *NotUnderstood.
func (c *child) withCosts(err error, costs []LayerCost) error {
	var reason *NotUnderstood
	if errors.As(err, &reason) {
		reason.Layers, reason.Processor = costs, c.processor()
	}
	return err
}

// feed writes the image to the child. If reading the image fails, it returns the error. It ignores an error of writing
// to the child, because the child reports the reason why it stopped reading.
func (c *child) feed(ctx context.Context, layers []Layer) error {
	defer func() { _ = c.in.Close() }()
	req := c.request
	for _, l := range layers {
		req.Layers = append(req.Layers, l.Digest)
	}
	content, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if writeFrame(c.in, frameRequest, content) != nil {
		return nil
	}
	for i, l := range layers {
		if !firstOf(layers, i) {
			continue
		}
		readErr, writeErr := c.feedLayer(ctx, l)
		if readErr != nil {
			return fmt.Errorf("read layer %s: %w", l.Digest, readErr)
		}
		if writeErr != nil {
			return nil
		}
	}
	return nil
}

func (c *child) feedLayer(ctx context.Context, l Layer) (readErr, writeErr error) {
	blob, err := l.Open(ctx)
	if err != nil {
		return err, nil
	}
	defer func() { _ = blob.Close() }()
	return writeLayer(c.in, blob)
}

// died returns the error for a child that ended without an answer.
func (c *child) died(ctx context.Context, err error) error {
	reason := "reading it crashed"
	complaint := string(c.complaint.kept)
	switch {
	case errors.Is(context.Cause(ctx), errSlow):
		reason = fmt.Sprintf("reading it took more than %d seconds", clockFactor*c.request.Limits.Seconds)
	case ctx.Err() != nil: // the caller has canceled the request
		return context.Cause(ctx)
	// Nine tenths of the limit are enough, because the kernel's clock is not exact.
	case c.processor() >= time.Duration(c.request.Limits.Seconds)*time.Second*9/10:
		reason = fmt.Sprintf("reading it took more than %d seconds of processor time", c.request.Limits.Seconds)
	case strings.Contains(complaint, "out of memory"), strings.Contains(complaint, "cannot allocate memory"):
		reason = fmt.Sprintf("reading it took more than %d MB of memory", c.request.Limits.MemoryBytes>>20)
	}
	return &NotUnderstood{Reason: reason, Detail: fmt.Sprintf("%v: %s", err, complaint)}
}

// processor returns the processor time of the ended child.
func (c *child) processor() time.Duration {
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
}

// parseAnswer parses and validates the answer of the child. It does not trust the answer, because the child may be
// controlled by a hostile image.
func (c *child) parseAnswer(output []byte, layers int) (Result, error) {
	var a answer
	if err := json.Unmarshal(output, &a); err != nil {
		return Result{}, &NotUnderstood{Reason: "reading it crashed", Detail: "the answer: " + err.Error()}
	}
	switch {
	case a.NotUnderstood != "":
		return Result{}, &NotUnderstood{Reason: short(a.NotUnderstood)}
	case a.Failed != "":
		return Result{}, fmt.Errorf("read an image: %s", short(a.Failed))
	case len(a.Unread) > 0 && len(c.request.Reads) == 0:
		return Result{}, &unreadError{a.Unread}
	case a.Result == nil, len(a.Result.Packages) > c.request.Limits.Packages:
		return Result{}, invalidAnswer("no result, or too many packages")
	}
	r := *a.Result
	r.Version = Version
	r.Warnings = r.Warnings[:min(len(r.Warnings), maxWarnings)]
	for i, w := range r.Warnings {
		r.Warnings[i] = short(w)
	}
	for _, p := range r.Packages {
		if p.Layer < 0 || p.Layer >= layers || !p.Valid() {
			return Result{}, invalidAnswer("an invalid package")
		}
	}
	if d := r.Document; d != nil && (d.Format != short(d.Format) || d.Tool != short(d.Tool)) {
		return Result{}, invalidAnswer("an invalid document")
	}
	if !r.Distribution.Valid() {
		return Result{}, invalidAnswer("an invalid distribution")
	}
	return r, nil
}

// invalidAnswer returns the error for an answer that has a problem.
func invalidAnswer(problem string) error {
	return &NotUnderstood{Reason: "reading it crashed", Detail: "the answer contains " + problem}
}

const (
	maxWarnings = 100
	maxSentence = 500 // maximum length of a sentence in bytes
)

// short makes an untrusted text printable, and shortens it to maxSentence bytes.
func short(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
	for len(s) > maxSentence {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

// A head keeps the first maxComplaint bytes that are written to it, because the output of a crash starts with the
// reason.
type head struct{ kept []byte }

func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxComplaint-len(h.kept))]...)
	return len(p), nil
}
