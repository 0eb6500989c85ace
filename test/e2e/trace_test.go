package e2e_test

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// A traceCollector receives spans with the OTLP protocol, over HTTP or gRPC.
type traceCollector struct {
	collector.UnimplementedTraceServiceServer
	url string

	mu        sync.Mutex
	spans     []*tracepb.Span
	resources []string
}

// newTraceCollector starts a collector for a protocol. It also returns the environment variables with which a server
// sends spans to it.
func newTraceCollector(t *testing.T, protocol string) (*traceCollector, []string) {
	t.Helper()
	c := &traceCollector{}
	if protocol == "grpc" {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		collector.RegisterTraceServiceServer(s, c)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		c.url = "http://" + l.Addr().String()
	} else {
		s := httptest.NewServer(c)
		t.Cleanup(s.Close)
		c.url = s.URL
	}
	return c, []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol,
		"OTEL_SERVICE_NAME=holdfast-test", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test",
		"OTEL_EXPORTER_OTLP_HEADERS=x-collector=hello",
	}
}

// Export receives spans over gRPC.
func (c *traceCollector) Export(
	_ context.Context, r *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, spans := range r.GetResourceSpans() {
		for _, a := range spans.GetResource().GetAttributes() {
			c.resources = append(c.resources, a.GetKey()+"="+a.GetValue().GetStringValue())
		}
		for _, scope := range spans.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// ServeHTTP receives spans over HTTP.
func (c *traceCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	text, err := io.ReadAll(body)
	var in collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(text, &in) != nil ||
		r.Header.Get("X-Collector") != "hello" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = c.Export(r.Context(), &in)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// tree returns the spans of a trace as lines, without repetitions. A line contains the names of the parent spans and
// then the name of the span.
func (c *traceCollector) tree(trace string) (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := map[string]*tracepb.Span{}
	for _, s := range c.spans {
		byID[string(s.GetSpanId())] = s
	}
	for _, s := range c.spans {
		if hex.EncodeToString(s.GetTraceId()) != trace {
			continue
		}
		line := s.GetName()
		for up := byID[string(s.GetParentSpanId())]; up != nil; up = byID[string(up.GetParentSpanId())] {
			line = up.GetName() + " > " + line
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// traceOf returns the trace ID that the tests use for the number n.
func traceOf(n int) string { return fmt.Sprintf("%032x", 0xabc000+n) }

// traced makes a request that names trace n. Its traceparent header says that the trace is not sampled.
func traced(t *testing.T, n int, method, address, bearer, body string, headers ...string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Traceparent", "00-"+traceOf(n)+"-00000000000000aa-00")
	r.Header.Set("Authorization", "Bearer "+bearer)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusInternalServerError {
		t.Fatalf("%s %s: %d %s %v", method, address, resp.StatusCode, text, err)
	}
	return text
}

// TestTraces checks that a server sends the spans of its requests to a collector, in the trace that the client names.
// The log must contain the trace ID, and the spans must contain no secret.
func TestTraces(t *testing.T) {
	t.Run("http, sqlite", func(t *testing.T) { testTraces(t, "http/protobuf", storetest.SQLite(t)) })
	t.Run("grpc, postgres", func(t *testing.T) { testTraces(t, "grpc", storetest.Postgres(t)) })
}

func testTraces(t *testing.T, protocol, database string) {
	c, env := newTraceCollector(t, protocol)
	p := procStart(t, append(env, "HOLDFAST_DATA_DIR="+t.TempDir(), "HOLDFAST_DATABASE="+database)...)
	api, registry := "http://"+p.address, p.registry()
	issuer := newFakeIssuer(t, &world{AuthURL: procBase})
	owner := p.owner()
	defer owner.close()
	group := procMust[procGroup](t, owner, "POST", "/iam/v2beta1/groups/"+string(p.dev.Organization),
		map[string]any{"name": "traced-group"})
	identity := procMust[procGroup](t, owner, "POST", "/iam/v2beta1/identities/"+string(p.dev.Organization),
		map[string]any{"name": "traced-ci", "claimMatch": map[string]any{"issuer": issuer.url, "subject": "job-subject"}})
	layer := []byte("the layer of a traced image")
	if err := registry.push(t.Context(), "dev/app", "v1", layer); err != nil {
		t.Fatal(err)
	}

	job := issuer.token(map[string]any{"sub": "job-subject"})
	traced(t, 1, "PATCH", api+"/iam/v2beta1/groups/"+string(group.UID), p.dev.Token, `{"description":"words of a user"}`)
	traced(t, 2, "GET", api+"/v2/dev/app/manifests/v1", registry.token, "")
	traced(t, 3, "GET", api+"/v2/dev/app/blobs/"+ociDigest(layer), registry.token, "")
	query := url.Values{"aud": {procBase}, "identity": {string(identity.UID)}}
	exchanged := traced(t, 4, "GET", api+"/sts/exchange?"+query.Encode(), job, "")
	traced(t, 5, "GET", api+"/device?user_code=HIDDEN-CODE", "", "", "Accept", "text/html")
	page := traced(t, 6, "GET", api+"/signin?flow=none", "", "")
	if !strings.Contains(string(page), ", trace "+traceOf(6)) {
		t.Errorf("the page of an error does not name the trace:\n%s", page)
	}
	p.waitLog(`"trace":"` + traceOf(1) + `"`)
	p.stop() // a stopping server sends the remaining spans

	const update = "holdfast.iam.v2beta1.GroupsService/UpdateGroup"
	const exchange = "holdfast.oidc.SecurityTokenService/Exchange"
	want := map[int][]string{
		1: {update, update + " > authenticate", update + " > authorize", update + " > SELECT",
			update + " > transaction > UPDATE", update + " > transaction > COMMIT"},
		2: {"registry manifest", "registry manifest > authenticate", "registry manifest > authorize",
			"registry manifest > SELECT"},
		3: {"registry blob", "registry blob > authorize", "registry blob > SELECT", "registry blob > open blob"},
		4: {exchange, exchange + " > SELECT", exchange + " > GET", exchange + " > wait for keys"},
		5: {"GET /device"},
	}
	for n, lines := range want {
		got := c.tree(traceOf(n))
		for _, line := range lines {
			if !slices.Contains(got, line) {
				t.Errorf("trace %d has no span %q; it has %q", n, line, got)
			}
		}
	}
	var answer struct{ Token string }
	if err := json.Unmarshal(exchanged, &answer); err != nil || answer.Token == "" {
		t.Fatalf("%v in %s", err, exchanged)
	}
	c.checkSecrets(t, p.dev.Token, registry.token, job, answer.Token, "job-subject", "words of a user", "traced-group",
		"HIDDEN-CODE", string(group.UID), string(identity.UID), string(p.dev.Owner), ociDigest(layer), "dev/app")
	for _, a := range []string{"service.name=holdfast-test", "deployment.environment.name=test"} {
		if !slices.Contains(c.resources, a) {
			t.Errorf("the resource has no %s: %q", a, c.resources)
		}
	}
}

// traceAttributes are the attributes that spans may have.
var traceAttributes = []string{
	"db.query.text", "db.system.name", "holdfast.capabilities", "holdfast.result", "holdfast.storage",
	"http.response.status_code", "rpc.grpc.status_code", "server.address",
}

// checkSecrets fails the test if a span contains one of the texts, or has an attribute that is not in traceAttributes.
func (c *traceCollector) checkSecrets(t *testing.T, secrets ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		text := s.String()
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%q is in the span %s", secret, text)
			}
		}
		for _, a := range s.GetAttributes() {
			if !slices.Contains(traceAttributes, a.GetKey()) {
				t.Errorf("the span %s has an attribute %s", s.GetName(), a.GetKey())
			}
		}
	}
}

// TestTracesAreSampled checks that a client cannot decide whether its request is recorded, neither with the sampling
// flag nor with the trace ID.
func TestTracesAreSampled(t *testing.T) {
	c, env := newTraceCollector(t, "http/protobuf")
	p := procStart(t, append(env, "HOLDFAST_DATA_DIR="+t.TempDir(), "OTEL_TRACES_SAMPLER=parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG=0.1")...)
	const calls = 1000
	for range calls {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.address+"/iam/v2beta1/groups", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+p.dev.Token)
		// A ratio sampler would always choose the lowest possible ID.
		r.Header.Set("Traceparent", "00-00000000000000000000000000000001-00000000000000aa-01")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	p.stop()
	n := 0
	for _, s := range c.spans {
		if s.GetName() == "holdfast.iam.v2beta1.GroupsService/ListGroups" {
			n++
		}
	}
	if n < 50 || n > 200 { // the expected number is 100, with a standard deviation of 9.5
		t.Errorf("%d of %d requests were recorded at a ratio of 0.1", n, calls)
	}
}

// TestCollectorIsDown checks that requests do not wait for an unreachable collector, and that the shutdown waits for
// it only briefly.
func TestCollectorIsDown(t *testing.T) {
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// The HTTP server notices that its client is gone only after the body is read.
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hangs.Close()
	p := procStart(t, "HOLDFAST_DATA_DIR="+t.TempDir(), "OTEL_EXPORTER_OTLP_ENDPOINT="+hangs.URL,
		"OTEL_BSP_MAX_QUEUE_SIZE=16", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=8")
	owner := p.owner()
	defer owner.close()
	for range 100 { // many times more spans than the queue can hold
		procMust[any](t, owner, "GET", "/iam/v2beta1/groups", nil)
	}
	began := time.Now()
	p.stop()
	if took := time.Since(began); took > 14*time.Second {
		t.Errorf("the shutdown took %s", took)
	}
	p.waitLog("spans were lost")
}
