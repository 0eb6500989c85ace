package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/registry/mirror"
	"github.com/holdfast-dev/holdfast/internal/registry/replication"
	"github.com/holdfast-dev/holdfast/internal/registry/upkeep"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

const (
	registryToken = "/v2/token" // path at which clients of the registry log in
	// firstCollect is the delay of the first run after a start. It is short, so that
	// frequent restarts do not postpone the run forever.
	firstCollect = time.Minute
)

// tryBlobs writes to the folder of blobs and removes the file, so that a folder that
// is not writable is reported at the start and not by the first push.
func tryBlobs(cfg Config) error {
	if config.IsBucket(cfg.Blobs) {
		return nil
	}
	err := os.MkdirAll(cfg.Blobs, 0o700)
	var f *os.File
	if err == nil {
		f, err = os.CreateTemp(cfg.Blobs, ".try-*")
	}
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return fmt.Errorf("cannot write to the folder of blobs: %w", err)
	}
	return nil
}

// openRegistry builds the registry.
func (s *Server) openRegistry(ctx context.Context) error {
	if err := tryBlobs(s.cfg); err != nil {
		return err
	}
	blobs, err := s.cfg.Storage()
	if err != nil {
		return err
	}
	trusted, err := s.cfg.ReadTrustedRoot()
	if err != nil {
		return err
	}
	realm := "http://"
	if u, err := url.Parse(s.cfg.BaseURL); err == nil {
		realm = u.Scheme + "://"
	}
	out, err := s.cfg.Outbound()
	if err != nil {
		return err
	}
	out.PerHost = mirror.MaxFetches
	pushes := out
	// A registry may take long to store a large blob after it has received the bytes. No copy waits for the connection of
	// another one.
	pushes.Timeout, pushes.PerHost = time.Minute, replication.MaxCopies
	s.registry = assembly.New(s.store, s.checker, s.issuer, blobs, assembly.Config{
		Host: s.cfg.RegistryHost, Realm: realm + s.cfg.RegistryHost + registryToken,
		Assume: s.assumeForRegistry, AssumeIn: s.assumeInOrganization,
		Admit: s.budgets.Admit, CountPull: s.budgets.Pull, NewGate: s.newGate,
		KeepTrash: s.cfg.KeepTrash, KeepPulls: s.cfg.KeepPulls, Sparse: s.cfg.SparseImages, Redirect: s.cfg.BlobRedirect,
		Upstreams: upstream.New(upstream.Config{Outbound: out, Now: s.cfg.Now, MinRate: int64(s.cfg.UpstreamRate)}),
		Targets:   upstream.New(upstream.Config{Outbound: pushes, Now: s.cfg.Now, MinRate: int64(s.cfg.UpstreamRate)}),
		Outbound:  out, Key: s.key,
		Dir: s.cfg.DataDir, IdentityNames: s.iam.IdentityNames,
		TrustedRoot: trusted, Metrics: s.counts, Refusals: s.refusals, Log: s.log, Now: s.cfg.Now,
	})
	s.registryRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_registry_requests_total", Help: "Requests to the registry, by method and status.",
	}, []string{"method", "status"})
	s.metrics.MustRegister(s.registryRequests)
	return nil
}

// assumeForRegistry exchanges the token of a workload for a token with the registry's
// audience. Pull tokens log in this way.
func (s *Server) assumeForRegistry(ctx context.Context, identity resource.UID, credential string) (string, error) {
	t, err := s.sts.Exchange(ctx, sts.Request{
		TokenParams: sts.TokenParams{Audience: []string{s.cfg.RegistryHost}},
		Identity:    string(identity), Bearer: credential,
	})
	return t.Text, err
}

// assumeInOrganization is assumeForRegistry for the identity of an organization that trusts the credential.
func (s *Server) assumeInOrganization(ctx context.Context, organization, credential string) (string, error) {
	found, err := s.store.FindByPath(ctx, "groups", []string{organization}, 1)
	if err != nil {
		return "", err
	}
	if len(found) == 0 { // the exchange does the same work, and finds no identity
		found = append(found, resource.DerivedUID("no organization "+organization))
	}
	t, err := s.sts.Exchange(ctx, sts.Request{
		TokenParams:  sts.TokenParams{Audience: []string{s.cfg.RegistryHost}},
		Organization: found[0], Bearer: credential,
	})
	return t.Text, err
}

// collection returns the parameters of garbage collection.
func collection(cfg Config) upkeep.Collection {
	return upkeep.Collection{Grace: cfg.GCGrace, KeepPulls: cfg.KeepPulls, KeepMoves: cfg.KeepTagHistory}
}

// retain applies the retention rules that are due.
func (s *Server) retain(ctx context.Context) {
	images, err := s.registry.Retention.Run(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.log.WarnContext(ctx, "cannot apply retention", "err", err)
	case images > 0:
		s.log.InfoContext(ctx, "applied retention", "images", images)
	}
}

// collect applies retention and collects garbage periodically until ctx ends.
func (s *Server) collect(ctx context.Context) error {
	if s.cfg.GCInterval < 0 {
		return nil
	}
	wait := min(firstCollect, s.cfg.GCInterval)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = s.cfg.GCInterval
		s.retain(ctx)
		removed, err := s.registry.Collect(ctx, collection(s.cfg))
		s.recordCollection(removed, err)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.log.WarnContext(ctx, "cannot collect garbage", "err", err)
		case removed != upkeep.Collected{}:
			s.log.InfoContext(ctx, "collected garbage", "took", removed)
		}
	}
}

// serveRegistry serves a request to the registry and counts it.
func (s *Server) serveRegistry(w http.ResponseWriter, r *http.Request) {
	counted := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	start := time.Now()
	ctx, span := trace.Begin(r.Context(), "registry", r.Header.Get(trace.Header))
	defer span.End(nil)
	if ctx != r.Context() {
		r = r.WithContext(ctx)
	}
	body := &countedBody{ReadCloser: r.Body}
	traced := *r
	traced.Body = body
	s.registry.ServeHTTP(counted, &traced)
	s.counts.Bytes.Add(counted.sent, metric.Sent)
	s.counts.Bytes.Add(body.received, metric.Received)
	span.SetInt("http.response.status_code", counted.status)
	method := r.Method
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		method = "other"
	}
	s.registryRequests.WithLabelValues(method, strconv.Itoa(counted.status)).Inc()
	s.log.DebugContext(r.Context(), "registry", "method", r.Method, "path", r.URL.Path,
		"status", counted.status, "took", time.Since(start).String())
}

// isRegistry reports whether a path belongs to the registry. It is checked
// before the mux, which would redirect paths with dots.
func isRegistry(path string) bool { return path == "/v2" || strings.HasPrefix(path, "/v2/") }

// A countedBody counts the bytes of a request.
type countedBody struct {
	io.ReadCloser
	received int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.received += int64(n)
	return n, err
}

// A statusWriter records the status of a response and the size of its body.
type statusWriter struct {
	http.ResponseWriter
	status int
	sent   int64
}

func (w *statusWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.sent += int64(n)
	return n, err
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// ReadFrom implements io.ReaderFrom, so that the kernel can send files.
func (w *statusWriter) ReadFrom(body io.Reader) (int64, error) {
	n, err := io.Copy(w.ResponseWriter, body)
	w.sent += n
	return n, err
}

// Unwrap returns the underlying writer, for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
