package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/server/installation"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

const controlTimeout = time.Hour // long enough for garbage collection

// openControl opens the control socket. It returns nil if the socket cannot be opened; then the server runs without
// it. The socket must be open before the server accepts requests: otherwise a command that follows the first answer
// finds no server and tries to open the database itself.
func (s *Server) openControl(ctx context.Context) (net.Listener, error) {
	path := s.cfg.ControlSocket()
	// A server that was killed may have left the socket. No other server uses it,
	// because this one holds the lock of the data folder.
	_ = os.Remove(path)
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		s.log.Warn("cannot open the control socket: the commands keys, gc, scrub, blobs, organizations, providers, owners "+
			"and budgets of holdfastd work only while the server is stopped", "err", err)
		return nil, nil
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return l, nil
}

// serveControl accepts commands on the control socket until ctx ends. l may be nil.
func (s *Server) serveControl(ctx context.Context, l net.Listener) error {
	if l == nil {
		<-ctx.Done()
		return nil
	}
	defer func() { _ = os.Remove(s.cfg.ControlSocket()) }() // otherwise the next server removes it
	h := &http.Server{Handler: s.controlHandler(), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { h.Close() })
	return unlessClosed(h.Serve(l))
}

// controlHandler serves the commands and profiles of the process. Profiles reveal too
// much to be served on a port.
func (s *Server) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	for path, run := range commands {
		mux.HandleFunc("POST /"+path, func(w http.ResponseWriter, r *http.Request) {
			args, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4096))
			var out bytes.Buffer
			if err == nil {
				err = run(r.Context(), s, strings.Fields(string(args)), &out)
			}
			if err != nil {
				writeJSON(w, http.StatusBadRequest, map[string]string{"error": fault.From(err).Message})
				return
			}
			w.Write(out.Bytes())
		})
	}
	return mux
}

// perform runs a command in the running server or, if there is none, in this process.
func perform(ctx context.Context, cfg Config, path string, args []string, out io.Writer) error {
	answer, err := send(ctx, cfg, path, args)
	if err == nil {
		_, err = out.Write(answer)
		return err
	}
	if _, away := errors.AsType[*net.OpError](err); !away {
		return err
	}
	if err := installation.Require(ctx, cfg); err != nil {
		return err
	}
	s := &Server{cfg: cfg.At(cfg.ListenAddr()), log: cfg.Logger()}
	defer func() { _ = s.Close() }() // an error of Close does not matter after the command
	for _, step := range []func(context.Context) error{s.open, s.assemble} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return commands[path](ctx, s, args, out)
}

func send(ctx context.Context, cfg Config, path string, args []string) ([]byte, error) {
	client := &http.Client{Timeout: controlTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", cfg.ControlSocket())
		},
	}}
	defer client.CloseIdleConnections()
	body := strings.NewReader(strings.Join(args, " "))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://holdfastd/"+path, body)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode == http.StatusOK {
		return answer, err
	}
	var failure struct{ Error string }
	if json.Unmarshal(answer, &failure) != nil || failure.Error == "" {
		return nil, fmt.Errorf("the server answered %s", resp.Status)
	}
	return nil, errors.New(failure.Error)
}
