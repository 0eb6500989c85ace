package inspect

import (
	"bufio"
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
	"sync/atomic"
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
	costPrefix   = `{"Layer":` // beginning of a line of output that is not the answer
)

// A child is starved if it needs a processor in so many samples and hardly gets one.
const (
	sampleEvery    = 250 * time.Millisecond
	starvedSamples = 20
)

// A child reads several images if these limits allow it.
const (
	maxServed   = 100 // maximum number of images
	maxLife     = 30 * time.Minute
	reuseMemory = 96 << 20 // peak memory in bytes
	reuseShare  = 20       // the processor time is at most the limit for one image, divided by this number
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

// A child is the parent's view of the child process. It reads one image at a time.
type child struct {
	name      string
	starts    []*syscall.SysProcAttr // ways to start the child, the best first
	folder    string
	complaint head
	cmd       *exec.Cmd
	in        *os.File
	out       *os.File
	stop      context.CancelFunc // kills the child
	ended     chan struct{}      // closed when the child has ended
	exit      error              // result of the child after ended is closed

	tenant string    // tenant of all images that the child reads
	limits Limits    // limits that the child has set for itself when it read its first image
	born   time.Time // time of the start
	urgent bool      // whether the child has a higher priority, because other children were starved
	served int       // number of images that the child has read, including the current one

	request request
	begun   time.Duration // processor time that the child had used before the current image
	starved atomic.Bool   // whether the child was killed because it was starved
}

// newChild starts a child in a new folder.
func newChild(tenant string, limits Limits, urgent bool) (*child, error) {
	removeStale(time.Duration(limits.Seconds) * time.Second * (clockFactor + 1))
	folder, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, err
	}
	c := &child{name: childName, starts: confinedStarts(), folder: folder, tenant: tenant, limits: limits,
		urgent: urgent}
	if err := c.start(); err != nil {
		_ = os.RemoveAll(folder)
		return nil, err
	}
	return c, nil
}

// start starts this program again, with the best confinement that the system allows, and gives it the lowest priority
// before it can read anything.
func (c *child) start() error {
	c.ended, c.born = make(chan struct{}), time.Now()
	alive, stop := context.WithCancel(context.Background())
	c.stop = stop
	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread that started the child ends. So this thread waits for the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.exec(alive)
		started <- err
		if err == nil {
			c.exit = c.cmd.Wait()
			close(c.ended)
		}
	}()
	if err := <-started; err != nil {
		stop()
		return fmt.Errorf("start the child that reads images: %w", err)
	}
	yield(c.cmd.Process.Pid, !c.urgent)
	return nil
}

// exec starts the process.
func (c *child) exec(ctx context.Context) (err error) {
	for _, attributes := range c.starts {
		if err = c.execWith(ctx, attributes); err == nil {
			return nil
		}
	}
	return err
}

func (c *child) execWith(ctx context.Context, attributes *syscall.SysProcAttr) error {
	in, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only the child needs this end of the pipe
	read, out, err := os.Pipe()
	if err != nil {
		return errors.Join(err, write.Close())
	}
	defer func() { _ = out.Close() }()
	widen(write)
	c.cmd = exec.CommandContext(ctx, self())
	c.cmd.Args = []string{c.name}
	c.cmd.Env = []string{"TMPDIR=" + c.folder}
	c.cmd.Dir = c.folder
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = in, out, &c.complaint
	c.cmd.WaitDelay = exitDelay
	c.cmd.SysProcAttr = attributes
	if err := c.cmd.Start(); err != nil {
		return errors.Join(err, write.Close(), read.Close())
	}
	c.in, c.out = write, read
	return nil
}

// close kills the child, waits until it has ended, and removes its folder.
func (c *child) close() {
	c.stop()
	<-c.ended
	_, _ = c.in.Close(), c.out.Close()
	_ = os.RemoveAll(c.folder)
}

// run feeds an image to the child and returns the answer. If the child must not read another image, it has ended when
// run returns. The result has the cost of the image even if there is an error.
func (c *child) run(ctx context.Context, layers []Layer, req request) (Result, error) {
	c.request = req
	if c.served > 0 { // the first image pays for the start, which counts towards the limit of the process
		c.begun = c.total()
	}
	c.served++
	feeding, cancel := context.WithCancel(ctx)
	defer cancel()
	detach := context.AfterFunc(ctx, c.stop)
	fed := make(chan error, 1)
	go func() {
		err := c.feed(feeding, layers)
		fed <- err
		if err != nil {
			c.stop() // the child would otherwise wait for more input
		}
	}()
	if !c.urgent {
		go c.watch(feeding)
	}
	output, answered := c.read()
	if !answered {
		c.close()
	}
	fedErr := c.awaitFeed(fed, cancel)
	if !detach() || fedErr != nil {
		c.close()
	}
	r := Result{Processor: c.processor()}
	output, r.Layers = c.splitCosts(output, layers)
	if fedErr != nil {
		return r, fedErr
	}
	if !answered && c.starved.Load() && ctx.Err() == nil {
		return r, errStarved
	}
	if !answered {
		return r, c.withCosts(c.died(ctx), r.Layers)
	}
	answer, err := c.parseAnswer(output, len(layers))
	answer.Processor, answer.Layers = r.Processor, r.Layers
	if unread := (*unreadError)(nil); err != nil && !errors.As(err, &unread) {
		c.close()
	}
	return answer, c.withCosts(err, r.Layers)
}

// watch kills the child if it is starved: if it needs a processor and hardly gets one, because the machine is busy. It
// samples the child until ctx ends.
func (c *child) watch(ctx context.Context) {
	for used, hungry := c.total(), 0; hungry < starvedSamples; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(sampleEvery):
		}
		before := used
		if used = c.total(); used-before < sampleEvery/20 && runnable(c.cmd.Process.Pid) {
			hungry++
		}
	}
	c.starved.Store(true)
	c.stop()
}

// awaitFeed waits until feed has returned, and returns its error. If the child has ended, or has answered without
// reading all of its input, awaitFeed stops feed and returns nil.
func (c *child) awaitFeed(fed <-chan error, cancel func()) error {
	select {
	case err := <-fed:
		return err
	case <-c.ended:
	case <-time.After(exitDelay):
		c.close()
	}
	select {
	case err := <-fed: // feed returned before the child ended, and may be the cause
		return err
	default:
		cancel()
		<-fed
		return nil
	}
}

// read reads the output of the child about one image: lines with the costs of layers, and a line with the answer. It
// reports whether the answer is complete and nothing follows it.
func (c *child) read() (output []byte, answered bool) {
	from := bufio.NewReader(io.LimitReader(c.out, maxAnswer))
	for {
		line, err := from.ReadBytes('\n')
		output = append(output, line...)
		if err != nil {
			return output, false
		}
		if !bytes.HasPrefix(line, []byte(costPrefix)) {
			return output, from.Buffered() == 0
		}
	}
}

// reusable reports whether the child may read another image of its tenant. r is the result for the last one.
func (c *child) reusable(r Result) bool {
	return c.alive() && c.served < maxServed && time.Since(c.born) < maxLife && r.MemoryBytes < reuseMemory &&
		c.total() < time.Duration(c.limits.Seconds)*time.Second/reuseShare
}

// alive reports whether the child has not ended.
func (c *child) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// clear empties the folder of the child for the next image.
func (c *child) clear() error {
	entries, err := os.ReadDir(c.folder)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(c.folder, e.Name())))
	}
	return err
}

// splitCosts splits the output of the child into the last answer and the costs of the layers before it. If the child
// was killed, the rest of its processor time counts for the layer after the last one that it reported. splitCosts
// trusts neither the number of the costs nor their sum.
func (c *child) splitCosts(output []byte, layers []Layer) (rest []byte, costs []LayerCost) {
	left, next := c.processor(), 0
	for {
		line, after, ended := bytes.Cut(output, []byte("\n"))
		var a answer
		if !ended || !bytes.HasPrefix(line, []byte(costPrefix)) || json.Unmarshal(line, &a) != nil ||
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
func (c *child) died(ctx context.Context) error {
	reason, crashed := "reading it crashed", true
	complaint := string(c.complaint.kept)
	limit := time.Duration(c.request.Limits.Seconds) * time.Second
	switch {
	case errors.Is(context.Cause(ctx), errSlow) && c.processor() < limit/2:
		return errBusy
	case errors.Is(context.Cause(ctx), errSlow):
		reason = fmt.Sprintf("reading it took more than %d seconds", clockFactor*c.request.Limits.Seconds)
	case ctx.Err() != nil: // the caller has canceled the request
		return context.Cause(ctx)
	// Nine tenths of the limit are enough, because the kernel's clock is not exact.
	case c.processor() >= limit*9/10:
		crashed = false
		reason = fmt.Sprintf("reading it took more than %d seconds of processor time", c.request.Limits.Seconds)
	case strings.Contains(complaint, "out of memory"), strings.Contains(complaint, "cannot allocate memory"):
		reason = fmt.Sprintf("reading it took more than %d MB of memory", c.request.Limits.MemoryBytes>>20)
	}
	return &NotUnderstood{Reason: reason, Detail: fmt.Sprintf("%v: %s", c.exit, complaint), crashed: crashed}
}

// processor returns the processor time that the child has used for the current image.
func (c *child) processor() time.Duration { return max(c.total()-c.begun, 0) }

// total returns the processor time that the child has used since its start.
func (c *child) total() time.Duration {
	if c.alive() {
		return processorOf(c.cmd.Process.Pid)
	}
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
}

// parseAnswer parses and validates the answer of the child. It does not trust the answer, because the child may be
// controlled by a hostile image.
func (c *child) parseAnswer(output []byte, layers int) (Result, error) {
	var a answer
	if err := json.Unmarshal(output, &a); err != nil {
		return Result{}, invalidAnswer(err.Error())
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

// invalidAnswer returns the error for an answer that contains a problem.
func invalidAnswer(problem string) error {
	return &NotUnderstood{Reason: "reading it crashed", Detail: "the answer contains " + problem, crashed: true}
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
