// Package v2 has the methods of the API as it is now: version 2, which is v2beta1
// during its beta, and the services that are ours alone. A method reads its
// request into a resource, has a service do the work, and writes the result as a
// message. Most methods are regular and one line each; package wire has their
// shapes.
package v2

import (
	"context"

	"google.golang.org/grpc"

	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	operatorpb "github.com/holdfast-dev/holdfast/gen/operator/v1"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/access/budget"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/api/v2/accessapi"
	"github.com/holdfast-dev/holdfast/internal/api/v2/registryapi"
	"github.com/holdfast-dev/holdfast/internal/api/v2/vulnapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/ops/search"
	"github.com/holdfast-dev/holdfast/internal/ops/status"
	"github.com/holdfast-dev/holdfast/internal/registry/protocol"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// Services do the work of the methods.
type Services struct {
	IAM        *iam.Service
	Simulation *simulation.Service
	Budgets    *budget.Service
	Registry   *protocol.Service
	Advisory   *advisory.Service
	STS        *sts.Service
	Login      *login.Service
	Accounts   *accounts.Service
	Events     *event.Service
	Findings   *finding.Service
	Blast      *finding.BlastService
	Search     *search.Service
	Operator   *status.Service
}

// Config is what the methods need to know beside the services.
type Config struct {
	Version string                                // of the program
	Dir     string                                // for documents while they are imported; "": the system's
	Events  event.Names                           // what types of events begin with
	Bearer  func(context.Context) (string, error) // returns the bearer token of a call
	Ending  context.Context                       // ends before the server does, and so do calls that watch
}

// A server implements all the services.
type server struct {
	operatorpb.UnsafeOperatorServiceServer
	eventspb.UnsafeSubscriptionsServiceServer
	deliveriespb.UnsafeDeliveriesServiceServer
	auditpb.UnsafeAuditServiceServer
	pingpb.UnsafePingServiceServer

	events   *event.Service
	operator *status.Service
	cfg      Config
	encoder  *wire.Encoder
}

// Register adds the services to r.
func Register(r grpc.ServiceRegistrar, all Services, cfg Config) {
	accessapi.Register(r, accessapi.Services{
		IAM: all.IAM, Simulation: all.Simulation, Budgets: all.Budgets, STS: all.STS, Login: all.Login,
		Accounts: all.Accounts, Search: all.Search,
	}, accessapi.Config{Version: cfg.Version, Bearer: cfg.Bearer})
	registryapi.Register(r, registryapi.Services{Registry: all.Registry})
	vulnapi.Register(r, vulnapi.Services{Advisory: all.Advisory, Findings: all.Findings, Blast: all.Blast}, cfg.Dir)
	s := &server{events: all.Events, operator: all.Operator, cfg: cfg, encoder: &wire.Encoder{}}
	eventspb.RegisterSubscriptionsServiceServer(r, s)
	deliveriespb.RegisterDeliveriesServiceServer(r, s)
	auditpb.RegisterAuditServiceServer(r, s)
	operatorpb.RegisterOperatorServiceServer(r, s)
	pingpb.RegisterPingServiceServer(r, s)
}

func (*server) Ping(context.Context, *pingpb.PingRequest) (*pingpb.PingResponse, error) {
	return &pingpb.PingResponse{Response: "pong"}, nil
}
