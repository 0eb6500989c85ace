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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:]))
}

// run does what args ask for and returns the exit code.
func run(ctx context.Context, args []string) int {
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return a.end(cmd, err)
}
