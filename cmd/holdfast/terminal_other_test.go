//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

// terminal fails, because the script command works only on Linux.
func terminal(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Fatalf("terminals are only supported on Linux")
}
