//go:build !linux

package inspect

import (
	"os"
	"syscall"
)

// self returns the path of this program.
func self() string {
	name, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return name
}

// confinedStarts returns ways to start a child.
func confinedStarts() []*syscall.SysProcAttr { return []*syscall.SysProcAttr{{}} }

func widen(*os.File) {}

func yield(int, bool) {}

func runnable(int) bool { return false }

func processorOf(int) time.Duration { return 0 }

func processorTime() time.Duration { return 0 }

func openMemory() func() int64 { return func() int64 { return 0 } }

// Landlock reports whether the kernel has Landlock, which exists only on Linux.
func Landlock() bool { return false }

// confine does nothing, because the restrictions exist only on Linux. The child is still a separate process, without
// the environment and the memory of the server, and is killed if it takes too long. Do not serve untrusted users on a
// system other than Linux.
func confine(Limits, string) error { return nil }
