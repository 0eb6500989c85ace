// Package trace records how long the parts of a request take, as spans of
// OpenTelemetry, and sends them to the collector of the installation.
//
// It is off unless the operator configures a collector, and then costs only a
// comparison. It is the only package that uses OpenTelemetry. Other packages start
// spans with Begin and Start. Libraries that support OpenTelemetry do not see
// these spans, so that no request to another service carries the id of a trace.
//
// Spans have no field for texts that callers choose. Attributes are our own
// names and numbers: methods, capabilities, statements without their arguments,
// hosts that are called, and codes.
package trace

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Header is the header of a request that names its trace (W3C Trace Context).
const Header = "Traceparent"

// maxSpans is the largest number of spans that this process adds to one trace. It is needed
// because an import runs hundreds of thousands of statements.
const maxSpans = 1000

// active is the tracer that makes spans, or nil if tracing is off. It belongs to the process,
// because spans start everywhere, and a parameter for it would be in every
// signature.
var active atomic.Pointer[tracer]

// A tracer makes spans.
type tracer struct {
	oteltrace.Tracer
	ratio float64 // fraction of the requests that are traced
}

// A Span is a part of a request. A nil Span is not recorded: its methods do
// nothing.
type Span struct {
	span  oteltrace.Span // nil if only the id of the trace is known
	trace string         // the id of the trace
	left  *atomic.Int64  // how many spans the trace may still have
}

type spanKey struct{}

// On reports whether spans are made.
func On() bool { return active.Load() != nil }

// Begin starts the first span of a request in this process. parent is the
// Header of the request, or "". A valid parent contains the id of the trace
// and of the span above this one, so that the caller's trace and ours are the
// same trace. Only this process decides whether the request is recorded, and
// independently of the id. So a stranger can neither force the recording of its
// requests nor prevent it.
func Begin(ctx context.Context, name, parent string) (context.Context, *Span) {
	t := active.Load()
	if t == nil {
		return ctx, nil
	}
	above := spanContextOf(parent)
	if rand.Float64() >= t.ratio {
		if !above.IsValid() {
			return ctx, nil
		}
		return context.WithValue(ctx, spanKey{}, &Span{trace: above.TraceID().String()}), nil
	}
	kind := oteltrace.WithSpanKind(oteltrace.SpanKindServer)
	_, made := t.Start(oteltrace.ContextWithRemoteSpanContext(context.Background(), above), name, kind)
	span := &Span{span: made, trace: made.SpanContext().TraceID().String(), left: new(atomic.Int64)}
	span.left.Store(maxSpans)
	return context.WithValue(ctx, spanKey{}, span), span
}

// spanContextOf parses the Header of a request. The result is not valid if the
// header is missing or malformed.
func spanContextOf(header string) oteltrace.SpanContext {
	if header == "" {
		return oteltrace.SpanContext{}
	}
	from := propagation.MapCarrier{"traceparent": header}
	return oteltrace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), from))
}

// Start starts a child of the span in ctx, if that span is recorded. It returns a
// context for the children of the new span.
func Start(ctx context.Context, name string) (context.Context, *Span) {
	span := Leaf(ctx, name)
	if span == nil {
		return ctx, nil
	}
	return context.WithValue(ctx, spanKey{}, span), span
}

// Leaf is Start for a span without children.
func Leaf(ctx context.Context, name string) *Span {
	return start(ctx, name, oteltrace.SpanKindInternal)
}

// Call is Leaf for a request to another server.
func Call(ctx context.Context, name string) *Span {
	return start(ctx, name, oteltrace.SpanKindClient)
}

func start(ctx context.Context, name string, kind oteltrace.SpanKind) *Span {
	t := active.Load()
	if t == nil {
		return nil
	}
	above := FromContext(ctx)
	if above == nil || above.span == nil || above.left.Add(-1) < 0 {
		return nil
	}
	_, made := t.Start(oteltrace.ContextWithSpan(context.Background(), above.span), name, oteltrace.WithSpanKind(kind))
	return &Span{span: made, trace: above.trace, left: above.left}
}

// FromContext returns the span in ctx, or nil.
func FromContext(ctx context.Context) *Span {
	if active.Load() == nil {
		return nil
	}
	span, _ := ctx.Value(spanKey{}).(*Span)
	return span
}

// ID returns the id of the trace of ctx, or "" if there is none. If the
// request is not recorded here, it is the id of the caller's trace.
func ID(ctx context.Context) string {
	if span := FromContext(ctx); span != nil {
		return span.trace
	}
	return ""
}

// Reference returns the reference to a failed request for the client: the id of the
// request, and the id of its trace if there is one.
func Reference(ctx context.Context, request string) string {
	id := ID(ctx)
	switch {
	case id == "":
		return request
	case request == "":
		return "trace " + id
	}
	return request + ", trace " + id
}

// Detach returns a context with the span of ctx and nothing else, for work that does
// not end with its request.
func Detach(ctx context.Context) context.Context {
	if span := FromContext(ctx); span != nil {
		return context.WithValue(context.Background(), spanKey{}, span)
	}
	return context.Background()
}

// Recorded reports whether s is recorded. Callers check it before they compute attributes that are
// expensive.
func (s *Span) Recorded() bool { return s != nil && s.span != nil }

// Name renames s.
func (s *Span) Name(name string) {
	if s.Recorded() {
		s.span.SetName(name)
	}
}

// Set sets an attribute. The value must not be a text that a caller chooses.
func (s *Span) Set(key, value string) {
	if s.Recorded() {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// SetInt sets an attribute whose value is a number.
func (s *Span) SetInt(key string, value int) {
	if s.Recorded() {
		s.span.SetAttributes(attribute.Int(key, value))
	}
}

// Fail marks s as failed.
func (s *Span) Fail() {
	if s.Recorded() {
		s.span.SetStatus(codes.Error, "")
	}
}

// End ends s, and marks it as failed if err is not nil. The text of the error is
// not recorded, because it may contain data that a caller sent.
func (s *Span) End(err error) {
	if !s.Recorded() {
		return
	}
	if err != nil {
		s.Fail()
	}
	s.span.End()
}
