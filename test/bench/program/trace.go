package program

import (
	"context"
	"io"
	"net/http"

	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

// tracedCost is how much more processor time a request may need with traces of one in a
// hundred.
const tracedCost = 1.02

// Traces compares a server that sends traces of one request in a hundred to a collector
// with one that sends none. The collector is in this process.
func Traces(ctx context.Context, m *rig.Measurement) {
	collector := m.ServeHandler(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // an error is for the server to report
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	p := m.NewPlatform(ctx)
	servers := [2]*release{
		startRelease(ctx, m, "with traces", "traces_on", "", p, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector,
			"OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01"),
		startRelease(ctx, m, "without", "traces_off", "", p),
	}
	for _, t := range []task{exchangeBySubject, pullManifest} {
		compareReleases(ctx, m, "traces of 1 %: "+t.what, t, servers, 0, tracedCost)
	}
}
