package e2e_test

import (
	"bufio"
	"flag"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// steady is short in the test suite. make soak sets it to an hour.
var steady = flag.Duration("steady", 5*time.Second, "how long TestSteady keeps the server under load")

// steadyMost is how much each metric of the server may grow: by a part of the earlier value, plus the usual
// variation.
var steadyMost = map[string]struct{ part, moves float64 }{
	"process_resident_memory_bytes": {0.2, 32 << 20},
	"go_goroutines":                 {0.1, 30},
	"process_open_fds":              {0.1, 30},
}

// TestSteady keeps a server under a steady load of reads, writes, grants, pushes, pulls and exchanges. Its memory,
// its goroutines and its open files must not grow, no request may fail, and no acknowledged write may be lost.
func TestSteady(t *testing.T) {
	t.Parallel()
	storetest.EachEmpty(t, func(t *testing.T, url string) {
		t.Parallel()
		address := rollingPorts(t, 1)[0]
		c := &rollingCluster{t: t, addresses: []string{address}, proxy: address}
		c.replicas = []*proc{procStart(t, "HOLDFAST_DATABASE="+url, "HOLDFAST_DATA_DIR="+t.TempDir(),
			"HOLDFAST_LISTEN="+address, "HOLDFAST_BASE_URL="+c.url(), "HOLDFAST_ENCRYPTION_KEY="+secret.NewKey().Text())}
		start := time.Now()
		load := rollingLoad(t, c, 5*rollingEvery)
		figures := steadyFigures(t, c.replicas[0], *steady)
		load.stop()
		load.report(time.Since(start))
		if n := load.repeated(); n > 0 {
			t.Errorf("%d requests had to be repeated", n)
		}
		for name, samples := range figures {
			steadyCompare(t, name, samples)
		}
		load.survey()
		c.replicas[0].stop()
		procNoDrift(t, storetest.Open(t, url))
	})
}

// steadyFigures reads the metrics of the server a hundred times during the given time, and returns the samples.
func steadyFigures(t *testing.T, p *proc, lasts time.Duration) map[string][]float64 {
	t.Helper()
	figures := map[string][]float64{}
	api := procDial(p.address, "")
	defer api.close()
	tick := time.NewTicker(lasts / 100)
	defer tick.Stop()
	for range 100 {
		<-tick.C
		p.alive()
		a, err := api.call(t.Context(), http.MethodGet, "/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		for scan := bufio.NewScanner(strings.NewReader(string(a.body))); scan.Scan(); {
			name, text, _ := strings.Cut(scan.Text(), " ")
			if _, wanted := steadyMost[name]; !wanted {
				continue
			}
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			figures[name] = append(figures[name], value)
		}
	}
	if len(figures) != len(steadyMost) {
		t.Errorf("the server reports %d figures, want %d", len(figures), len(steadyMost))
	}
	return figures
}

// steadyCompare fails the test if a metric has grown too much from the second quarter of the time to the last
// quarter. In the second quarter all caches are already warm.
func steadyCompare(t *testing.T, name string, samples []float64) {
	t.Helper()
	quarter := len(samples) / 4
	before, after := steadyMedian(samples[quarter:2*quarter]), steadyMedian(samples[3*quarter:])
	t.Logf("%s: %.0f in the first sample, %.0f in the second quarter, %.0f in the last, %.0f at most",
		name, samples[0], before, after, slices.Max(samples))
	if most := steadyMost[name]; after > before*(1+most.part)+most.moves {
		t.Errorf("%s grew from %.0f to %.0f", name, before, after)
	}
}

func steadyMedian(samples []float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/2]
}
