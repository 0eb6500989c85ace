//go:build !linux

package server

// YieldPriority does nothing where threads cannot be listed.
func YieldPriority() {}
