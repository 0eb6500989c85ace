//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

// terminal is for Linux.
func terminal(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Fatalf("there are no terminals here")
}
