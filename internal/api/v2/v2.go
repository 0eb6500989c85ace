// Package v2 registers the methods of version 2 of the API, which is v2beta1 during
// its beta, and of the services that are not part of the public API. A method reads
// its request into a resource, calls a service, and writes the result as a message.
// Most methods are regular and have one line; package wire implements them.
package v2

import (
	"context"

	"google.golang.org/grpc"

	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	operatorpb "github.com/holdfast-dev/holdfast/gen/operator/v1"
	organizationpb "github.com/holdfast-dev/holdfast/gen/organization/v1"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/access/budget"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/api/v2/accessapi"
	"github.com/holdfast-dev/holdfast/internal/api/v2/registryapi"
	"github.com/holdfast-dev/holdfast/internal/api/v2/vulnapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/ops/organization"
	"github.com/holdfast-dev/holdfast/internal/ops/search"
	"github.com/holdfast-dev/holdfast/internal/ops/status"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/blast"
	"github.com/holdfast-dev/holdfast/internal/vuln/inventory"
	"github.com/holdfast-dev/holdfast/internal/vuln/policy"
	"github.com/holdfast-dev/holdfast/internal/vuln/query"
	"github.com/holdfast-dev/holdfast/internal/vuln/report"
	"github.com/holdfast-dev/holdfast/internal/vuln/trend"
)

// Services are the services that the methods call.
type Services struct {
	IAM        *iam.Service
	Simulation *simulation.Service
	Budgets    *budget.Service
	Registry   *metadata.Service
	Advisory   *advisory.Service
	STS        *sts.Service
	Login      *login.Service
	Accounts   *accounts.Service

	Directories *scim.Service

	Events    *event.Service
	Findings  *query.Service
	Policy    *policy.Service
	Images    *policy.ImageChecker
	Blast     *blast.Service
	Inventory *inventory.Service
	Trends    *trend.Service
	Reports   *report.Service
	Search    *search.Service
	Operator  *status.Service

	Organization *organization.Service
}

// Config has the parameters of the methods.
type Config struct {
	Version string // version of the program
	// Dir is the folder that stores documents during their import. "" is the system's
	// temporary folder.
	Dir    string
	Events event.Names                           // prefixes of event types
	Bearer func(context.Context) (string, error) // returns the bearer token of a call
	Ending context.Context                       // ends when the server starts to stop; calls that watch end with it
}

// A server implements the gRPC services about events and operators.
type server struct {
	operatorpb.UnsafeOperatorServiceServer
	eventspb.UnsafeSubscriptionsServiceServer
	deliveriespb.UnsafeDeliveriesServiceServer
	auditpb.UnsafeAuditServiceServer
	pingpb.UnsafePingServiceServer
	organizationpb.UnsafeOrganizationServiceServer

	events   *event.Service
	operator *status.Service
	cfg      Config

	organization *organization.Service
	budgets      *budget.Service
	requests     requests
	encoder      *wire.Encoder
}

// Register adds the gRPC services to r.
func Register(r grpc.ServiceRegistrar, services Services, cfg Config) {
	recorded := requests{}
	r = recorder{r, recorded}
	accessapi.Register(r, accessapi.Services{
		IAM: services.IAM, Simulation: services.Simulation, Budgets: services.Budgets, STS: services.STS,
		Login: services.Login, Accounts: services.Accounts, Search: services.Search,
		Directories: services.Directories,
	}, accessapi.Config{Version: cfg.Version, Bearer: cfg.Bearer})
	registryapi.Register(r, registryapi.Services{
		Registry: services.Registry, Inspect: vulnapi.Inspector(services.Findings),
	})
	vulnapi.Register(r, vulnapi.Services{
		Advisory: services.Advisory, Findings: services.Findings, Policy: services.Policy,
		Images: services.Images,
		Blast:  services.Blast, Inventory: services.Inventory, Trends: services.Trends,
		Reports: services.Reports,
	}, cfg.Dir)
	s := &server{events: services.Events, operator: services.Operator, cfg: cfg, encoder: &wire.Encoder{},
		organization: services.Organization, budgets: services.Budgets, requests: recorded}
	eventspb.RegisterSubscriptionsServiceServer(r, s)
	deliveriespb.RegisterDeliveriesServiceServer(r, s)
	auditpb.RegisterAuditServiceServer(r, s)
	operatorpb.RegisterOperatorServiceServer(r, s)
	pingpb.RegisterPingServiceServer(r, s)
	organizationpb.RegisterOrganizationServiceServer(r, s)
}

func (*server) Ping(context.Context, *pingpb.PingRequest) (*pingpb.PingResponse, error) {
	return &pingpb.PingResponse{Response: "pong"}, nil
}
