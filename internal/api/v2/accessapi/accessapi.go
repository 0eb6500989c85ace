// Package accessapi has the methods about access: groups, identities, roles,
// bindings, identity providers, sign-in, tokens and budgets. It converts between
// messages and resources, and calls the services.
package accessapi

import (
	"context"

	"google.golang.org/grpc"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/access/budget"
	"github.com/holdfast-dev/holdfast/internal/access/iam"
	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/ops/search"
	"github.com/holdfast-dev/holdfast/internal/signin/accounts"
	"github.com/holdfast-dev/holdfast/internal/signin/login"
	"github.com/holdfast-dev/holdfast/internal/signin/scim"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
)

// Services are the services that the methods call.
type Services struct {
	IAM        *iam.Service
	Simulation *simulation.Service
	Budgets    *budget.Service
	STS        *sts.Service
	Login      *login.Service
	Accounts   *accounts.Service
	Search     *search.Service

	Directories *scim.Service
}

// Config has the parameters of the methods.
type Config struct {
	Version string                                // version of the program
	Bearer  func(context.Context) (string, error) // returns the bearer token of a call
}

// A server implements the gRPC services.
type server struct {
	iampb.UnsafeGroupsServiceServer
	iampb.UnsafeIdentitiesServiceServer
	iampb.UnsafeRolesServiceServer
	iampb.UnsafeRoleBindingsServiceServer
	iampb.UnsafeIdentityProvidersServiceServer
	iampb.UnsafeAccountAssociationsServiceServer
	iampb.UnsafeGroupInvitesServiceServer
	iampb.UnsafeExternalGroupRoleMappingsServiceServer
	accesspb.UnsafeAccessServiceServer
	budgetspb.UnsafeBudgetsServiceServer
	accesspb.UnsafeAccessRequestsServiceServer
	accesspb.UnsafeAccessHistoryServiceServer
	accesspb.UnsafeSimulationServiceServer
	accesspb.UnsafeAccessUseServiceServer
	accesspb.UnsafeDirectoriesServiceServer
	oidcpb.UnsafeSecurityTokenServiceServer
	federationpb.UnsafeFederationServiceServer
	signinpb.UnsafeSignInServiceServer

	Services
	cfg Config
}

// Register adds the gRPC services to r.
func Register(r grpc.ServiceRegistrar, services Services, cfg Config) {
	s := &server{Services: services, cfg: cfg}
	iampb.RegisterGroupsServiceServer(r, s)
	iampb.RegisterIdentitiesServiceServer(r, s)
	iampb.RegisterRolesServiceServer(r, s)
	iampb.RegisterRoleBindingsServiceServer(r, s)
	iampb.RegisterIdentityProvidersServiceServer(r, s)
	iampb.RegisterAccountAssociationsServiceServer(r, s)
	iampb.RegisterGroupInvitesServiceServer(r, s)
	iampb.RegisterExternalGroupRoleMappingsServiceServer(r, s)
	accesspb.RegisterAccessServiceServer(r, s)
	budgetspb.RegisterBudgetsServiceServer(r, s)
	accesspb.RegisterAccessRequestsServiceServer(r, s)
	accesspb.RegisterAccessHistoryServiceServer(r, s)
	accesspb.RegisterSimulationServiceServer(r, s)
	accesspb.RegisterAccessUseServiceServer(r, s)
	accesspb.RegisterDirectoriesServiceServer(r, s)
	oidcpb.RegisterSecurityTokenServiceServer(r, s)
	federationpb.RegisterFederationServiceServer(r, s)
	signinpb.RegisterSignInServiceServer(r, s)
}
