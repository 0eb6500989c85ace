package trace_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/platform/trace"
)

// TestOff checks that without a collector there are no spans, and nothing is allocated.
func TestOff(t *testing.T) {
	end, err := trace.Open(t.Context(), slog.Default(), "v1")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if trace.On() {
		t.Error("there are spans without a collector")
	}
	ctx, failure := t.Context(), errors.New("a failure")
	allocated := testing.AllocsPerRun(100, func() {
		ctx, request := trace.Begin(ctx, "request", "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
		ctx, part := trace.Start(ctx, "part")
		trace.Leaf(ctx, "statement").Set("text", "SELECT")
		part.SetInt("code", 2)
		part.End(failure)
		request.End(nil)
		if trace.ID(ctx) != "" {
			t.Error("there is a trace")
		}
	})
	if allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}

// TestOpen checks which values of the OpenTelemetry variables are accepted.
func TestOpen(t *testing.T) {
	tests := map[string]struct {
		env  string
		on   bool
		fail string
	}{
		"a collector":                {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", true, ""},
		"one for traces":             {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1/v1/traces", true, ""},
		"a collector without scheme": {"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318", false, "OTEL_EXPORTER_OTLP_ENDPOINT"},
		"disabled":                   {"OTEL_SDK_DISABLED=true OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", false, ""},
		"no exporter":                {"OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", false, ""},
		"no collector":               {"OTEL_SERVICE_NAME=x", false, ""},
		"a protocol that we lack": {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_EXPORTER_OTLP_PROTOCOL=http/json",
			false,
			"OTEL_EXPORTER_OTLP_PROTOCOL"},
		"an exporter that we lack": {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_TRACES_EXPORTER=zipkin", false,
			"OTEL_TRACES_EXPORTER"},
		"a sampler that we lack": {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_TRACES_SAMPLER=xray", false,
			"OTEL_TRACES_SAMPLER"},
		"a ratio that is none": {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 OTEL_TRACES_SAMPLER=traceidratio " +
			"OTEL_TRACES_SAMPLER_ARG=NaN", false, "OTEL_TRACES_SAMPLER_ARG"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for pair := range strings.FieldsSeq(tt.env) {
				key, value, _ := strings.Cut(pair, "=")
				t.Setenv(key, value)
			}
			end, err := trace.Open(t.Context(), slog.New(slog.DiscardHandler), "v1")
			if tt.fail != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fail) {
					t.Fatalf("the error is %v, which does not name %s", err, tt.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if trace.On() != tt.on {
				t.Errorf("on is %t", trace.On())
			}
			end()
			if trace.On() {
				t.Error("still on after the end")
			}
		})
	}
}

// TestSampling checks that a request that is not recorded has the id of its
// client's trace, if there is one, and no spans. A recorded request has a limited
// number of spans.
func TestSampling(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	for _, sampler := range []string{"always_off", "parentbased_always_off", "always_on", "parentbased_always_on"} {
		t.Run(sampler, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
			t.Setenv("OTEL_TRACES_SAMPLER", sampler)
			end, err := trace.Open(t.Context(), slog.New(slog.DiscardHandler), "v1")
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			records := strings.HasSuffix(sampler, "on")
			ctx, span := trace.Begin(t.Context(), "request", "00-"+id+"-0123456789abcdef-01")
			if span.Recorded() != records || trace.ID(ctx) != id {
				t.Errorf("recorded is %t, the trace %q", span.Recorded(), trace.ID(ctx))
			}
			if got := trace.Reference(ctx, "r1"); got != "r1, trace "+id {
				t.Errorf("a client is told %q", got)
			}
			if ctx, span := trace.Begin(t.Context(), "request", "00-not-good"); (trace.ID(ctx) != "") != records {
				t.Errorf("recorded is %t, the trace %q", span.Recorded(), trace.ID(ctx))
			}
			n := 0
			for range 2000 {
				if trace.Leaf(ctx, "statement").Recorded() {
					n++
				}
			}
			if want := map[bool]int{true: 1000}[records]; n != want {
				t.Errorf("%d spans below it, not %d", n, want)
			}
			if trace.Leaf(context.Background(), "statement").Recorded() {
				t.Error("a span outside of a request")
			}
		})
	}
}
