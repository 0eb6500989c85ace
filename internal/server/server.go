// Package server builds every part of the service from the settings and connects
// them. It is the only package that imports all others.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/holdfast-dev/holdfast/docs"
	"github.com/holdfast-dev/holdfast/gen/openapi"
	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/access/budget"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/iamdb"
	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/api"
	"github.com/holdfast-dev/holdfast/internal/api/manual"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/ops/organization"
	"github.com/holdfast-dev/holdfast/internal/ops/search"
	"github.com/holdfast-dev/holdfast/internal/ops/status"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
	"github.com/holdfast-dev/holdfast/internal/platform/mail"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/platform/trace"
	"github.com/holdfast-dev/holdfast/internal/registry/assembly"
	"github.com/holdfast-dev/holdfast/internal/server/config"
	"github.com/holdfast-dev/holdfast/internal/server/installation"
	"github.com/holdfast-dev/holdfast/internal/server/listen"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/store/schema"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/advisorydb"
	"github.com/holdfast-dev/holdfast/internal/vuln/indexer"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/match"
	"github.com/holdfast-dev/holdfast/internal/vuln/policy"
	"github.com/holdfast-dev/holdfast/internal/vuln/report"
	"github.com/holdfast-dev/holdfast/internal/vuln/trend"
)

// A Config has the settings of a Server.
type Config = config.Config

// A Server is the whole service.
type Server struct {
	cfg      Config
	log      *slog.Logger
	key      secret.Key
	store    *store.DB
	checker  *authz.Checker
	mixed    *grpc.Server // serves gRPC calls that a proxy mixes with other requests
	issuer   *token.Issuer
	client   *http.Client // client for addresses that tenants choose
	sts      *sts.Service
	login    *login.Service
	accounts *accounts.Service
	scim     *scim.Service
	iam      *iam.Service
	advisory *advisory.Service
	events   *event.Dispatcher
	mail     *mail.Queue // nil without a mail server
	api      *api.API

	registry         *assembly.Registry
	advisories       *advisorydb.Store
	indexer          *indexer.Indexer
	matcher          *match.Matcher
	trends           *trend.Service
	gate             *policy.Gate
	reports          *report.Mailer
	budgets          *budget.Service
	refusals         *denials.Recorder
	operator         *status.Service
	collected        atomic.Pointer[status.Collection] // last garbage collection; nil before the first
	registryRequests *prometheus.CounterVec

	metrics *prometheus.Registry
	states  *states
	started time.Time
	counts  metric.Metrics
	docs    http.Handler
	setup   *setup
	dev     http.Handler // nil outside dev mode

	listener        net.Listener
	certificate     *listen.Certificate // nil without TLS
	metricsListener net.Listener        // nil if the metrics have no port of their own
	endTraces       func()              // stops tracing; nil before tracing starts
	draining        atomic.Bool
	forms           *listen.AddrCounter // forms that are being read, by address
}

// New builds a server and binds its address. Clients that connect wait until Run is
// called. The caller must call Run or Close.
func New(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger(), forms: listen.NewAddrCounter(maxForms)}
	for _, step := range []func(context.Context) error{
		s.checkKernel, s.beginTraces, s.bind, s.open, s.assemble, s.prepare,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// checkKernel warns if the kernel does not have Landlock, or returns an error if the
// settings require it. Landlock matters only to the process that reads images.
func (s *Server) checkKernel(context.Context) error {
	if s.cfg.InspectWorkers < 0 || inspect.Landlock() {
		return nil
	}
	if s.cfg.NeedLandlock {
		return errors.New("this kernel does not have Landlock, or a container does not allow it, and require_landlock " +
			"is set: use a kernel with Landlock, or set inspect_workers to -1, so that no image is read")
	}
	s.log.Warn("this kernel does not have Landlock, or a container does not allow it: a bug in a parser of packages " +
		"would let a hostile image read the files of the server; see docs/findings.md, and require_landlock")
	return nil
}

// beginTraces starts to send traces if the environment names a collector.
func (s *Server) beginTraces(ctx context.Context) (err error) {
	s.endTraces, err = trace.Open(ctx, s.log, buildinfo.Version())
	return err
}

// bind binds the addresses and completes the settings that depend on them.
func (s *Server) bind(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return err
	}
	l = listen.Limit(l, s.cfg.MaxConnectionsPerAddress, api.Proxies(s.cfg.TrustedProxies), s.log)
	s.listener = l
	s.cfg = s.cfg.At(l.Addr())
	if s.listener, s.certificate, err = listen.WithTLS(l, s.cfg.TLSCert, s.cfg.TLSKey, s.log); err != nil {
		s.listener = l
		return err
	}
	if s.cfg.IsPlaintext() {
		s.log.Warn("passwords and tokens cross the network unencrypted: set tls_cert and tls_key, "+
			"or put a proxy with TLS in front and set base_url to its https:// address", "listen", s.cfg.Listen)
	}
	if s.cfg.MetricsListen == "" {
		return nil
	}
	if s.metricsListener, err = lc.Listen(ctx, "tcp", s.cfg.MetricsListen); err != nil {
		return err
	}
	s.log.Info("serving metrics", "address", s.metricsListener.Addr().String())
	return nil
}

// open opens the encryption key and the database.
func (s *Server) open(ctx context.Context) (err error) {
	if err := installation.MakeDataDir(s.cfg, s.log); err != nil {
		return err
	}
	if s.store, err = store.Open(ctx, s.cfg.Database); err != nil {
		return err
	}
	s.store.Now, s.store.Log, s.store.BeforeWrite = s.cfg.Now, s.log, s.cfg.BeforeWrite
	s.store.KeepNames, s.store.DefaultLimits = s.cfg.KeepNames, s.cfg.DefaultLimits()
	if err := installation.CheckKeyFile(ctx, s.cfg, s.store); err != nil {
		return err
	}
	if s.key, err = installation.Key(s.cfg, s.log); err != nil {
		return err
	}
	return iamdb.New(s.store).SetManagedRoles(ctx, authz.ManagedRoles())
}

// assemble builds the services and the API.
func (s *Server) assemble(ctx context.Context) (err error) {
	s.openMetrics()
	if s.checker, err = authz.Load(ctx, s.store, s.log); err != nil {
		return err
	}
	s.checker.Issuer = s.cfg.AuthURL
	s.checker.RecordUses(true)
	s.issuer, err = token.New(ctx, s.store, token.Config{
		Issuer: s.cfg.AuthURL, Key: s.key, Rotation: s.cfg.KeyRotation, Lookups: s.counts.Cache("tokens"), Now: s.cfg.Now,
		Audiences: []string{s.cfg.BaseURL, s.cfg.RegistryHost}, Algorithm: s.cfg.SigningAlgorithm,
	})
	if err != nil {
		return err
	}
	if err := s.openFederation(); err != nil {
		return err
	}
	if err := s.openMail(ctx); err != nil {
		return err
	}
	tokens := page.NewTokens(s.key.Derive("page tokens"), s.cfg.Now)
	withOlder := func() bool { return s.store.OldestReplica() <= schema.First } // version 0.1
	tokens.WithOlder = withOlder
	s.iam = iam.New(s.store, s.checker, tokens, iam.Config{
		CreateOrganizations: s.cfg.CreateOrganizations, Key: s.key, Mail: s.mail, Now: s.cfg.Now,
		KeepHistory: s.cfg.KeepAccessHistory, LongCodes: withOlder,
	})
	s.refusals = denials.New(s.store, s.log)
	s.accounts = accounts.New(s.store, s.checker, tokens, accounts.Config{
		Issuer: s.cfg.AuthURL, Mail: s.mail, Log: s.log, Now: s.cfg.Now,
	})
	s.login, err = login.New(s.store, s.checker, s.sts, s.accounts, login.Config{
		Issuer: s.cfg.AuthURL, BaseURL: s.cfg.BaseURL, Key: s.key, Client: s.client,
		SessionIdle: s.cfg.SessionIdle, SessionLife: s.cfg.SessionLife, PollEvery: pollEvery(s.cfg),
		Mail: s.mail, Metrics: s.counts, Refusals: s.refusals, Log: s.log, Now: s.cfg.Now,
	})
	if err != nil {
		return err
	}
	s.scim = scim.New(s.store, s.checker, scim.Config{BaseURL: s.cfg.BaseURL, Log: s.log, Now: s.cfg.Now,
		Operator: func(ctx context.Context) bool { return s.operator.Is(ctx) }})
	s.openBudgets(tokens)
	if err := s.openRegistry(ctx); err != nil {
		return err
	}
	images := s.registry.Metadata(tokens)
	s.advisories = advisorydb.New(s.store)
	if s.advisory, err = s.openAdvisories(tokens); err != nil {
		return err
	}
	findings := s.openFindings(images, tokens)
	events, err := s.openEvents(tokens)
	if err != nil {
		return err
	}
	searches := search.New(s.store, s.checker, search.Sources{
		IAM: s.iam, Registry: images, Advisory: s.advisory, Findings: findings.Findings, Events: events,
	})
	s.operator = status.New(s.store, s.issuer, s.state, s.cfg.Operators)
	simulations := simulation.New(s.store, s.checker, s.iam, simulation.Config{Now: s.cfg.Now, Pulls: images})
	s.api = api.New(api.Services{
		IAM: s.iam, Simulation: simulations, Budgets: s.budgets, Registry: images, STS: s.sts,
		Advisory: s.advisory, Login: s.login, Accounts: s.accounts, Events: events,
		Findings: findings.Findings, Policy: findings.Policy, Images: findings.Images,
		Blast: findings.Blast, Inventory: findings.Inventory, Trends: findings.Trends, Reports: findings.Reports,
		Search: searches, Operator: s.operator, Directories: s.scim,
		Organization: organization.New(s.store, s.checker, s.iam, simulations, events, s.key),
	}, s.issuer, s.checker, api.Config{
		Audience: s.cfg.BaseURL, Domain: s.cfg.ErrorDomain, Log: s.log, Metrics: s.metrics, Counters: s.counts,
		MaxBody: int64(s.cfg.MaxBody), Version: buildinfo.Version(), Dir: s.cfg.DataDir,
		Events: wire.EventNames(s.cfg.InteropEvents()), Proxies: api.Proxies(s.cfg.TrustedProxies),
		Admit: s.budgets.Admit, Tenant: s.checker.TenantOf,
	})
	s.docs = manual.Handler(docs.Files, openapi.Document)
	return nil
}

// prepare creates the first organization, or a way to create it.
func (s *Server) prepare(ctx context.Context) error {
	s.setup = &setup{s: s}
	if s.cfg.Dev {
		return s.prepareDev(ctx)
	}
	return s.setup.prepare(ctx)
}

// Addr returns the bound address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx is done. Then it drains and closes everything.
func (s *Server) Run(ctx context.Context) error {
	control, err := s.openControl(ctx)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	serving, served := context.WithCancel(context.WithoutCancel(ctx)) // ends after the last request
	defer served()
	group.Go(func() error { return s.serveControl(serving, control) })
	split, routes := listen.NewSplitter(s.listener, api.Proxies(s.cfg.TrustedProxies)), s.routes()
	group.Go(split.Serve)
	servers := []serverPair{
		{split.First, s.api.GRPC(listen.MaxStreams), s.httpServer(serving, routes, listen.MaxStreams)},
		{split.Crowded, s.api.GRPC(listen.CrowdedStreams), s.httpServer(serving, routes, listen.CrowdedStreams)},
	}
	for _, e := range servers {
		group.Go(func() error { return unlessClosed(e.grpcServer.Serve(e.GRPC)) })
		group.Go(func() error { return unlessClosed(e.httpServer.Serve(e.HTTP)) })
	}
	s.runBehind(ctx, serving, group)
	// The start needs much memory, which is returned to the system here. Hashing one
	// password takes 19 MiB.
	debug.FreeOSMemory()
	s.log.Info("serving", "address", s.Addr().String(), "base_url", s.cfg.BaseURL, "version", buildinfo.Version())
	notify("READY=1")
	group.Go(func() error {
		<-ctx.Done()
		notify("STOPPING=1")
		s.drain(context.WithoutCancel(ctx), split, servers)
		served()
		return nil
	})
	err = group.Wait()
	s.mixed.Stop()
	s.registry.Pulls.Flush(context.WithoutCancel(ctx))
	err = errors.Join(err, s.budgets.Flush(context.WithoutCancel(ctx)))
	s.log.Info("stopped")
	return errors.Join(err, s.Close())
}

// runBehind runs background work. Work that requests depend on runs until serving is
// done. Work that another replica can take over runs until ctx is done.
func (s *Server) runBehind(ctx, serving context.Context, group *errgroup.Group) {
	group.Go(func() error { return unlessCanceled(s.checker.Run(serving)) })
	group.Go(func() error { return s.checker.RunUses(serving) })
	group.Go(func() error { return s.issuer.Run(serving, s.log) })
	group.Go(func() error { return s.sts.Run(serving) })
	group.Go(func() error { return s.registry.Pulls.Run(serving) })
	group.Go(func() error { return s.budgets.Run(serving) })
	group.Go(func() error { return s.refusals.Run(serving) })
	group.Go(func() error { return unlessCanceled(s.advisory.Run(ctx)) })
	group.Go(func() error { return s.registry.Sync.Run(ctx) })
	group.Go(func() error { return s.registry.Replicate.Run(ctx) })
	group.Go(func() error { return s.collect(ctx) })
	group.Go(func() error { return s.scrub(ctx) })
	group.Go(func() error { return s.events.Run(ctx) })
	group.Go(func() error { return s.iam.Run(ctx, s.log) })
	group.Go(func() error { return s.scim.Run(ctx) })
	group.Go(func() error { return s.sendMail(ctx) })
	group.Go(func() error { return s.matcher.Run(ctx) })
	group.Go(func() error { return s.trends.Run(ctx) })
	group.Go(func() error { return s.reports.Run(ctx) })
	if s.cfg.InspectWorkers > 0 && inspect.Ready() {
		group.Go(func() error { return s.indexer.Run(ctx) })
	}
	if s.metricsListener != nil {
		metricsServer := s.metricsServer()
		group.Go(func() error { return unlessClosed(metricsServer.Serve(s.metricsListener)) })
		context.AfterFunc(serving, func() { metricsServer.Close() })
	}
}

// A serverPair has the two servers that accept connections.
type serverPair struct {
	listen.Listeners
	grpcServer *grpc.Server
	httpServer *http.Server
}

// drain stops the server without failing a request. During the delay of the settings
// it continues to serve, but health checks fail so that load balancers stop sending
// requests, and each HTTP answer asks the client to reconnect. Then it closes the
// port, and requests in flight have the grace period to end.
func (s *Server) drain(ctx context.Context, split *listen.Splitter, servers []serverPair) {
	s.draining.Store(true)
	s.api.ReportNotServing()
	s.log.Info("shutting down", "delay", s.cfg.ShutdownDelay.String(), "grace", s.cfg.ShutdownGrace.String())
	time.Sleep(s.cfg.ShutdownDelay) // a second signal during the delay kills the process
	s.log.Info("closing the port")
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ShutdownGrace)
	defer cancel()
	split.Close()
	s.api.EndWatches()
	var ended sync.WaitGroup
	for _, e := range servers {
		ended.Go(func() {
			if err := e.httpServer.Shutdown(ctx); err != nil {
				s.log.Warn("aborted requests that did not end within shutdown_grace", "err", err)
				e.httpServer.Close()
			}
		})
		ended.Go(func() {
			stop := context.AfterFunc(ctx, e.grpcServer.Stop)
			defer stop()
			e.grpcServer.GracefulStop()
		})
	}
	ended.Wait()
}

// Close releases the resources of a server that does not run.
func (s *Server) Close() error {
	if s.listener != nil {
		s.listener.Close()
	}
	if s.metricsListener != nil {
		s.metricsListener.Close()
	}
	var err error
	if s.store != nil {
		err = s.store.Close()
	}
	if s.endTraces != nil {
		s.endTraces()
	}
	return err
}

func (s *Server) httpServer(ctx context.Context, routes http.Handler, streams int) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // the listener has already decrypted TLS
	return &http.Server{
		Handler:           routes,
		Protocols:         &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streams},
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
}

func (s *Server) metricsServer() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metricsHandler())
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
}

func unlessClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func unlessCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// ballastSize is the number of bytes of garbage that may accumulate before a collection.
const ballastSize = 16 << 20

// ballast counts as live heap but occupies no memory, because it is never written.
var ballast = sync.OnceValue(func() []byte { return make([]byte, ballastSize) })

// AllocateBallast reduces garbage collection in a server. The collector runs when the
// heap has doubled. Our live heap is small, so under load the collector would run
// dozens of times a second and use a tenth of the processors.
func AllocateBallast() { ballast() }

// pollEvery returns the interval at which a device may poll; 0 is the default. It is
// short in dev mode, because a developer waits for the result.
func pollEvery(cfg Config) time.Duration {
	if cfg.Dev {
		return time.Second
	}
	return 0
}
