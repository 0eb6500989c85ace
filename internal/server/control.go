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
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// controlSocket is where a server accepts commands from the owner of its data
// folder, because a second process cannot open its SQLite database.
const (
	controlSocket  = "control.sock"
	controlTimeout = time.Hour // collecting garbage may take long
)

func (c Config) controlSocket() string { return filepath.Join(c.DataDir, controlSocket) }

// serveControl accepts commands until ctx ends. If the socket cannot be opened
// the server runs without it.
func (s *Server) serveControl(ctx context.Context) error {
	path := s.cfg.controlSocket()
	_ = os.Remove(path) // left by a server that was killed: the lock of the data folder shows that none runs
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		s.log.Warn("no control socket: holdfastd keys, gc, scrub, blobs, organizations, providers, owners and budgets "+
			"must be used while the server is stopped", "err", err)
		<-ctx.Done()
		return nil
	}
	defer func() { _ = os.Remove(path) }() // the next server removes it otherwise
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return fmt.Errorf("control socket: %w", err)
	}
	h := &http.Server{Handler: s.controlHandler(), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { h.Close() })
	return unlessClosed(h.Serve(l))
}

// controlHandler serves the commands, and profiles of the process, which reveal too
// much for any port.
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

// A command is an operation of the operator, run by the server or, if none
// runs, by another process in its place.
type command func(ctx context.Context, s *Server, args []string, out io.Writer) error

var commands = map[string]command{
	"keys/list":   listKeys,
	"keys/rotate": rotateKeys,
	"keys/drop":   dropKey,
	"gc":          collectGarbage,
	"blobs/check": checkBlob,

	"organizations/verify":   verifyOrganization(true),
	"organizations/unverify": verifyOrganization(false),

	"providers/trust":   trustProvider(true),
	"providers/untrust": trustProvider(false),

	"owners/recover": recoverOwner,

	"budgets/set":  setBudget,
	"budgets/show": showBudget,
}

// findCommand returns the command that words name, and its arguments.
func findCommand(words []string) (path string, args []string, ok bool) {
	for n := min(len(words), 2); n > 0; n-- {
		path := strings.Join(words[:n], "/")
		if _, ok := commands[path]; ok {
			return path, words[n:], true
		}
	}
	return "", nil, false
}

// RunCommand runs the command that words name: in the server that runs on the
// data folder of cfg or, if there is none, in this process.
func RunCommand(ctx context.Context, cfg Config, words []string, out io.Writer) error {
	if len(words) > 0 {
		if run, ok := ownCommands[words[0]]; ok {
			return run(ctx, cfg.withDefaults(), words[1:], out)
		}
	}
	if slices.Equal(words[:min(len(words), 2)], []string{"keys", "reset"}) {
		return resetKeys(ctx, cfg.withDefaults(), words[2:], out)
	}
	path, args, ok := findCommand(words)
	if !ok {
		return fmt.Errorf("there is no command %s; see holdfastd --help", strings.Join(words, " "))
	}
	return perform(ctx, cfg.withDefaults(), path, args, out)
}

// perform runs a command in the server or, if there is none, in this process.
func perform(ctx context.Context, cfg Config, path string, args []string, out io.Writer) error {
	answer, err := send(ctx, cfg, path, args)
	if err == nil {
		_, err = out.Write(answer)
		return err
	}
	if _, away := errors.AsType[*net.OpError](err); !away {
		return err
	}
	if err := cfg.requireInstallation(ctx); err != nil {
		return err
	}
	s := &Server{cfg: cfg.at(cfg.listenAddr()), log: newLogger(cfg.Stderr, cfg.LogLevel)}
	defer func() { _ = s.Close() }() // the command has ended
	for _, step := range []func(context.Context) error{s.open, s.assemble} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return commands[path](ctx, s, args, out)
}

// listenAddr returns the address that a server with these settings binds, so
// that links lead there.
func (c Config) listenAddr() net.Addr {
	if addr, err := net.ResolveTCPAddr("tcp", c.Listen); err == nil {
		return addr
	}
	return &net.TCPAddr{}
}

func send(ctx context.Context, cfg Config, path string, args []string) ([]byte, error) {
	client := &http.Client{Timeout: controlTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", cfg.controlSocket())
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

func listKeys(ctx context.Context, s *Server, _ []string, out io.Writer) error {
	keys, err := s.issuer.Keys(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tALGORITHM\tCREATED\tSIGNS")
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%s\t%v\n", k.ID, k.Algorithm, k.CreateTime.UTC().Format(time.RFC3339), k.Signs)
	}
	return w.Flush()
}

func rotateKeys(ctx context.Context, s *Server, _ []string, out io.Writer) error {
	id, err := s.issuer.Rotate(ctx)
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "made a new signing key", "key", id)
	fmt.Fprintln(out, id)
	return nil
}

func dropKey(ctx context.Context, s *Server, args []string, out io.Writer) error {
	if len(args) != 1 {
		return fault.Field("ID", "name one key")
	}
	if err := s.issuer.Drop(ctx, args[0]); err != nil {
		return err
	}
	s.log.WarnContext(ctx, "dropped a signing key; what it has signed is void", "key", args[0])
	fmt.Fprintln(out, args[0])
	return nil
}

// collectGarbage removes what the registry no longer needs, and writes what
// that was. A dry run removes nothing.
func collectGarbage(ctx context.Context, s *Server, args []string, out io.Writer) error {
	c := s.cfg.collection()
	c.DryRun = slices.Equal(args, []string{"dry-run"})
	if len(args) > 0 && !c.DryRun {
		return fault.Field("arguments", "there are none but --dry-run")
	}
	removed, err := s.registry.Collect(ctx, c)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(removed)
}

// verifyOrganization records whether the organization of a name or uid is
// verified, and writes its uid.
func verifyOrganization(verified bool) command {
	return func(ctx context.Context, s *Server, args []string, out io.Writer) error {
		name := strings.Join(args, " ")
		if name == "" {
			return fault.Field("organization", "name one")
		}
		uid, err := resource.ParseUID("organization", name)
		if err != nil {
			org, err := iamdb.New(s.store).Organization(ctx, name)
			if err != nil {
				return err
			}
			uid = org.UID
		}
		g, err := s.iam.Verify(ctx, uid, verified)
		if err != nil {
			return err
		}
		s.log.InfoContext(ctx, "noted whether an organization is verified",
			"organization", g.UID, "verified", g.Verified)
		fmt.Fprintln(out, g.UID)
		return nil
	}
}

// trustProvider records whether an identity provider speaks for its issuer to
// the whole installation, and writes its uid and issuer.
func trustProvider(trusted bool) command {
	return func(ctx context.Context, s *Server, args []string, out io.Writer) error {
		uid, err := resource.ParseUID("provider", strings.Join(args, " "))
		if err != nil {
			return err
		}
		p, err := s.iam.TrustProvider(ctx, uid, trusted)
		if err != nil {
			return err
		}
		s.log.InfoContext(ctx, "noted whether an identity provider is trusted",
			"provider", p.UID, "issuer", p.OIDC.Issuer, "trusted", p.Trusted)
		fmt.Fprintln(out, p.UID, p.OIDC.Issuer)
		return nil
	}
}
