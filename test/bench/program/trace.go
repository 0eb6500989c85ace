package program

import (
	"context"
	"io"
	"net/http"

	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

// tracedCost is the target for the processor time per request if one request in a hundred is traced, as a ratio to
// the processor time without traces.
const tracedCost = 1.02

// Traces compares two servers. One sends the traces of one request in a hundred to a collector, the other sends none.
// The collector runs in this process.
func Traces(ctx context.Context, m *rig.Measurement) {
	collector := m.ServeHandler(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the sending server reports errors
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
