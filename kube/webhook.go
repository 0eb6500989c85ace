package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-dev/holdfast/kube/admission"
)

// webhook are the settings of the webhook.
type webhook struct {
	connection
	registries, platforms     texts
	listen, certFile, keyFile string
	keep                      time.Duration
	rules                     admission.Rules
}

// texts is a flag that can be repeated.
type texts []string

func (t *texts) String() string { return strings.Join(*t, ",") }

func (t *texts) Set(text string) error {
	*t = append(*t, text)
	return nil
}

// parseWebhook reads the settings from arguments and the environment.
func parseWebhook(args []string, getenv func(string) string) (*webhook, error) {
	w := &webhook{}
	f := flag.NewFlagSet("holdfast-kube", flag.ContinueOnError)
	w.connection.add(f, getenv)
	f.Var(&w.registries, "registry", "`host` of the registry in the names of images; can be repeated for other names of "+
		"the same registry; the default is the host of the server")
	f.Var(&w.platforms, "platform", "`platform` of the nodes, such as linux/amd64; can be repeated; the default is all "+
		"platforms of an image")
	f.StringVar(&w.listen, "listen", ":8443", "`address` for the API server")
	f.StringVar(&w.certFile, "tls-cert", "/etc/holdfast-kube/tls.crt", "`file` with the certificate; a new one is "+
		"used within ten seconds")
	f.StringVar(&w.keyFile, "tls-key", "/etc/holdfast-kube/tls.key", "`file` with the key of the certificate")
	f.DurationVar(&w.keep, "keep", 10*time.Minute, "how long the last decisions are used while Holdfast does not answer")
	addRules(f, &w.rules)
	host, err := w.connection.parse(f, args)
	if err != nil {
		return nil, err
	}
	if w.keep < 0 || w.keep > 24*time.Hour {
		return nil, errors.New("--keep must be between 0 and 24h")
	}
	if len(w.registries) == 0 {
		w.registries = texts{host}
	}
	for i, host := range w.registries {
		w.registries[i] = strings.TrimSuffix(strings.ToLower(host), ":443")
	}
	return w, nil
}

// addRules adds the flags for images about which Holdfast decides nothing, and sets their defaults.
func addRules(f *flag.FlagSet, r *admission.Rules) {
	*r = admission.Rules{
		Others: map[string]admission.Action{}, Unknown: admission.Warn, Unreachable: admission.Refuse,
	}
	action := func(to *admission.Action) func(string) error {
		return func(text string) (err error) {
			*to, err = admission.ParseAction(text)
			return err
		}
	}
	f.Func("unknown", "`action` for images that do not exist or that the cluster may not pull: allow, warn (the default) "+
		"or refuse", action(&r.Unknown))
	f.Func("unreachable", "`action` while Holdfast does not answer, for images without a kept decision: allow, warn or "+
		"refuse (the default)", action(&r.Unreachable))
	f.Func("other", "`prefix=action` for images of other registries, such as docker.io/library/=warn; the longest prefix "+
		"applies; =refuse applies to all; the default is allow; can be repeated", func(text string) error {
		prefix, name, _ := strings.Cut(text, "=")
		a, err := admission.ParseAction(name)
		r.Others[prefix] = a
		return err
	})
}

// runAdmission answers the API server until ctx ends.
func runAdmission(ctx context.Context, args []string, getenv func(string) string, log *slog.Logger) error {
	w, err := parseWebhook(args, getenv)
	if err != nil {
		return err
	}
	conn, err := w.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	certificate := &certificate{certFile: w.certFile, keyFile: w.keyFile, log: log}
	if _, err := certificate.get(nil); err != nil {
		return err
	}
	metrics := prometheus.NewRegistry()
	handler := admission.NewHandler(admission.NewAsker(conn, w.platforms, w.keep), admission.Config{
		Hosts: w.registries, Rules: w.rules, Log: log, Registry: metrics,
	})
	return serve(ctx, log, []*http.Server{
		{Addr: w.listen, Handler: handler, TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: certificate.get,
		}},
		{Addr: w.metrics, Handler: probes(metrics)},
	})
}
