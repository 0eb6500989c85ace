// Command holdfastd is the server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-dev/holdfast/fault"
	"github.com/holdfast-dev/holdfast/server"
	"github.com/holdfast-dev/holdfast/stamp"
)

func main() {
	syscall.Umask(0o077) // only the user of the process can access the files it creates
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	os.Exit(run(ctx, os.Args[1:]))
}

// run returns the exit code: 2 for settings that cannot be used, 1 for a
// service that cannot run.
func run(ctx context.Context, args []string) int {
	switch {
	case len(args) == 1 && slices.Contains([]string{"version", "--version", "-version"}, args[0]):
		fmt.Println("holdfastd", stamp.Read())
		return 0
	case len(args) == 1 && args[0] == "man": // for packagers
		server.WriteManual(os.Stdout)
		return 0
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return runCommand(ctx, args)
	}
	cfg, err := server.LoadConfig(args, os.Environ(), os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfastd:", err)
		return 2
	}
	server.AllocateBallast()
	srv, err := server.New(ctx, cfg)
	if err == nil {
		err = srv.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfastd:", fault.Explain(err))
		return 1
	}
	return 0
}

// runCommand runs the command that precedes the flags, such as keys rotate or
// gc, in a running server or in this process. Of the flags, --dry-run belongs
// to the command.
func runCommand(ctx context.Context, args []string) int {
	words := args[:countWords(args)]
	flags := args[len(words):]
	if i := slices.Index(flags, "--dry-run"); i >= 0 {
		words, flags = append(slices.Clone(words), "dry-run"), slices.Delete(slices.Clone(flags), i, i+1)
	}
	cfg, err := server.LoadConfig(flags, os.Environ(), os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = server.RunCommand(ctx, cfg, words, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfastd:", fault.Explain(err))
		return 2
	}
	return 0
}

// countWords returns how many arguments precede the flags. The id of a key, a
// thumbprint, is not a flag even if it begins with a dash.
func countWords(args []string) int {
	const thumbprint = 43
	for i, a := range args {
		id := i == 2 && args[0] == "keys" && args[1] == "drop" && len(a) == thumbprint
		if strings.HasPrefix(a, "-") && !id {
			return i
		}
	}
	return len(args)
}
