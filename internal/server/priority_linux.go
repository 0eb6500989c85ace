package server

import (
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// YieldPriority makes this process run only while no other process, such as the
// server, needs the processor. A low priority is not enough, because the scheduler
// lets a thread finish its time slice of some milliseconds, for which requests would
// wait.
//
// The policy belongs to a thread, and new threads inherit it.
func YieldPriority() {
	threads, _ := filepath.Glob("/proc/self/task/*") // never fails, because the pattern is valid
	for _, t := range threads {
		if id, err := strconv.Atoi(filepath.Base(t)); err == nil {
			idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
			_ = unix.SchedSetAttr(id, &idle, 0) // a failure only makes the server slower
		}
	}
}
