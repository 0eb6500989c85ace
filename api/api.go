// Package api speaks protobuf: it turns calls, over gRPC or as JSON over HTTP,
// into calls of the services that decide, and their answers and faults back.
//
// Both protocols take one path (chain.go) to one set of methods (group.go and
// its neighbours). The JSON side (gateway.go) reads its routes from the http
// options of the API's definition, so there is nothing to write for a new method
// but the method.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"

	"github.com/holdfast-dev/holdfast/advisory"
	"github.com/holdfast-dev/holdfast/authz"
	"github.com/holdfast-dev/holdfast/event"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventsv1pb "github.com/holdfast-dev/holdfast/gen/events/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
	iamv1pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
	pingv1pb "github.com/holdfast-dev/holdfast/gen/ping/v1"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	vulnv1pb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/login"
	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/sts"
	"github.com/holdfast-dev/holdfast/token"
)

// Config is what the API can be told. The zero value runs, with tokens of no
// audience.
type Config struct {
	Audience string                // the base URL, which tokens must be for
	Domain   string                // of ErrorInfo: "iam." and the API's host
	Log      *slog.Logger          // nil: slog's default
	Metrics  prometheus.Registerer // nil: none
	MaxBody  int64                 // of a request, in bytes; 0: 4 MiB, which gRPC always takes
	Version  string                // of the program, for the metrics and who asks
	Dir      string                // for documents while they are imported; "": the system's
	Events   event.Names           // what types of events begin with
	Proxies  Proxies               // over gRPC; who serves HTTP has seen to it
}

const defaultMaxBody = 4 << 20

// An API serves the services over both protocols.
type API struct {
	cfg      Config
	chain    *chain
	local    *local
	advisory *advisory.Service
	draining context.Context
	drain    context.CancelFunc
}

// Services are what the API speaks for.
type Services struct {
	IAM      *iam.Service
	Registry *registry.Service
	Advisory *advisory.Service
	STS      *sts.Service
	Login    *login.Service
	Events   *event.Service
}

// New returns an API over the services. Tokens are issuer's; checker knows which
// of them are void.
func New(all Services, issuer *token.Issuer, checker *authz.Checker, cfg Config) *API {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = defaultMaxBody
	}
	c := newChain(cfg, authenticator{issuer, checker, cfg.Audience}.authenticate)
	a := &API{cfg: cfg, chain: c, local: newLocal(c.unary), advisory: all.Advisory}
	a.draining, a.drain = context.WithCancel(context.Background())
	iampb.RegisterGroupsServiceServer(a.local, groups{iam: all.IAM})
	iampb.RegisterIdentitiesServiceServer(a.local, identities{iam: all.IAM})
	iampb.RegisterRolesServiceServer(a.local, roles{iam: all.IAM})
	iampb.RegisterRoleBindingsServiceServer(a.local, roleBindings{iam: all.IAM})
	iampb.RegisterIdentityProvidersServiceServer(a.local, identityProviders{iam: all.IAM})
	iampb.RegisterAccountAssociationsServiceServer(a.local, accountAssociations{iam: all.IAM, sts: all.STS})
	iampb.RegisterGroupInvitesServiceServer(a.local, groupInvites{iam: all.IAM})
	iampb.RegisterExternalGroupRoleMappingsServiceServer(a.local, externalGroupRoleMappings{iam: all.IAM})
	registrypb.RegisterReposServiceServer(a.local, repos{registry: all.Registry})
	registrypb.RegisterTagsServiceServer(a.local, tags{registry: all.Registry})
	registrypb.RegisterImagesServiceServer(a.local, images{registry: all.Registry})
	ocipb.RegisterOCIServiceServer(a.local, oci{registry: all.Registry})
	iamv1pb.RegisterGroupsServer(a.local, groupsV1{iam: all.IAM})
	iamv1pb.RegisterIdentitiesServer(a.local, identitiesV1{iam: all.IAM})
	iamv1pb.RegisterRolesServer(a.local, rolesV1{iam: all.IAM})
	iamv1pb.RegisterRoleBindingsServer(a.local, roleBindingsV1{iam: all.IAM})
	iamv1pb.RegisterIdentityProvidersServer(a.local, identityProvidersV1{iam: all.IAM})
	iamv1pb.RegisterGroupAccountAssociationsServer(a.local, accountAssociationsV1{iam: all.IAM, sts: all.STS})
	iamv1pb.RegisterGroupInvitesServer(a.local, groupInvitesV1{iam: all.IAM})
	iamv1pb.RegisterExternalGroupRoleMappingsServer(a.local, externalGroupRoleMappingsV1{iam: all.IAM})
	registryv1pb.RegisterRegistryServer(a.local, registryV1{registry: all.Registry})
	registryv1pb.RegisterVulnerabilitiesServer(a.local, vulnerabilitiesV1{registry: all.Registry})
	vulnv1pb.RegisterAdvisoriesServer(a.local, advisoriesV1{service: all.Advisory})
	eventspb.RegisterSubscriptionsServiceServer(a.local, subscriptions{events: all.Events})
	eventsv1pb.RegisterSubscriptionsServer(a.local, subscriptionsV1{events: all.Events})
	eventsv1pb.RegisterIdentitiesServer(a.local, eventIdentitiesV1{iam: all.IAM})
	deliveriespb.RegisterDeliveriesServiceServer(a.local, deliveries{events: all.Events, names: cfg.Events})
	auditpb.RegisterAuditServiceServer(a.local, audit{events: all.Events, names: cfg.Events, encoder: &encoder{}})
	pingv1pb.RegisterPingServiceServer(a.local, pingV1{})
	accesspb.RegisterAccessServiceServer(a.local, access{iam: all.IAM, version: cfg.Version})
	vulnpb.RegisterAdvisoriesServiceServer(a.local, advisories{service: all.Advisory})
	advisoriespb.RegisterAdvisoryReadingServiceServer(a.local, advisoryReading{service: all.Advisory})
	advisoriespb.RegisterAdvisoryWritingServiceServer(a.local, advisoryWriting{service: all.Advisory, dir: cfg.Dir})
	advisoriespb.RegisterAdvisoryFeedsServiceServer(a.local, advisoryFeeds{service: all.Advisory})
	pingpb.RegisterPingServiceServer(a.local, ping{})
	oidcpb.RegisterSecurityTokenServiceServer(a.local, securityTokens{sts: all.STS})
	federationpb.RegisterFederationServiceServer(a.local, federation{sts: all.STS})
	authpb.RegisterAuthServer(a.local, auth{login: all.Login, iam: all.IAM, issuer: issuer.Address()})
	signinpb.RegisterSignInServiceServer(a.local, signIn{login: all.Login})
	return a
}

// Drain ends the calls that would go on as long as the server: those that watch
// its health.
func (a *API) Drain() { a.drain() }

// HTTP serves the JSON API: /iam/, /registry/, /vulnerabilities/, /events/ and /ping/, as
// v2beta1 and v2, what of these version 1 has, /access/, /advisories/,
// /audit/, /auth/, /deliveries/, /federation/, /oci/ and /signin/, as v1, /sts/ and /openapi.json. Anything else is
// answered with a typed error.
func (a *API) HTTP() http.Handler {
	g := newGateway(a.cfg, a.local, a.chain)
	g.download("/advisories/v1/export", a.exportOverHTTP)
	g.download("/advisories/v1/secdb/{group=**}", a.secdbOverHTTP)
	return g
}

// What a gRPC connection may ask of the server. Clients of this API are built
// for answers of up to 100 MB. Requests are as large as in JSON.
const (
	maxAnswer         = 100 << 20
	maxHeader         = 64 << 10
	connectionTimeout = 20 * time.Second
	minKeepalive      = 10 * time.Second

	// A stream's window is how much a client may send before its call is
	// looked at. It does not grow, as grpc-go would have it, with what the
	// connection can carry: strangers have fast connections, too. A message
	// that is being read is not held up, because it gets a window of its own.
	// The window of the connection is given back as soon as something comes.
	streamWindow     = 64 << 10
	connectionWindow = 1 << 20

	// A client that has gone without a word is found out by a ping. One that
	// has no calls is told to come again when it has some.
	pingEvery      = 2 * time.Minute
	pingTimeout    = 20 * time.Second
	idleConnection = 10 * time.Minute

	// Calls run on goroutines that are used again, because their stacks have
	// grown already: SQLite needs a deep one. More calls than this at once get
	// goroutines of their own.
	streamWorkers = 32

	// readBuffer is for each connection as long as it lasts: half of what
	// grpc-go takes, because strangers have connections.
	readBuffer = 16 << 10
)

// GRPC returns a new server of every service under all its names, with
// reflection and health. A connection may have so many calls at once.
func (a *API) GRPC(calls int) *grpc.Server {
	s := grpc.NewServer(
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.UnaryInterceptor(a.chain.unary),
		grpc.StreamInterceptor(a.chain.stream),
		grpc.UnknownServiceHandler(a.chain.unknown),
		grpc.MaxRecvMsgSize(int(max(a.cfg.MaxBody, defaultMaxBody))), // imports come in pieces of some size
		grpc.MaxSendMsgSize(maxAnswer),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxConcurrentStreams(uint32(calls)),
		grpc.ConnectionTimeout(connectionTimeout),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.InTapHandle(a.chain.tap),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.ReadBufferSize(readBuffer),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout, MaxConnectionIdle: idleConnection}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minKeepalive, PermitWithoutStream: true}),
	)
	for _, svc := range a.local.services {
		registerAll(s, a.chain.decodeInside(svc.desc), svc.impl)
	}
	a.chain.registerHealth(a.draining, s)
	registerReflection(s)
	return s
}
