package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/holdfast-dev/holdfast/kube/inventory"
)

// runInventory reports which images run in the cluster, until ctx ends.
func runInventory(ctx context.Context, args []string, getenv func(string) string, log *slog.Logger) error {
	var c connection
	report := inventory.Config{Log: log}
	cluster := rest.Config{}
	f := flag.NewFlagSet("holdfast-kube inventory", flag.ContinueOnError)
	c.add(f, getenv)
	f.StringVar(&report.Group, "group", getenv("HOLDFAST_GROUP"), "`uid` of the group that gets the inventory; the "+
		"default is HOLDFAST_GROUP")
	f.StringVar(&report.Place, "place", getenv("HOLDFAST_PLACE"), "`name` of the cluster, such as prod-eu; "+
		"the default is HOLDFAST_PLACE")
	f.StringVar(&cluster.Host, "cluster", "", "`address` of the API server; the default is the cluster in which the "+
		"program runs, with the service account of its pod")
	f.StringVar(&cluster.BearerTokenFile, "cluster-token-file", "", "`file` with a token for --cluster")
	f.StringVar(&cluster.TLSClientConfig.CAFile, "cluster-ca", "", "`file` with certificate authorities for --cluster")
	if _, err := c.parse(f, args); err != nil {
		return err
	}
	if report.Group == "" || report.Place == "" {
		return errors.New("--group and --place are required")
	}
	if cluster.Host == "" {
		inside, err := rest.InClusterConfig()
		if err != nil {
			return err
		}
		cluster = *inside
	}
	conn, err := c.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	metrics := prometheus.NewRegistry()
	report.Registry = metrics
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		cancel(cmp.Or(serve(ctx, log, []*http.Server{{Addr: c.metrics, Handler: probes(metrics)}}), context.Canceled))
	}()
	if err := inventory.Run(ctx, &cluster, conn, report); err != nil {
		return err
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
