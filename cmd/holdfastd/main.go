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

	"github.com/holdfast-dev/holdfast/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(run(ctx, os.Args[1:]))
}

// run returns the exit code: 2 for settings that cannot be used, 1 for a
// service that cannot run.
func run(ctx context.Context, args []string) int {
	if slices.Equal(args, []string{"version"}) {
		fmt.Println("holdfastd", server.Version())
		return 0
	}
	if len(args) >= 2 && !strings.HasPrefix(args[0], "-") {
		return order(ctx, args)
	}
	cfg, err := server.LoadConfig(args, os.Environ(), os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfastd:", err)
		return 2
	}
	srv, err := server.New(ctx, cfg)
	if err == nil {
		err = srv.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfastd:", err)
		return 1
	}
	return 0
}

// order has a running server, or this process, do what the first two arguments
// say: keys rotate. Its own arguments come before the flags.
func order(ctx context.Context, args []string) int {
	own := args[2:]
	if i := slices.IndexFunc(own, func(a string) bool { return strings.HasPrefix(a, "-") }); i >= 0 {
		own = own[:i]
	}
	cfg, err := server.LoadConfig(args[2+len(own):], os.Environ(), os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	known := true
	if err == nil {
		known, err = server.Order(ctx, cfg, args[0], args[1], own, os.Stdout)
	}
	if !known {
		err = fmt.Errorf("there is no command %s %s; see holdfastd --help", args[0], args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfastd:", err)
		return 2
	}
	return 0
}
