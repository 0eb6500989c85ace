package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-dev/holdfast/api"
	"github.com/holdfast-dev/holdfast/login"
)

const bodyTimeout = time.Minute // longer than any request may take

// routes is everything the one port serves over HTTP. gRPC calls arrive here
// only if a proxy mixes them with other requests on one connection.
func (s *Server) routes() http.Handler {
	mux, gateway := http.NewServeMux(), s.api.HTTP()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("/.well-known/", s.issuer.Handler())
	mux.Handle("/setup", s.withForm(s.setup))
	people := s.withForm(s.login.Handler())
	for _, route := range login.Routes {
		mux.Handle(route, people)
	}
	mux.Handle("/signin/v1/", gateway)
	mux.Handle("GET /docs", s.docs)
	if s.metricsListener == nil {
		mux.Handle("GET /metrics", s.metricsHandler())
	}
	if s.dev != nil {
		mux.Handle(devIssuer+"/", s.requireOwnHost(s.dev))
	}
	mux.Handle("/", gateway)
	s.mixed = s.api.GRPC(maxStreams) // one of its own: to stop the other cuts off what travels over HTTP
	mixed := api.Mixed(s.mixed)
	registry := http.HandlerFunc(s.serveRegistry)
	registryLogin := s.withForm(registry)
	return s.withHSTS(withWriteTimeout(s.withClientAddr(reportPanics(s.log, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && isGRPCContent(r.Header.Get("Content-Type")) {
			mixed.ServeHTTP(w, r)
			return
		}
		if isRegistry(r.URL.Path) { // its uploads take as long as they take
			if r.URL.Path == registryToken {
				registryLogin.ServeHTTP(w, r)
				return
			}
			registry.ServeHTTP(w, r)
			return
		}
		if r.ContentLength != 0 {
			// A body that never ends would hold its handler for ever. A
			// connection that cannot have a deadline has none.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		if !isClean(r.URL.EscapedPath()) { // the mux would send the client elsewhere
			gateway.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))))
}

// reportPanics has the log tell of handlers that panic. The connection is cut,
// as net/http does it, for the answer may have begun.
func reportPanics(log *slog.Logger, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v != http.ErrAbortHandler {
				log.ErrorContext(r.Context(), "panic", "method", r.Method, "path", r.URL.Path, "cause", fmt.Sprint(v), "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler)
		}()
		next(w, r)
	}
}

// isClean tells whether a path has no empty and no dotted segments.
func isClean(escaped string) bool {
	return path.Clean(escaped) == strings.TrimSuffix(escaped, "/") || escaped == "/"
}

// withClientAddr has requests come from whom a trusted proxy speaks for, for all
// that look at where they come from.
func (s *Server) withClientAddr(next http.HandlerFunc) http.Handler {
	if len(s.cfg.TrustedProxies) == 0 {
		return next
	}
	proxies := api.Proxies(s.cfg.TrustedProxies)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := *r
		from.RemoteAddr = net.JoinHostPort(proxies.Client(r.RemoteAddr, r.Header.Values(api.ForwardedFor)), "0")
		next(w, &from)
	})
}

// healthz tells that the process is alive, and nothing of what it depends on:
// a restart would not mend that.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz tells whether requests can be answered, and if not, for lack of what.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	missing := map[string]string{}
	if s.draining.Load() {
		missing["server"] = "shutting down"
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if err := s.store.Ping(ctx); err != nil {
		s.log.WarnContext(r.Context(), "not ready", "err", err)
		missing["database"] = "cannot be reached"
	}
	if len(missing) > 0 {
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "not ready", "missing": missing})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

func (s *Server) metricsHandler() http.Handler {
	return promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{Registry: s.metrics})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that went away has no use for the error
}
