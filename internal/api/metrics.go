package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
)

// metrics holds the metrics about calls.
type metrics struct {
	took     *prometheus.HistogramVec // durations and number of calls
	inFlight prometheus.Gauge
	denials  metric.Counter
}

// newMetrics registers the metrics with r, unless it is nil.
func newMetrics(r prometheus.Registerer, denials metric.Counter, version string) *metrics {
	f := promauto.With(r)
	f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "holdfast_build_info", Help: "Always 1. The label is the version of the server.",
	}, []string{"version"}).WithLabelValues(version).Set(1)
	return &metrics{
		denials: denials,
		took: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_call_duration_seconds", Help: "Duration of calls, by method and name of the google.rpc.Code.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "code"}),
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_calls_in_flight", Help: "Calls that have not been answered yet.",
		}),
	}
}

func (m *metrics) observe(method string, code fault.Code, took time.Duration) {
	m.took.WithLabelValues(method, code.Name()).Observe(took.Seconds())
}
