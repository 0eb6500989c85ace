// Command holdfast is the client.
//
// Results go to standard output and everything else to standard error. What a
// resource looks like on the command line is a table, one file per noun
// (group.go and its neighbours); noun.go makes the commands from it, by
// reflection over the API's definition. Whom it acts as is decided in
// credential.go; session.go and vault.go remember that between runs.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal kills
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == helperName { // Docker's name for this program
		args = append([]string{"credential-helper"}, args...)
	}
	os.Exit(run(ctx, args))
}

// run does what args ask for and returns the exit code.
func run(ctx context.Context, args []string) int {
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return a.end(cmd, err)
}
