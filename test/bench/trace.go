package main

import (
	"context"
	"io"
	"net/http"
)

// tracedCost is how much more processor time a request may need with traces of one in a
// hundred.
const tracedCost = 1.02

// traces compares a server that sends traces of one request in a hundred to a collector
// with one that sends none. The collector is in this process.
func traces(ctx context.Context, m *measurement) {
	collector := m.serveHTTP(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // an error is for the server to report
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	p := m.newPlatform(ctx)
	servers := [2]*release{
		m.release(ctx, "with traces", "traces_on", "", p, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector,
			"OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01"),
		m.release(ctx, "without", "traces_off", "", p),
	}
	for _, t := range []task{exchangeBySubject, pullManifest} {
		m.compareReleases(ctx, "traces of 1 %: "+t.what, t, servers, 0, tracedCost)
	}
}
