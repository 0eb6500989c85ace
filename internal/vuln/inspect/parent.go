package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
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
	Layers   []string // digests of the layers
	Document string   `json:",omitempty"` // digest of the image, if the only layer is an SBOM of that image
}

// An answer is the output of the child.
type answer struct {
	Result        *Result `json:",omitempty"`
	NotUnderstood string  `json:",omitempty"`
	Failed        string  `json:",omitempty"` // error that was not caused by the image
}

// runChild starts a child, which reads the image or a document about the image, in a new folder. It returns the child's
// answer.
func runChild(ctx context.Context, layers []Layer, limits Limits, document string) (Result, error) {
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
		c := child{name: childName, starts: confinedStarts(), limits: limits, document: document, folder: folder}
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
	limits    Limits
	document  string // digest of the image, if the child reads a document about it
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
	if waitErr != nil || readErr != nil || len(output) > maxAnswer {
		return Result{}, c.died(ctx, waitErr)
	}
	r, err := c.parseAnswer(output, len(layers))
	r.Processor = c.processor()
	return r, err
}

// feed writes the image to the child. If reading the image fails, it returns the error. It ignores an error of writing
// to the child, because the child reports the reason why it stopped reading.
func (c *child) feed(ctx context.Context, layers []Layer) error {
	defer func() { _ = c.in.Close() }()
	req := request{Limits: c.limits, Document: c.document}
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
	for _, l := range layers {
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
		reason = fmt.Sprintf("reading it took more than %d seconds", clockFactor*c.limits.Seconds)
	case ctx.Err() != nil: // the caller has canceled the request
		return context.Cause(ctx)
	// Nine tenths of the limit are enough, because the kernel's clock is not exact.
	case c.processor() >= time.Duration(c.limits.Seconds)*time.Second*9/10:
		reason = fmt.Sprintf("reading it took more than %d seconds of processor time", c.limits.Seconds)
	case strings.Contains(complaint, "out of memory"), strings.Contains(complaint, "cannot allocate memory"):
		reason = fmt.Sprintf("reading it took more than %d MB of memory", c.limits.MemoryBytes>>20)
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
	case a.Result == nil, len(a.Result.Packages) > c.limits.Packages:
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
