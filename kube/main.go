// Command holdfast-kube connects a Kubernetes cluster with Holdfast. Without a command, it checks whether the rules
// refuse the images of new pods and workloads: see docs/kubernetes-admission.md. With the command inventory, it reports
// which images run: see docs/kubernetes-inventory.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Getenv, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast-kube:", err)
		os.Exit(1)
	}
}

// run runs the command in args until ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, log *slog.Logger) error {
	switch {
	case len(args) == 1 && args[0] == "--version":
		fmt.Println(buildinfo.Version())
		return nil
	case len(args) > 0 && args[0] == "inventory":
		return runInventory(ctx, args[1:], getenv, log)
	}
	return runAdmission(ctx, args, getenv, log)
}

// connection are the settings of the connection to Holdfast, which all commands have.
type connection struct {
	server, identity, tokenFile, ca string
	metrics                         string // address for metrics and probes
}

// add adds the flags of the settings.
func (c *connection) add(f *flag.FlagSet, getenv func(string) string) {
	f.StringVar(&c.server, "server", getenv("HOLDFAST_SERVER"), "`address` of Holdfast; the default is HOLDFAST_SERVER")
	f.StringVar(&c.identity, "identity", getenv("HOLDFAST_IDENTITY"), "`uid` of the identity of the cluster; the default "+
		"is HOLDFAST_IDENTITY")
	f.StringVar(&c.tokenFile, "token-file", "/var/run/secrets/holdfast/token", "`file` with the token of "+
		"the service account")
	f.StringVar(&c.ca, "ca", getenv("HOLDFAST_CA"), "`file` with certificate authorities for the server, in PEM")
	f.StringVar(&c.metrics, "metrics", ":8080", "`address` for /metrics, /healthz and /readyz")
}

// parse parses arguments, and returns the host of the server.
func (c *connection) parse(f *flag.FlagSet, args []string) (host string, _ error) {
	if err := f.Parse(args); err != nil {
		return "", err
	}
	if f.NArg() > 0 {
		return "", fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	u, err := url.Parse(c.server)
	if c.server == "" || err != nil || u.Host == "" {
		return "", errors.New("--server must be the address of Holdfast, such as https://holdfast.example.com")
	}
	return u.Host, nil
}

// dial connects to Holdfast. After an outage it tries at least once a second to connect again.
func (c *connection) dial() (*client.Client, error) {
	return client.Dial(client.Config{
		Address: c.server, CAFile: c.ca, UserAgent: "holdfast-kube", Timeout: 5 * time.Second,
		Credential: client.Workload{Identity: c.identity, Proof: client.File(c.tokenFile)},
		Options: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: 3 * time.Second,
		})},
	})
}
