package server

import (
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// YieldPriority has this process run only while no other wants the processor, such as the
// server. A low priority is not enough: the scheduler lets a thread finish its slice of some
// milliseconds, and every request would wait for it.
//
// Every thread has a policy of its own, which new ones inherit.
func YieldPriority() {
	threads, _ := filepath.Glob("/proc/self/task/*") // the pattern is valid
	for _, t := range threads {
		if id, err := strconv.Atoi(filepath.Base(t)); err == nil {
			idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
			_ = unix.SchedSetAttr(id, &idle, 0) // it helps, and is not needed
		}
	}
}
