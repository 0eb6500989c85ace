package metric_test

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/platform/metric"
)

// TestZero checks that the zero value counts nothing and does not fail.
func TestZero(t *testing.T) {
	var m metric.Metrics
	m.Exchanges.Add(1, "github", metric.OK)
	m.Pulls.Add(1)
	m.Cache("tokens").Count(true)
}

// series returns the values of all series, by name and labels.
func series(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue()
		}
	}
	return all
}

// TestLabels checks that an unknown label value creates no new series.
func TestLabels(t *testing.T) {
	r := prometheus.NewRegistry()
	m := metric.New(r, []string{"groups.list"})
	want := series(t, r)
	m.Denials.Add(2, "groups.list")
	m.Denials.Add(3, "of a caller's choice")
	m.Exchanges.Add(1, "https://issuer.example.com", "of a caller's choice")
	m.Cache("repos").Count(true)
	m.Cache("repos").Count(false)
	want["holdfast_denials_total groups.list"] = 2
	want["holdfast_denials_total other"] = 3
	want["holdfast_exchanges_total other failed"] = 1
	want["holdfast_cache_requests_total repos hit"] = 1
	want["holdfast_cache_requests_total repos miss"] = 1
	if got := series(t, r); !maps.Equal(got, want) {
		t.Errorf("the series are %v, not %v", got, want)
	}
}
