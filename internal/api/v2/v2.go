// Package v2 has the methods of the API as it is now: version 2, which is v2beta1
// during its beta, and the services that are ours alone. A method reads its
// request into a resource, has a service do the work, and writes the result as a
// message. Most methods are regular and one line each; package wire has their
// shapes.
package v2

import (
	"context"

	"google.golang.org/grpc"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
	operatorpb "github.com/holdfast-dev/holdfast/gen/operator/v1"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/access/budget"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/events/event"
	"github.com/holdfast-dev/holdfast/internal/ops/search"
	"github.com/holdfast-dev/holdfast/internal/ops/status"
	"github.com/holdfast-dev/holdfast/internal/registry/protocol"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
	"github.com/holdfast-dev/holdfast/internal/vuln/finding"
)

// Services do the work of the methods.
type Services struct {
	IAM      *iam.Service
	Budgets  *budget.Service
	Registry *protocol.Service
	Advisory *advisory.Service
	STS      *sts.Service
	Login    *login.Service
	Events   *event.Service
	Findings *finding.Service
	Blast    *finding.BlastService
	Search   *search.Service
	Operator *status.Service
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
	iampb.UnsafeGroupsServiceServer
	iampb.UnsafeIdentitiesServiceServer
	iampb.UnsafeRolesServiceServer
	iampb.UnsafeRoleBindingsServiceServer
	iampb.UnsafeIdentityProvidersServiceServer
	iampb.UnsafeAccountAssociationsServiceServer
	iampb.UnsafeGroupInvitesServiceServer
	iampb.UnsafeExternalGroupRoleMappingsServiceServer
	registrypb.UnsafeReposServiceServer
	registrypb.UnsafeTagsServiceServer
	registrypb.UnsafeImagesServiceServer
	ocipb.UnsafeOCIServiceServer
	ocipb.UnsafeTrashServiceServer
	ocipb.UnsafeRetentionServiceServer
	ocipb.UnsafeCopyServiceServer
	ocipb.UnsafeUpstreamsServiceServer
	ocipb.UnsafeSignersServiceServer
	ocipb.UnsafeSyncsServiceServer
	operatorpb.UnsafeOperatorServiceServer
	eventspb.UnsafeSubscriptionsServiceServer
	deliveriespb.UnsafeDeliveriesServiceServer
	auditpb.UnsafeAuditServiceServer
	accesspb.UnsafeAccessServiceServer
	budgetspb.UnsafeBudgetsServiceServer
	findingspb.UnsafeFindingsServiceServer
	findingspb.UnsafeGroupFindingsServiceServer
	findingspb.UnsafeExploitedServiceServer
	findingspb.UnsafeExceptionsServiceServer
	accesspb.UnsafeAccessRequestsServiceServer
	accesspb.UnsafeAccessHistoryServiceServer
	accesspb.UnsafeSimulationServiceServer
	accesspb.UnsafeAccessUseServiceServer
	findingspb.UnsafeRulesServiceServer
	findingspb.UnsafeVexServiceServer
	findingspb.UnsafeComparisonServiceServer
	findingspb.UnsafeInventoryServiceServer
	findingspb.UnsafeBlastServiceServer
	vulnpb.UnsafeAdvisoriesServiceServer
	advisoriespb.UnsafeAdvisoryReadingServiceServer
	advisoriespb.UnsafeAdvisoryWritingServiceServer
	advisoriespb.UnsafeAdvisoryFeedsServiceServer
	pingpb.UnsafePingServiceServer
	oidcpb.UnsafeSecurityTokenServiceServer
	federationpb.UnsafeFederationServiceServer
	signinpb.UnsafeSignInServiceServer

	Services
	cfg     Config
	encoder *wire.Encoder
}

// Register adds the services to r.
func Register(r grpc.ServiceRegistrar, all Services, cfg Config) {
	s := &server{Services: all, cfg: cfg, encoder: &wire.Encoder{}}
	iampb.RegisterGroupsServiceServer(r, s)
	iampb.RegisterIdentitiesServiceServer(r, s)
	iampb.RegisterRolesServiceServer(r, s)
	iampb.RegisterRoleBindingsServiceServer(r, s)
	iampb.RegisterIdentityProvidersServiceServer(r, s)
	iampb.RegisterAccountAssociationsServiceServer(r, s)
	iampb.RegisterGroupInvitesServiceServer(r, s)
	iampb.RegisterExternalGroupRoleMappingsServiceServer(r, s)
	registrypb.RegisterReposServiceServer(r, s)
	registrypb.RegisterTagsServiceServer(r, s)
	registrypb.RegisterImagesServiceServer(r, s)
	ocipb.RegisterOCIServiceServer(r, s)
	ocipb.RegisterTrashServiceServer(r, s)
	ocipb.RegisterRetentionServiceServer(r, s)
	ocipb.RegisterCopyServiceServer(r, s)
	ocipb.RegisterUpstreamsServiceServer(r, s)
	ocipb.RegisterSignersServiceServer(r, s)
	ocipb.RegisterSyncsServiceServer(r, s)
	eventspb.RegisterSubscriptionsServiceServer(r, s)
	deliveriespb.RegisterDeliveriesServiceServer(r, s)
	auditpb.RegisterAuditServiceServer(r, s)
	operatorpb.RegisterOperatorServiceServer(r, s)
	accesspb.RegisterAccessServiceServer(r, s)
	budgetspb.RegisterBudgetsServiceServer(r, s)
	findingspb.RegisterFindingsServiceServer(r, s)
	findingspb.RegisterGroupFindingsServiceServer(r, s)
	findingspb.RegisterExploitedServiceServer(r, s)
	findingspb.RegisterExceptionsServiceServer(r, s)
	accesspb.RegisterAccessRequestsServiceServer(r, s)
	accesspb.RegisterAccessHistoryServiceServer(r, s)
	accesspb.RegisterSimulationServiceServer(r, s)
	accesspb.RegisterAccessUseServiceServer(r, s)
	findingspb.RegisterRulesServiceServer(r, s)
	findingspb.RegisterVexServiceServer(r, s)
	findingspb.RegisterComparisonServiceServer(r, s)
	findingspb.RegisterInventoryServiceServer(r, s)
	findingspb.RegisterBlastServiceServer(r, s)
	vulnpb.RegisterAdvisoriesServiceServer(r, s)
	advisoriespb.RegisterAdvisoryReadingServiceServer(r, s)
	advisoriespb.RegisterAdvisoryWritingServiceServer(r, s)
	advisoriespb.RegisterAdvisoryFeedsServiceServer(r, s)
	pingpb.RegisterPingServiceServer(r, s)
	oidcpb.RegisterSecurityTokenServiceServer(r, s)
	federationpb.RegisterFederationServiceServer(r, s)
	signinpb.RegisterSignInServiceServer(r, s)
}

func (*server) Ping(context.Context, *pingpb.PingRequest) (*pingpb.PingResponse, error) {
	return &pingpb.PingResponse{Response: "pong"}, nil
}
