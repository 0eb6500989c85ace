package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// RaceDetector is whether the memory of children is not limited.
const RaceDetector = raceDetector

const probeName = "probe"

// IsProbe reports whether this process was started by RunProbe.
func IsProbe() bool { return len(os.Args) == 1 && os.Args[0] == probeName }

// Probe does in a process that is confined as a child is what f does.
func Probe(f func()) {
	if err := confine(Limits{}.withDefaults(), os.TempDir()); err != nil {
		fmt.Println("confine:", err)
		os.Exit(1)
	}
	f()
	os.Exit(0)
}

// RunProbe starts a probe as a child is started, if need be not in the best ways, and
// returns what it writes.
func RunProbe(ctx context.Context, folder string, worse int) (string, error) {
	c := child{name: probeName, folder: folder, starts: confinedStarts()[worse:]}
	if err := c.start(ctx); err != nil {
		return "", err
	}
	said, err := io.ReadAll(c.out)
	if err == nil {
		err = c.cmd.Wait()
	}
	return string(said) + string(c.complaint.kept), err
}

// Understand reads the answer of a child.
func Understand(said []byte, layers int) (Result, error) {
	c := child{limits: Limits{}.withDefaults()}
	return c.understand(said, layers)
}

// Serve is what a child does, without being confined.
func Serve(in io.Reader) (answered bool) {
	frames := newFrameReader(in)
	if _, err := frames.request(); err != nil {
		return false
	}
	l := Limits{Bytes: 1 << 20, Entries: 1000, Packages: 100, FileBytes: 1 << 20}.withDefaults()
	index(context.Background(), frames, request{Limits: l, Layers: []string{"a", "b"}})
	return true
}

// Frames returns a request and layers as a child reads them.
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

// AnswerTo returns what a child writes about a document.
func AnswerTo(body []byte, image string) ([]byte, error) {
	return json.Marshal(answerTo(body, image, 100))
}
