package assembly_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// counted returns the value of the metric for requests to upstreams that had an outcome.
func counted(t *testing.T, all *prometheus.Registry, outcome string) (n float64) {
	t.Helper()
	families, err := all.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() != "holdfast_upstream_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" && l.GetValue() == outcome {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// TestMirrorAbsences checks that repeated pulls of content that an upstream lacks cause only one request to the
// upstream, until some time has passed or the settings of the upstream change.
func TestMirrorAbsences(t *testing.T) {
	storetest.Story(t, func(t *testing.T, s *storetest.Store) {
		counters := prometheus.NewRegistry()
		m, o := newMirrorRig(t, s, func(c *assembly.Config) { c.Metrics = metric.New(counters, nil) }), newOrigin(t)
		at, u := m.mirrors(t, "mirror", o.URL, nil)
		other, _ := m.mirrors(t, "other", o.URL, nil)
		layer, later := sha([]byte("layer")), image(o.blob("{}"), o.blob("soon"))
		const pulls = 100
		for _, tt := range []struct{ method, path string }{
			{"GET", "/app/manifests/v1"}, {"HEAD", "/app/manifests/v2"}, {"GET", "/app/manifests/" + sha(later)},
			{"GET", "/app/blobs/" + layer}, {"HEAD", "/app/blobs/" + sha([]byte("another"))},
		} {
			for range pulls {
				m.want(t, call{method: tt.method, path: "/v2/" + at + tt.path, who: "registry.pull"}, http.StatusNotFound)
			}
			if n := o.total(); n != 1 {
				t.Errorf("%d times %s %s asked the upstream %d times", pulls, tt.method, tt.path, n)
			}
		}
		if gone, again := counted(t, counters, metric.Missing), counted(t, counters, metric.Remembered); gone != 4 ||
			again != 4*(pulls-1) {
			t.Errorf("counted as missing: %v, as remembered: %v", gone, again) // HEAD requests for blobs are not counted
		}

		o.image("app", "v1", "layer")
		m.get(t, at+"/app/manifests/v1", http.StatusNotFound)
		m.get(t, other+"/app/manifests/v1", http.StatusOK)
		m.pass(29 * time.Second)
		m.get(t, at+"/app/manifests/v1", http.StatusNotFound)
		m.pass(2 * time.Second)
		m.get(t, at+"/app/manifests/v1", http.StatusOK)
		m.get(t, at+"/app/blobs/"+layer, http.StatusOK)

		m.get(t, at+"/app/manifests/v3", http.StatusNotFound)
		o.image("app", "v3", "layer")
		ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: m.uids["owner"]})
		_, err := m.service.UpdateUpstream(ctx, u.UID,
			func(u *registry.Upstream) error { u.FreshFor = time.Minute; return nil })
		must(t, err)
		m.get(t, at+"/app/manifests/v3", http.StatusOK)
	})
}

// TestUpstreamFailure checks that the last failure of an upstream is reported until a request succeeds or the
// upstream is changed.
func TestUpstreamFailure(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	m, o := newMirrorRig(t, s, nil), newOrigin(t)
	at, u := m.mirrors(t, "mirror", o.URL, nil)
	_, other := m.mirrors(t, "other", o.URL, nil)
	o.image("app", "v1", "layer")
	ctx := authz.WithCaller(t.Context(), authz.Caller{Identity: m.uids["owner"]})
	want := func(want string) {
		t.Helper()
		now, err := m.service.GetUpstream(ctx, u.UID)
		must(t, err)
		got, ok := m.service.UpstreamFailure(now)
		if got.Reason != want && ok || ok != (want != "") || ok && !got.Time.Equal(m.now()) &&
			m.now().Sub(got.Time) > time.Hour {
			t.Errorf("failure = %+v, %v, want %q", got, ok, want)
		}
	}
	want("")
	for answer, reason := range map[int]string{
		http.StatusInternalServerError: "it answers with status 500",
		http.StatusForbidden:           "it refuses the request, or does not have it",
	} {
		o.behave(status(answer))
		m.want(t, call{method: "GET", path: "/v2/" + at + "/app/manifests/none", who: "registry.pull"},
			map[int]int{500: 502, 403: 403}[answer])
		want(reason)
		o.behave(nil)
		m.get(t, at+"/app/manifests/none", http.StatusNotFound) // a missing manifest is not a failure
		want("")
		m.pass(time.Minute)
	}
	o.behave(status(http.StatusInternalServerError))
	m.get(t, at+"/app/blobs/"+sha([]byte("layer")), http.StatusBadGateway)
	want("it answers with status 500")
	if f, ok := m.service.UpstreamFailure(other); ok {
		t.Errorf("another upstream has failed: %+v", f)
	}
	_, err := m.service.UpdateUpstream(ctx, u.UID,
		func(u *registry.Upstream) error { u.FreshFor = time.Minute; return nil })
	must(t, err)
	want("")
}

// TestMirrorOfGoneTag checks that a tag that was deleted at the upstream is served from the storage with a warning,
// and that repeated pulls cause only one request to the upstream.
func TestMirrorOfGoneTag(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	m, o := newMirrorRig(t, s, nil), newOrigin(t)
	at, _ := m.mirrors(t, "mirror", o.URL, nil)
	o.image("app", "v1", "layer")
	m.get(t, at+"/app/manifests/v1", http.StatusOK)
	o.behave(status(http.StatusNotFound))
	m.pass(2 * time.Hour)
	o.total()
	for range 10 {
		got := m.get(t, at+"/app/manifests/v1", http.StatusOK)
		if !strings.Contains(got.header.Get("Warning"), "have it") {
			t.Errorf("Warning %q", got.header.Get("Warning"))
		}
	}
	if n := o.total(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}
