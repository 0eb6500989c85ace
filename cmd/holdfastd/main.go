// Command holdfastd is the server.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
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
	if len(args) > 0 && args[0] == "gc" {
		return collect(ctx, args[1:])
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

// collect runs `holdfastd gc`: it collects the registry's garbage once and
// prints what it took. With --dry-run it only counts.
func collect(ctx context.Context, args []string) int {
	dry := slices.Contains(args, "--dry-run")
	args = slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s == "--dry-run" })
	cfg, err := server.LoadConfig(args, os.Environ(), os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfastd:", err)
		return 2
	}
	took, err := server.Collect(ctx, cfg, dry)
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfastd:", err)
		return 1
	}
	if err := json.NewEncoder(os.Stdout).Encode(took); err != nil {
		return 1
	}
	return 0
}
