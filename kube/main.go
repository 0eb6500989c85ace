// Command holdfast-kube checks in a Kubernetes cluster whether the rules of Holdfast refuse the images of new pods and
// workloads. See docs/kubernetes-admission.md.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
	"github.com/holdfast-dev/holdfast/kube/admission"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(buildinfo.Version())
		return
	}
	err := run(ctx, os.Args[1:], os.Getenv, log)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holdfast-kube:", err)
		os.Exit(1)
	}
}

// options are the settings of the program.
type options struct {
	server, identity, tokenFile, ca string
	registries, platforms           texts
	listen, metrics                 string
	certFile, keyFile               string
	keep                            time.Duration
	rules                           admission.Rules
}

// texts is a flag that can be repeated.
type texts []string

func (t *texts) String() string { return strings.Join(*t, ",") }

func (t *texts) Set(text string) error {
	*t = append(*t, text)
	return nil
}

// parse reads the settings from arguments and the environment.
func parse(args []string, getenv func(string) string) (*options, error) {
	o := &options{rules: admission.Rules{
		Others: map[string]admission.Action{}, Unknown: admission.Warn, Unreachable: admission.Refuse,
	}}
	f := flag.NewFlagSet("holdfast-kube", flag.ContinueOnError)
	f.StringVar(&o.server, "server", getenv("HOLDFAST_SERVER"), "`address` of Holdfast; the default is HOLDFAST_SERVER")
	f.StringVar(&o.identity, "identity", getenv("HOLDFAST_IDENTITY"), "`uid` of the identity of the cluster; the default "+
		"is HOLDFAST_IDENTITY")
	f.StringVar(&o.tokenFile, "token-file", "/var/run/secrets/holdfast/token", "`file` with the token of "+
		"the service account")
	f.StringVar(&o.ca, "ca", getenv("HOLDFAST_CA"), "`file` with certificate authorities for the server, in PEM")
	f.Var(&o.registries, "registry", "`host` of the registry in the names of images; can be repeated for other names of "+
		"the same registry; the default is the host of the server")
	f.Var(&o.platforms, "platform", "`platform` of the nodes, such as linux/amd64; can be repeated; the default is all "+
		"platforms of an image")
	f.StringVar(&o.listen, "listen", ":8443", "`address` for the API server")
	f.StringVar(&o.metrics, "metrics", ":8080", "`address` for /metrics, /healthz and /readyz")
	f.StringVar(&o.certFile, "tls-cert", "/etc/holdfast-kube/tls.crt", "`file` with the certificate; a new one is "+
		"used within ten seconds")
	f.StringVar(&o.keyFile, "tls-key", "/etc/holdfast-kube/tls.key", "`file` with the key of the certificate")
	f.DurationVar(&o.keep, "keep", 10*time.Minute, "how long the last decisions are used while Holdfast does not answer")
	action := func(to *admission.Action) func(string) error {
		return func(text string) (err error) {
			*to, err = admission.ParseAction(text)
			return err
		}
	}
	f.Func("unknown", "`action` for images that do not exist or that the cluster may not pull: allow, warn (the default) "+
		"or refuse", action(&o.rules.Unknown))
	f.Func("unreachable", "`action` while Holdfast does not answer, for images without a kept decision: allow, warn or "+
		"refuse (the default)", action(&o.rules.Unreachable))
	f.Func("other", "`prefix=action` for images of other registries, such as docker.io/library/=warn; the longest prefix "+
		"applies; =refuse applies to all; the default is allow; can be repeated", func(text string) error {
		prefix, name, _ := strings.Cut(text, "=")
		a, err := admission.ParseAction(name)
		o.rules.Others[prefix] = a
		return err
	})
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, o.complete()
}

// complete checks the settings and adds defaults.
func (o *options) complete() error {
	u, err := url.Parse(o.server)
	switch {
	case o.server == "" || err != nil || u.Host == "":
		return errors.New("--server must be the address of Holdfast, such as https://holdfast.example.com")
	case o.keep < 0 || o.keep > 24*time.Hour:
		return errors.New("--keep must be between 0 and 24h")
	}
	if len(o.registries) == 0 {
		o.registries = texts{u.Host}
	}
	for i, host := range o.registries {
		o.registries[i] = strings.TrimSuffix(strings.ToLower(host), ":443")
	}
	return nil
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, log *slog.Logger) error {
	o, err := parse(args, getenv)
	if err != nil {
		return err
	}
	conn, err := client.Dial(client.Config{
		Address: o.server, CAFile: o.ca, UserAgent: "holdfast-kube", Timeout: 5 * time.Second,
		Credential: client.Workload{Identity: o.identity, Proof: client.File(o.tokenFile)},
		Options: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		})},
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	certificate := &certificate{certFile: o.certFile, keyFile: o.keyFile, log: log}
	if _, err := certificate.get(nil); err != nil {
		return err
	}
	metrics := prometheus.NewRegistry()
	handler := admission.NewHandler(admission.NewAsker(conn, o.platforms, o.keep), admission.Config{
		Hosts: o.registries, Rules: o.rules, Log: log, Registry: metrics,
	})
	plain := http.NewServeMux()
	plain.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	plain.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	plain.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	return serve(ctx, log, []*http.Server{
		limited(&http.Server{Addr: o.listen, Handler: handler, TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: certificate.get,
		}}),
		limited(&http.Server{Addr: o.metrics, Handler: plain}),
	})
}

// limited sets the time limits of a server.
func limited(s *http.Server) *http.Server {
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = 5*time.Second, 15*time.Second, 15*time.Second,
		2*time.Minute
	return s
}

// serve runs servers until ctx ends or one of them fails. Then it waits for the running requests.
func serve(ctx context.Context, log *slog.Logger, servers []*http.Server) error {
	failed := make(chan error, len(servers))
	for _, s := range servers {
		l, err := net.Listen("tcp", s.Addr)
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
