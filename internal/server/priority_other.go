//go:build !linux

package server

// YieldPriority does nothing on systems where a process cannot list its threads.
func YieldPriority() {}
