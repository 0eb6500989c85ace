package inspect_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// TestPriority checks that all threads of a child have the lowest priority while it reads an image, and that this
// process keeps its own.
func TestPriority(t *testing.T) {
	p := newPool(t, 1)
	image := archive(file{name: lodash, content: node("lodash", "1.0.0")})
	for range 5 {
		_, err := readIn(t, p, "a", inspect.Limits{}, func() {
			for _, pid := range children() {
				for id, policy := range policies(pid) {
					if policy != unix.SCHED_IDLE {
						t.Errorf("thread %d of the child has policy %d", id, policy)
					}
				}
			}
		}, image)
		must(err)
	}
	for id, policy := range policies(os.Getpid()) {
		if policy != unix.SCHED_NORMAL {
			t.Errorf("thread %d of this process has policy %d", id, policy)
		}
	}
}

// TestStarved checks that a child that hardly gets processor time is replaced by one with a higher priority.
func TestStarved(t *testing.T) {
	p := newPool(t, 1)
	image := zipped(archive(file{name: "content", content: random(40 << 20)},
		file{name: lodash, content: node("lodash", "1.0.0")}))
	var one unix.CPUSet
	must(unix.SchedGetaffinity(0, &one))
	for i := range len(one) * 64 {
		if one.Count() > 1 {
			one.Clear(i)
		}
	}
	begun, done := make(chan struct{}), make(chan struct{})
	attempts := 0
	r, err := readIn(t, p, "a", inspect.Limits{}, func() {
		attempts++
		if attempts == 2 {
			close(done)
			for _, pid := range children() {
				for id, policy := range policies(pid) {
					if policy != unix.SCHED_NORMAL {
						t.Errorf("thread %d of the second child has policy %d", id, policy)
					}
				}
			}
			return
		}
		for _, pid := range children() { // keeps the child on the same processor as a busy thread
			for id := range policies(pid) {
				must(unix.SchedSetaffinity(id, &one))
			}
		}
		go occupy(&one, begun, done)
		<-begun
	}, image)
	if err != nil || len(r.Packages) != 1 || attempts != 2 {
		t.Errorf("after %d attempts: %v, %v", attempts, r.Packages, err)
	}
}

// occupy keeps a processor busy until done is closed. It closes begun when it begins.
func occupy(processor *unix.CPUSet, begun, done chan struct{}) {
	runtime.LockOSThread() // the thread ends with the goroutine, because its affinity must not be used for others
	must(unix.SchedSetaffinity(0, processor))
	close(begun)
	for isOpen := true; isOpen; {
		select {
		case <-done:
			isOpen = false
		default: // keeps the processor busy
		}
	}
}

// children returns the child processes of this process.
func children() (pids []int) {
	threads, err := filepath.Glob("/proc/self/task/*/children")
	must(err)
	for _, f := range threads {
		text, _ := os.ReadFile(f) // a thread may have ended
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			must(err)
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		panic("there is no child")
	}
	return pids
}

// policies returns the scheduling policies of the threads of a process.
func policies(pid int) map[int]uint32 {
	found := map[int]uint32{}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	must(err)
	for _, f := range threads {
		id, err := strconv.Atoi(filepath.Base(f))
		must(err)
		if a, err := unix.SchedGetAttr(id, 0); err == nil {
			found[id] = a.Policy
		}
	}
	return found
}
