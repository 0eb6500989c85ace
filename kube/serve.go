package main

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// probes serves metrics, and answers the probes of the kubelet.
func probes(metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// serve serves until ctx ends or one of the servers fails. Then it waits for the running requests.
func serve(ctx context.Context, log *slog.Logger, servers []*http.Server) error {
	failed := make(chan error, len(servers))
	for _, s := range servers {
		s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = 5*time.Second, 15*time.Second, 15*time.Second,
			2*time.Minute
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Addr)
		if err != nil {
			return err
		}
		log.Info("listening", "address", l.Addr().String(), "tls", s.TLSConfig != nil)
		go func() {
			if s.TLSConfig != nil {
				failed <- s.ServeTLS(l, "", "")
			} else {
				failed <- s.Serve(l)
			}
		}()
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, s := range servers {
		err = cmp.Or(err, s.Shutdown(end))
	}
	return err
}
