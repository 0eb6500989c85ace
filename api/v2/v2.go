// Package v2 has the methods of the API as it is now: version 2, which is v2beta1
// during its beta, and the services that are ours alone. A method reads its
// request into a resource, has a service do the work, and writes the result as a
// message. Most methods are regular and one line each; package wire has their
// shapes.
package v2

import (
	"context"

	"google.golang.org/grpc"

	"github.com/holdfast-dev/holdfast/advisory"
	"github.com/holdfast-dev/holdfast/api/wire"
	"github.com/holdfast-dev/holdfast/event"
	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	auditpb "github.com/holdfast-dev/holdfast/gen/audit/v1"
	deliveriespb "github.com/holdfast-dev/holdfast/gen/deliveries/v1"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v2beta1"
	federationpb "github.com/holdfast-dev/holdfast/gen/federation/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	oidcpb "github.com/holdfast-dev/holdfast/gen/oidc"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v2beta1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/iam"
	"github.com/holdfast-dev/holdfast/login"
	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/sts"
)

// Services do the work of the methods.
type Services struct {
	IAM      *iam.Service
	Registry *registry.Service
	Advisory *advisory.Service
	STS      *sts.Service
	Login    *login.Service
	Events   *event.Service
}

// Config is what the methods need to know beside the services.
type Config struct {
	Version string                                // of the program
	Dir     string                                // for documents while they are imported; "": the system's
	Events  event.Names                           // what types of events begin with
	Bearer  func(context.Context) (string, error) // returns the bearer token of a call
}

// Register adds the services to r.
func Register(r grpc.ServiceRegistrar, all Services, cfg Config) {
	iampb.RegisterGroupsServiceServer(r, groups{iam: all.IAM})
	iampb.RegisterIdentitiesServiceServer(r, identities{iam: all.IAM})
	iampb.RegisterRolesServiceServer(r, roles{iam: all.IAM})
	iampb.RegisterRoleBindingsServiceServer(r, roleBindings{iam: all.IAM})
	iampb.RegisterIdentityProvidersServiceServer(r, identityProviders{iam: all.IAM})
	iampb.RegisterAccountAssociationsServiceServer(r, accountAssociations{iam: all.IAM, sts: all.STS})
	iampb.RegisterGroupInvitesServiceServer(r, groupInvites{iam: all.IAM})
	iampb.RegisterExternalGroupRoleMappingsServiceServer(r, externalGroupRoleMappings{iam: all.IAM})
	registrypb.RegisterReposServiceServer(r, repos{registry: all.Registry})
	registrypb.RegisterTagsServiceServer(r, tags{registry: all.Registry})
	registrypb.RegisterImagesServiceServer(r, images{registry: all.Registry})
	ocipb.RegisterOCIServiceServer(r, oci{registry: all.Registry})
	eventspb.RegisterSubscriptionsServiceServer(r, subscriptions{events: all.Events})
	deliveriespb.RegisterDeliveriesServiceServer(r, deliveries{events: all.Events, names: cfg.Events})
	auditpb.RegisterAuditServiceServer(r, audit{events: all.Events, names: cfg.Events, encoder: &wire.Encoder{}})
	accesspb.RegisterAccessServiceServer(r, access{iam: all.IAM, version: cfg.Version})
	vulnpb.RegisterAdvisoriesServiceServer(r, advisories{service: all.Advisory})
	advisoriespb.RegisterAdvisoryReadingServiceServer(r, advisoryReading{service: all.Advisory})
	advisoriespb.RegisterAdvisoryWritingServiceServer(r, advisoryWriting{service: all.Advisory, dir: cfg.Dir})
	advisoriespb.RegisterAdvisoryFeedsServiceServer(r, advisoryFeeds{service: all.Advisory})
	pingpb.RegisterPingServiceServer(r, ping{})
	oidcpb.RegisterSecurityTokenServiceServer(r, securityTokens{sts: all.STS, bearer: cfg.Bearer})
	federationpb.RegisterFederationServiceServer(r, federation{sts: all.STS})
	signinpb.RegisterSignInServiceServer(r, signIn{login: all.Login})
}
