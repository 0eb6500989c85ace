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
	maxAnswer    = 64 << 20
	maxComplaint = 4 << 10 // of what the child writes to its standard error
	exitDelay    = 5 * time.Second
)

// A request is the first frame.
type request struct {
	Limits   Limits
	Layers   []string // their digests
	Document string   `json:",omitempty"` // the image that the only layer is a document about
}

// An answer is what the child writes.
type answer struct {
	Result        *Result `json:",omitempty"`
	NotUnderstood string  `json:",omitempty"`
	Failed        string  `json:",omitempty"` // for what is not the image's fault
}

// runChild has the image, or a document about it, read by a child, in a folder of its own.
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
		// The child dies with the thread that has started it. Locked to a goroutine that
		// unlocks it again, a thread lasts as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		c := child{name: childName, starts: confinedStarts(), limits: limits, document: document, folder: folder}
		result, err := c.run(ctx, layers)
		done <- outcome{result, err}
	}()
	o := <-done
	return o.result, o.err
}

// removeStale removes the folders of processes that were killed.
func removeStale(age time.Duration) {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*")) // the pattern is valid
	for _, f := range folders {
		if info, err := os.Lstat(f); err == nil && info.IsDir() && time.Since(info.ModTime()) > age+time.Hour {
			_ = os.RemoveAll(f)
		}
	}
}

// A child is the other process, as the parent sees it.
type child struct {
	name      string
	starts    []*syscall.SysProcAttr // ways to start it, the best first
	limits    Limits
	document  string // the image that a document is about
	folder    string
	complaint head
	cmd       *exec.Cmd
	in        io.WriteCloser
	out       io.ReadCloser
}

// start starts this program again: with as much taken away as the system lets us.
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
		_ = in.Close() // the child has it, or nobody
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
			stop() // the child waits for what does not come
		}
		fed <- err
	}()
	said, readErr := io.ReadAll(io.LimitReader(c.out, maxAnswer+1))
	if len(said) > maxAnswer {
		stop()
	}
	waitErr := c.cmd.Wait()
	_ = c.in.Close() // ends feed, if it still writes
	if err := <-fed; err != nil {
		return Result{}, err
	}
	if waitErr != nil || readErr != nil || len(said) > maxAnswer {
		return Result{}, c.died(ctx, waitErr)
	}
	r, err := c.understand(said, len(layers))
	r.Processor = c.processor()
	return r, err
}

// feed writes the image to the child. It returns what failed in reading the image; a
// child that reads no further has its reasons and tells them itself.
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
	case ctx.Err() != nil: // nobody waits any more
		return context.Cause(ctx)
	case c.processor() >= time.Duration(c.limits.Seconds)*time.Second*9/10: // the kernel's clock is not exact
		reason = fmt.Sprintf("reading it took more than %d seconds of processor time", c.limits.Seconds)
	case strings.Contains(complaint, "out of memory"), strings.Contains(complaint, "cannot allocate memory"):
		reason = fmt.Sprintf("reading it took more than %d MB of memory", c.limits.MemoryBytes>>20)
	}
	return &NotUnderstood{Reason: reason, Detail: fmt.Sprintf("%v: %s", err, complaint)}
}

// processor returns how much processor time the ended child has used.
func (c *child) processor() time.Duration {
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
}

// understand reads the answer. The child has read hostile bytes, so nothing it says is
// taken for granted.
func (c *child) understand(said []byte, layers int) (Result, error) {
	var a answer
	if err := json.Unmarshal(said, &a); err != nil {
		return Result{}, &NotUnderstood{Reason: "reading it crashed", Detail: "the answer: " + err.Error()}
	}
	switch {
	case a.NotUnderstood != "":
		return Result{}, &NotUnderstood{Reason: short(a.NotUnderstood)}
	case a.Failed != "":
		return Result{}, fmt.Errorf("read an image: %s", short(a.Failed))
	case a.Result == nil, len(a.Result.Packages) > c.limits.Packages:
		return Result{}, &NotUnderstood{Reason: "reading it crashed", Detail: "the answer is not one"}
	}
	r := *a.Result
	r.Version = Version
	r.Warnings = r.Warnings[:min(len(r.Warnings), maxWarnings)]
	for i, w := range r.Warnings {
		r.Warnings[i] = short(w)
	}
	for _, p := range r.Packages {
		if p.Layer < 0 || p.Layer >= layers || !p.Valid() {
			return Result{}, &NotUnderstood{Reason: "reading it crashed", Detail: "a package of the answer is not one"}
		}
	}
	if d := r.Document; d != nil && (d.Format != short(d.Format) || d.Tool != short(d.Tool)) {
		return Result{}, &NotUnderstood{Reason: "reading it crashed", Detail: "the document of the answer is not one"}
	}
	if !r.Distribution.Valid() {
		return Result{}, &NotUnderstood{Reason: "reading it crashed", Detail: "the distribution of the answer is not one"}
	}
	return r, nil
}

const (
	maxWarnings = 100
	maxSentence = 500
)

// short returns a sentence that can be shown.
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

// A head keeps the first bytes that are written to it, where a crash has its reason.
type head struct{ kept []byte }

func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxComplaint-len(h.kept))]...)
	return len(p), nil
}
