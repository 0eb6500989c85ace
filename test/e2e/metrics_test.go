package e2e_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// metrics returns the values of Holdfast's own metrics, by series.
func (w *world) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for scan := bufio.NewScanner(strings.NewReader(w.send(t, "", "GET", "/metrics", "").body)); scan.Scan(); {
		series, value, _ := strings.Cut(scan.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil && strings.HasPrefix(series, "holdfast_") {
			values[series] = n
		}
	}
	return values
}

// grew fails the test unless every series has grown by at least the amount in want.
func grew(t *testing.T, before, after map[string]float64, want map[string]float64) {
	t.Helper()
	for series, n := range want {
		if _, ok := before[series]; !ok {
			t.Errorf("the series %s does not exist before the requests", series)
		}
		if got := after[series] - before[series]; got < n {
			t.Errorf("%s grew by %v, want %v", series, got, n)
		}
	}
}

// use makes the requests that TestMetrics counts. Some of the requests contain names that an unknown client has
// chosen.
func (w *world) use(t *testing.T, f *fakeIssuer, identity, robot string) {
	t.Helper()
	token := w.exchange(t, f.token(nil), identity)
	for i := range 20 {
		stranger := f.token(map[string]any{"iss": fmt.Sprintf("https://%d.example.com", i)})
		_, _ = w.exchangeHTTP(t, stranger, w.wish(identity))
	}
	_, _ = w.exchangeHTTP(t, f.token(map[string]any{"iss": "https://token.actions.githubusercontent.com"}),
		w.wish(identity))
	_, _ = w.exchangeHTTP(t, "UE9TVCAvIEhUVFAvMS4xDQo", w.wish(robot))
	w.send(t, token, "GET", "/iam/v2beta1/groups/"+string(w.Organization), "")
	w.send(t, token, "PURGE", "/v2/", "")
	images := &ociClient{strings.TrimPrefix(w.BaseURL, "http://"), w.RegistryToken, w.client}
	if err := images.push(t.Context(), "dev/app", "v1", []byte("a layer")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := images.pull(t.Context(), "dev/app", "v1"); err != nil {
			t.Fatal(err)
		}
	}
	archive := osvZip(t, 0, 5)
	w.takeIn(t, w.Token, string(w.Organization), doc("all.zip", len(archive)), archive)
}

// TestMetrics checks that the metrics count what operators need to know, and that no caller can add a series.
func TestMetrics(t *testing.T) {
	storetest.StoryURL(t, func(t *testing.T, url string) {
		w := serve(t, url, server.Config{GCInterval: 100 * time.Millisecond}, nil)
		f := newFakeIssuer(t, w)
		identity, robot := w.workload(t, f.url, nil), w.robot(t, string(w.Organization), "robot")
		before := w.metrics(t)

		w.use(t, f, identity, robot)
		procUntil(t, "garbage is collected", func() bool {
			return w.metrics(t)[`holdfast_gc_runs_total{outcome="ok"}`] > before[`holdfast_gc_runs_total{outcome="ok"}`]
		})

		after := w.metrics(t)
		grew(t, before, after, map[string]float64{
			`holdfast_exchanges_total{issuer="other",outcome="ok"}`:            1,
			`holdfast_exchanges_total{issuer="other",outcome="denied"}`:        20,
			`holdfast_exchanges_total{issuer="github",outcome="denied"}`:       1,
			`holdfast_exchanges_total{issuer="aws",outcome="invalid"}`:         1,
			`holdfast_denials_total{capability="groups.list"}`:                 1,
			`holdfast_registry_pushes_total`:                                   1,
			`holdfast_registry_pulls_total`:                                    2,
			`holdfast_registry_bytes_total{direction="sent"}`:                  14,
			`holdfast_registry_bytes_total{direction="received"}`:              7,
			`holdfast_advisories_imported_total{result="created"}`:             5,
			`holdfast_cache_requests_total{cache="tokens",result="hit"}`:       1,
			`holdfast_cache_requests_total{cache="tokens",result="miss"}`:      1,
			`holdfast_cache_requests_total{cache="identities",result="hit"}`:   1,
			`holdfast_cache_requests_total{cache="issuer_keys",result="miss"}`: 1,
			`holdfast_cache_requests_total{cache="repos",result="miss"}`:       1,
			`holdfast_cache_requests_total{cache="advisories",result="hit"}`:   0,
			`holdfast_gc_removed_total{kind="blobs"}`:                          0,
			`holdfast_signins_total{kind="password",outcome="ok"}`:             0,
			`holdfast_deliveries_total{outcome="given_up"}`:                    0,
			`holdfast_feed_reads_total{outcome="failed"}`:                      0,
			`holdfast_database_waits_total`:                                    0,
			`holdfast_feed_overdue_seconds`:                                    0,
			`holdfast_database_connections_limit`:                              0,
		})
		for series := range after {
			if _, ok := before[series]; !ok && !strings.HasPrefix(series, "holdfast_call_duration_seconds") &&
				!strings.HasPrefix(series, "holdfast_registry_requests_total") {
				t.Errorf("requests of callers created the series %s", series)
			}
		}
		if age := float64(time.Now().Unix()) - after["holdfast_signing_key_created_timestamp_seconds"]; age < 0 || age > 600 {
			t.Errorf("the signing key is %v seconds old", age)
		}
		heard, replicated := after["holdfast_replica_heard_seconds"]
		if replicated != strings.HasPrefix(url, "postgres") || heard > 10 || after["holdfast_replica_lag_revisions"] > 1 {
			t.Errorf("the replica read changes %v seconds ago, and is %v revisions behind", heard,
				after["holdfast_replica_lag_revisions"])
		}
	})
}

// TestBacklogMetrics checks that the metrics show the number and the age of events that a sink does not accept. After
// the delivery they must show none.
func TestBacklogMetrics(t *testing.T) {
	w := serve(t, storetest.SQLite(t), server.Config{}, nil)
	var up atomic.Bool
	sink := httptest.NewServer(http.HandlerFunc(func(r http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			r.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer sink.Close()
	w.send(t, w.Token, "POST", "/events/v2beta1/subscriptions/"+string(w.Organization), `{"sink":"`+sink.URL+`"}`)
	w.child(t, string(w.Organization), "noticed")
	procUntil(t, "an event waits", func() bool {
		m := w.metrics(t)
		return m["holdfast_deliveries_waiting"] > 0 && m["holdfast_delivery_oldest_seconds"] > 0 &&
			m[`holdfast_deliveries_total{outcome="failed"}`] > 0
	})
	up.Store(true)
	procUntil(t, "nothing waits", func() bool {
		m := w.metrics(t)
		return m["holdfast_deliveries_waiting"] == 0 && m["holdfast_delivery_oldest_seconds"] == 0 &&
			m[`holdfast_deliveries_total{outcome="ok"}`] > 0
	})
}
