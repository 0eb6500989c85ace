package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/server/listen"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-dev/holdfast/console"
	"github.com/holdfast-dev/holdfast/internal/api"
	"github.com/holdfast-dev/holdfast/internal/api/manual"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
)

const bodyTimeout = time.Minute // more time than any request may take

// tokenEndpoint is the only path of the sign-in pages that web apps call.
const tokenEndpoint = "/oauth/token"

// routes returns the HTTP handler of the main port. gRPC calls arrive here only if a
// proxy mixes them with other requests on one connection.
func (s *Server) routes() http.Handler {
	mux, gateway := http.NewServeMux(), s.withCORS(s.withSession(s.api.HTTP()))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("/.well-known/", s.withCORS(s.issuer.Handler()))
	mux.Handle("/setup", s.withForm(s.setup))
	people := s.withForm(s.login.Handler())
	for _, route := range login.Routes {
		mux.Handle(route, people)
	}
	mux.Handle(tokenEndpoint, s.withCORS(people))
	mux.Handle("/signin/v1/", gateway)
	mux.Handle(scim.Prefix, s.scim.Handler())
	mux.Handle("GET /docs", s.docs)
	mux.Handle("GET "+manual.Prefix, s.docs)
	mux.Handle("/console/", console.Handler())
	mux.Handle("GET /console", http.RedirectHandler("/console/", http.StatusMovedPermanently))
	if s.dev != nil {
		mux.Handle(devIssuer+"/", s.requireOwnHost(s.dev))
	}
	readOnly := []string{"/healthz", "/readyz", "/docs", manual.Prefix, "/console"}
	if s.cfg.MetricsPublic || s.cfg.Dev { // dev mode gives an owner's token to everybody who can connect
		mux.Handle("GET /metrics", s.metricsHandler())
		readOnly = append(readOnly, "/metrics")
	}
	for _, path := range readOnly {
		mux.HandleFunc(path, s.refuseMethod)
	}
	mux.Handle("/", s.withPages(gateway))
	s.mixed = s.api.GRPC(listen.MaxStreams) // a server of its own, because stopping it aborts requests over HTTP
	mixed := api.Mixed(s.mixed)
	registry := http.HandlerFunc(s.serveRegistry)
	registryLogin := s.withForm(registry)
	split := func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && listen.IsGRPC(r.Header.Get("Content-Type")) {
			mixed.ServeHTTP(w, r)
			return
		}
		if isRegistry(r.URL.Path) { // uploads to the registry have no time limit
			if r.URL.Path == registryToken {
				registryLogin.ServeHTTP(w, r)
				return
			}
			registry.ServeHTTP(w, r)
			return
		}
		if r.ContentLength != 0 {
			// A body without an end would block its handler forever. The error is
			// ignored, because some connections do not support deadlines.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		if !isClean(r.URL.EscapedPath()) { // the mux would redirect the client
			gateway.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}
	return s.withDrain(s.withHSTS(listen.WithWriteTimeout(s.withClientAddr(reportPanics(s.log, split)))))
}

// refuseMethod answers a request to a path that supports only GET and HEAD.
func (s *Server) refuseMethod(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", "GET, HEAD")
	f := fault.New(fault.Unimplemented, "Unimplemented: this path takes GET, HEAD")
	writeFaultAs(w, http.StatusMethodNotAllowed, f, s.cfg.ErrorDomain)
}

// withDrain asks clients to reconnect while the server shuts down, so that they reach
// another replica. For HTTP/2, net/http sends a GOAWAY frame.
func (s *Server) withDrain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// reportPanics logs panics of handlers. The connection is aborted, because the
// response may have begun.
func reportPanics(log *slog.Logger, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v != http.ErrAbortHandler {
				log.ErrorContext(r.Context(), "panic", "method", r.Method, "path", r.URL.Path,
					"cause", fmt.Sprint(v), "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler)
		}()
		next(w, r)
	}
}

// isClean reports whether a path has no empty and no dot segments.
func isClean(escaped string) bool {
	return path.Clean(escaped) == strings.TrimSuffix(escaped, "/") || escaped == "/"
}

// withClientAddr sets RemoteAddr to the client that a trusted proxy names.
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

// healthz reports that the process is alive. It does not check its dependencies,
// because a restart would not repair them.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz reports whether requests can be served, and otherwise the missing
// dependencies.
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
