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

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/server/maintenance"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

func main() {
	if inspect.IsChild() { // this process was started to read an image, without access to the server's resources
		inspect.Child()
	}
	syscall.Umask(0o077) // only the user of the process can access the files it creates
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // after the first signal, a second signal kills the process
	os.Exit(run(ctx, os.Args[1:]))
}

// run starts the server, or runs the command before the flags, such as keys rotate or
// gc, in a running server or in this process. It returns the exit code: 1 if the server
// cannot run, and 2 for invalid settings or a failed command.
func run(ctx context.Context, args []string) int {
	switch {
	case len(args) == 1 && slices.Contains([]string{"version", "--version", "-version"}, args[0]):
		fmt.Println("holdfastd", buildinfo.Read())
		return 0
	case len(args) == 1 && args[0] == "man": // writes the manual page, for packagers
		config.WriteManual(os.Stdout)
		return 0
	}
	words, flags := args[:countWords(args)], args
	if len(words) > 0 {
		words, flags = server.SplitCommand(words, args[len(words):])
	}
	cfg, err := config.Load(flags, os.Environ(), os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	code := 2
	if err == nil && len(words) > 0 {
		if words[0] == "backup" || words[0] == "scrub" {
			server.YieldPriority() // so that a running server takes precedence
		}
		err = server.RunCommand(ctx, cfg, words, os.Stdout)
	} else if err == nil {
		code, err = 1, serve(ctx, cfg)
	}
	if errors.Is(err, maintenance.ErrWarnings) { // the command has already written the warnings
		return 1
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfastd:", fault.Explain(err))
		return code
	}
	return 0
}

func serve(ctx context.Context, cfg server.Config) error {
	server.AllocateBallast()
	srv, err := server.New(ctx, cfg)
	if err != nil {
		return err
	}
	return srv.Run(ctx)
}

// countWords returns the number of arguments before the flags. The ID of a key, which
// is a thumbprint, is not a flag even if it begins with a dash.
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
