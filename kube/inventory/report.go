package inventory

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/client-go/rest"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

const (
	pause      = 2 * time.Second  // shortest time between two reports
	longest    = 10 * time.Minute // longest time between two reports
	life       = 30 * time.Minute // after this time without a report, Holdfast shows the place as out of date
	maxEntries = 10_000           // maximum number of entries that Holdfast accepts
	pushTime   = 30 * time.Second // time limit for one report
)

// Config says what is reported where.
type Config struct {
	Group    string // UID of the group that gets the inventory
	Place    string // name of the cluster
	Log      *slog.Logger
	Registry prometheus.Registerer // gets the metrics
}

// A reporter pushes the state of a cluster.
type reporter struct {
	Config
	state   *state
	client  findingspb.InventoryServiceClient
	reports *prometheus.CounterVec
	last    prometheus.Gauge
}

// Run reports which images run in the cluster of a configuration, until ctx ends: all of them at the start, and again
// after each change. It reports everything each time, so a restart neither loses nor repeats anything.
func Run(ctx context.Context, cluster *rest.Config, conn grpc.ClientConnInterface, c Config) error {
	r := &reporter{Config: c, state: newState(), client: findingspb.NewInventoryServiceClient(conn),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_kube_inventory_reports_total", Help: "Reports of the inventory, by result.",
		}, []string{"result"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_kube_inventory_last_report_seconds", Help: "Unix time of the last report that Holdfast accepted.",
		}),
	}
	c.Registry.MustRegister(r.reports, r.last)
	w, err := newWatcher(cluster, r.state, c.Log)
	if err != nil {
		return err
	}
	go w.run(ctx)
	r.run(ctx)
	return nil
}

// run pushes the state after changes, and at least every ten minutes. It never pushes before all pods are known.
func (r *reporter) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.state.listed:
	}
	for wait := pause; ; {
		err := r.push(ctx)
		if err == nil {
			wait = pause
			r.reports.WithLabelValues("accepted").Inc()
			r.last.SetToCurrentTime()
		} else if ctx.Err() == nil {
			wait = min(2*wait, time.Minute)
			r.reports.WithLabelValues("failed").Inc()
			r.Log.Warn("Holdfast did not accept the inventory", "error", err.Error(), "again_in", wait.String())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err != nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-r.state.changes:
		case <-time.After(longest):
		}
	}
}

// push reports everything that runs.
func (r *reporter) push(ctx context.Context) error {
	entries := r.state.entries()
	if len(entries) > maxEntries {
		return fmt.Errorf("%d different containers run, but an inventory has at most %d entries", len(entries), maxEntries)
	}
	ctx, cancel := context.WithTimeout(ctx, pushTime)
	defer cancel()
	_, err := r.client.PushInventory(ctx, &findingspb.PushInventoryRequest{
		GroupUid: r.Group, Place: r.Place, Entries: entries, Empty: len(entries) == 0, Ttl: durationpb.New(life),
	})
	return err
}
