package program

import (
	"context"
	"io"
	"net/http"

	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

// tracedCost is the largest ratio of the processor time of a request with traces of one request in a hundred to the
// processor time without traces.
const tracedCost = 1.02

// Traces compares a server that sends traces of one request in a hundred to a collector with a server that sends none.
// The collector runs in this process.
func Traces(ctx context.Context, m *rig.Measurement) {
	collector := m.ServeHandler(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server reports errors
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
