// Package api serves the API over gRPC and as JSON over HTTP. It converts requests
// to calls of the services, and their results and faults to answers.
//
// Both protocols run calls through one chain (chain.go) to one set of methods
// (packages v2 and v1). The JSON side (gateway.go) reads its routes from the http
// options of the API's definition, so a new method needs no route of its own.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/keepalive"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	v1 "github.com/holdfast-dev/holdfast/internal/api/v1"
	v2 "github.com/holdfast-dev/holdfast/internal/api/v2"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
)

// Config has the settings of the API. The zero value is usable. Its tokens have no
// audience.
type Config struct {
	Audience string                // base URL; tokens must have it as their audience
	Domain   string                // domain in ErrorInfo: "iam." followed by the API's host
	Log      *slog.Logger          // nil: slog's default
	Metrics  prometheus.Registerer // nil: no metrics are registered
	MaxBody  int64                 // largest request body, in bytes; 0: 4 MiB, which is the minimum for gRPC
	Counters metric.Metrics        // counts denied calls
	Version  string                // version of the program
	// Dir is the folder that stores documents during their import. "" is the system's
	// temporary folder.
	Dir    string
	Events event.Names // prefixes of event types
	// Proxies are trusted over gRPC. HTTP requests already have the client's address.
	Proxies Proxies

	// Admit returns an error if the caller makes too many requests; nil admits all.
	Admit func(context.Context) error

	// Tenant returns the key under which the calls of a caller are limited. nil: the organization of its identity.
	Tenant func(context.Context, authz.Caller) resource.Tenant
}

const defaultMaxBody = 4 << 20

// An API serves the services over both protocols.
type API struct {
	cfg      Config
	chain    *chain
	local    *local
	advisory *advisory.Service
	health   []*health.Server // health of each gRPC server
	draining context.Context
	drain    context.CancelFunc
}

// Services are the services that the methods of the API call.
type Services = v2.Services

// New returns an API over the services. It accepts the tokens that issuer has signed,
// unless checker reports that they are revoked.
func New(services Services, issuer *token.Issuer, checker *authz.Checker, cfg Config) *API {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = defaultMaxBody
	}
	c := newChain(cfg, func(ctx context.Context, o origin) (authz.Caller, error) {
		return issuer.Authenticate(ctx, o.token, cfg.Audience, checker)
	})
	a := &API{cfg: cfg, chain: c, local: newLocal(c.unary, c.stream), advisory: services.Advisory}
	a.draining, a.drain = context.WithCancel(context.Background())
	v2.Register(a.local, services,
		v2.Config{Version: cfg.Version, Dir: cfg.Dir, Events: cfg.Events, Bearer: bearerOf, Ending: a.draining})
	v1.Register(a.local, services, bearerOf, issuer.Address())
	return a
}

// ReportNotServing makes health checks over gRPC report that the server is not
// serving, to clients that check and to clients that watch.
func (a *API) ReportNotServing() {
	for _, h := range a.health {
		h.Shutdown()
	}
}

// EndWatches ends the calls that watch. Otherwise they would last until the server stops.
func (a *API) EndWatches() { a.drain() }

// HTTP returns the handler of the JSON API, its downloads and /openapi.json. The
// answer to any other path is a typed error.
func (a *API) HTTP() http.Handler {
	g := newGateway(a.cfg, a.local, a.chain)
	g.download("/advisories/v1/export", a.exportOverHTTP)
	g.download("/advisories/v1/secdb/{group=**}", a.secdbOverHTTP)
	return g
}

// Limits of gRPC connections. Clients of this API accept answers of up to 100 MB.
// Requests have the same limit as in JSON.
const (
	maxAnswer         = 100 << 20
	maxHeader         = 64 << 10
	connectionTimeout = 20 * time.Second
	minKeepalive      = 10 * time.Second

	// The window of a stream is the number of bytes that a client may send before
	// its call is admitted. It is static, because grpc-go would otherwise enlarge
	// it with the speed of the connection, and anonymous callers have fast
	// connections, too. It does not slow down a message that is being read,
	// because grpc-go enlarges the window for that message. The window of the
	// connection is renewed as data arrives.
	streamWindow     = 64 << 10
	connectionWindow = 1 << 20

	// Pings detect clients that have disconnected. Connections without calls are
	// closed.
	pingEvery      = 2 * time.Minute
	pingTimeout    = 20 * time.Second
	idleConnection = 10 * time.Minute

	// Calls run on a pool of streamWorkers goroutines, because their stacks have
	// already grown to the depth that SQLite needs. Further concurrent calls get
	// new goroutines.
	streamWorkers = 32

	// Every connection has a buffer of readBuffer bytes. It is half as large as
	// the default of grpc-go, because anonymous callers have connections, too.
	readBuffer = 16 << 10
)

// GRPC returns a new server of every service under all its names, with reflection and
// health. A connection may have up to `calls` calls in flight. GRPC must not be called
// after ReportNotServing or concurrently with it.
func (a *API) GRPC(calls int) *grpc.Server {
	s := grpc.NewServer(
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.UnaryInterceptor(a.chain.unary),
		grpc.StreamInterceptor(a.chain.stream),
		grpc.UnknownServiceHandler(a.chain.unknown),
		grpc.MaxRecvMsgSize(int(max(a.cfg.MaxBody, defaultMaxBody))), // messages of imports are large
		grpc.MaxSendMsgSize(maxAnswer),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxConcurrentStreams(uint32(calls)),
		grpc.ConnectionTimeout(connectionTimeout),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.InTapHandle(a.chain.tap),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.ReadBufferSize(readBuffer),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: pingEvery, Timeout: pingTimeout, MaxConnectionIdle: idleConnection,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minKeepalive, PermitWithoutStream: true}),
	)
	for _, svc := range a.local.services {
		registerAll(s, a.chain.decodeInside(svc.desc), svc.impl)
	}
	a.health = append(a.health, a.chain.registerHealth(a.draining, s))
	registerReflection(s)
	return s
}
