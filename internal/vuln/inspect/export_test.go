package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// RaceDetector reports whether the race detector is enabled. If it is, the memory of children is not limited.
const RaceDetector = raceDetector

const probeName = "probe"

// IsProbe reports whether this process was started by RunProbe.
func IsProbe() bool { return len(os.Args) == 1 && os.Args[0] == probeName }

// Probe confines this process as a child is confined, calls f, and ends the process.
func Probe(f func()) {
	if err := confine(Limits{}.withDefaults(), os.TempDir()); err != nil {
		fmt.Println("confine:", err)
		os.Exit(1)
	}
	f()
	os.Exit(0)
}

// RunProbe starts a probe in the way in which a child is started, and returns its output. It skips the first skip
// results of confinedStarts.
func RunProbe(ctx context.Context, folder string, skip int) (string, error) {
	c := child{name: probeName, folder: folder, starts: confinedStarts()[skip:]}
	if err := c.start(); err != nil {
		return "", err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.stop)()
	output, err := io.ReadAll(c.out)
	if <-c.ended; err == nil {
		err = c.exit
	}
	return string(output) + string(c.complaint.kept), err
}

// ParseAnswer parses the answer of a child.
func ParseAnswer(output []byte, layers int) (Result, error) {
	c := child{request: request{Limits: Limits{}.withDefaults()}}
	return c.parseAnswer(output, layers)
}

// Serve reads frames as a child does, but without being confined.
func Serve(in io.Reader) (answered bool) {
	frames := newFrameReader(in)
	if _, err := frames.request(); err != nil {
		return false
	}
	l := Limits{Bytes: 1 << 20, Entries: 1000, Packages: 100, FileBytes: 1 << 20}.withDefaults()
	index(context.Background(), frames, request{Limits: l, Layers: []string{"a", "b", "a"}},
		func(LayerCost) error { return nil })
	return true
}

// Frames writes the frames of a request and layers to w.
func Frames(w io.Writer, layers ...io.Reader) error {
	if err := writeFrame(w, frameRequest, nil); err != nil {
		return err
	}
	for _, l := range layers {
		if _, err := writeLayer(w, l); err != nil {
			return err
		}
	}
	return nil
}

// AnswerTo returns the answer of a child about a document.
func AnswerTo(body []byte, image string) ([]byte, error) {
	return json.Marshal(answerTo(body, image, 100))
}

// Idle returns the process numbers of the children without work, the least recently used first.
func (p *Pool) Idle() (pids []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		pids = append(pids, c.cmd.Process.Pid)
	}
	return pids
}

// Folders returns the folders of the children without work.
func (p *Pool) Folders() (folders []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		folders = append(folders, c.folder)
	}
	return folders
}

// MaxServed is the number of images after which a child is not reused.
const MaxServed = maxServed

// ErrBusy is the error of an image that could not be read in time because the machine is busy.
var ErrBusy = errBusy
