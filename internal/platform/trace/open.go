package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	flushTime  = 3 * time.Second // limit for sending the remaining spans when the process ends
	warnAgain  = time.Minute     // shortest time between two warnings that spans could not be sent
	library    = "github.com/holdfast-dev/holdfast/internal/platform/trace"
	defaultFor = "http/protobuf"
)

// Enabled reports whether the environment variables of OpenTelemetry name a collector.
func Enabled() bool {
	disabled, _ := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED"))
	return !disabled && os.Getenv("OTEL_TRACES_EXPORTER") != "none" && endpoint() != ""
}

func endpoint() string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
}

// Open starts recording spans and sending them, as the environment variables of
// OpenTelemetry say. It does nothing if Enabled returns false. It returns a function
// that ends both: it sends the remaining spans and takes at most three seconds. Spans
// wait in a queue of limited length. When the queue is full, because the collector
// does not answer, further spans are dropped, so that no request waits.
func Open(ctx context.Context, log *slog.Logger, version string) (end func(), _ error) {
	if !Enabled() {
		return func() {}, nil
	}
	ratio, err := ratio()
	exporter, missing := newExporter(ctx)
	process, incomplete := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", "holdfastd"), attribute.String("service.version", version)),
		resource.WithFromEnv())
	if err := errors.Join(err, missing, incomplete); err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	otel.SetErrorHandler(&warner{log: log})
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(process),
		sdktrace.WithSampler(sdktrace.AlwaysSample())) // Begin has already decided which requests are recorded
	t := &tracer{provider.Tracer(library), ratio}
	active.Store(t)
	log.Info("sending traces", "ratio", ratio)
	return func() {
		active.CompareAndSwap(t, nil)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("spans were lost", "err", err)
		}
	}, nil
}

func newExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	if kind := cmp.Or(os.Getenv("OTEL_TRACES_EXPORTER"), "otlp"); kind != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is not otlp or none", kind)
	}
	// The exporters would log a malformed address and use another one.
	if u, err := url.Parse(endpoint()); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("OTEL_EXPORTER_OTLP_ENDPOINT is not an http:// or https:// address")
	}
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"),
		defaultFor)
	switch protocol {
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	}
	return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q is not http/protobuf or grpc", protocol)
}

// ratio returns the fraction of requests that is recorded. Samplers that follow the
// decision of a request's caller do not do so here: see Begin.
func ratio() (float64, error) {
	sampler := strings.TrimPrefix(os.Getenv("OTEL_TRACES_SAMPLER"), "parentbased_")
	switch sampler {
	case "", "always_on":
		return 1, nil
	case "always_off":
		return 0, nil
	case "traceidratio":
		r, err := strconv.ParseFloat(cmp.Or(os.Getenv("OTEL_TRACES_SAMPLER_ARG"), "1"), 64)
		if err != nil || !(r >= 0 && r <= 1) {
			return 0, errors.New("OTEL_TRACES_SAMPLER_ARG is not a number from 0 to 1")
		}
		return r, nil
	}
	return 0, fmt.Errorf("OTEL_TRACES_SAMPLER: %q is not always_on, always_off or traceidratio, or one of them "+
		"after parentbased_", sampler)
}

// A warner logs errors of the exporter. It leaves out most of them, because every batch may fail.
type warner struct {
	log  *slog.Logger
	last atomic.Int64
}

// Handle implements otel.ErrorHandler.
func (w *warner) Handle(err error) {
	current, last := time.Now().UnixNano(), w.last.Load()
	if current-last > int64(warnAgain) && w.last.CompareAndSwap(last, current) {
		w.log.Warn("spans were not sent", "err", err)
	}
}
