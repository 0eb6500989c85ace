// Package v1 serves version 1 of the API over the same services. In version 1 a UID
// is called id, lists have no pages and are called items, and an update replaces all
// fields that clients may set. The package has no filters, orders or rules: where
// possible, it translates its messages to the messages of version 2 and calls the
// services.
package v1

import (
	"context"

	"google.golang.org/grpc"

	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	eventspb "github.com/holdfast-dev/holdfast/gen/events/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	pingpb "github.com/holdfast-dev/holdfast/gen/ping/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v1"
	v2 "github.com/holdfast-dev/holdfast/internal/api/v2"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Register adds the services to r. bearer returns the token of a call. issuer is the
// address of the issuer in our tokens.
func Register(
	r grpc.ServiceRegistrar, services v2.Services, bearer func(context.Context) (string, error), issuer string,
) {
	iampb.RegisterGroupsServer(r, groups{iam: services.IAM})
	iampb.RegisterIdentitiesServer(r, identities{iam: services.IAM})
	iampb.RegisterRolesServer(r, roles{iam: services.IAM})
	iampb.RegisterRoleBindingsServer(r, roleBindings{iam: services.IAM})
	iampb.RegisterIdentityProvidersServer(r, identityProviders{iam: services.IAM, directories: services.Directories})
	iampb.RegisterGroupAccountAssociationsServer(r, accountAssociations{iam: services.IAM, sts: services.STS})
	iampb.RegisterGroupInvitesServer(r, groupInvites{iam: services.IAM})
	iampb.RegisterExternalGroupRoleMappingsServer(r, externalGroupRoleMappings{iam: services.IAM})
	registrypb.RegisterRegistryServer(r, registries{registry: services.Registry, findings: services.Findings})
	registrypb.RegisterVulnerabilitiesServer(r, vulnerabilities{registry: services.Registry, findings: services.Findings})
	vulnpb.RegisterAdvisoriesServer(r, advisories{service: services.Advisory})
	eventspb.RegisterSubscriptionsServer(r, subscriptions{events: services.Events})
	eventspb.RegisterIdentitiesServer(r, eventIdentities{iam: services.IAM})
	pingpb.RegisterPingServiceServer(r, ping{})
	authpb.RegisterAuthServer(r, auth{
		login: services.Login, people: services.Accounts, iam: services.IAM, runs: services.Operator, bearer: bearer,
		issuer: issuer,
	})
}

// maxItems is the largest number of items in a list, because lists have no pages.
const maxItems = 10_000

// everything returns all resources that match the filter, as messages. It returns
// fault.ResourceExhausted if more than maxItems match.
func everything[F, T, M any](
	ctx context.Context, filter F, list func(context.Context, F, page.Params) (page.Page[T], error), write func(T) M,
) ([]M, error) {
	var items []M
	p := page.Params{Size: page.MaxSize}
	for {
		got, err := list(ctx, filter, p)
		if err != nil {
			return nil, err
		}
		items = append(items, wire.Convert(got.Items, write)...)
		switch {
		case got.Next == "":
			return items, nil
		case len(items) >= maxItems:
			return nil, fault.New(fault.ResourceExhausted,
				"Resource exhausted: version 1 lists at most %d items, and %d match; "+
					"narrow the filter, or use v2beta1, which has pages", maxItems, got.Total)
		}
		p.Token = got.Next
	}
}

// pageParams returns the page parameters of the few requests of version 1 that have
// pages.
func pageParams(r interface {
	GetPageSize() int64
	GetPageToken() string
}, order string) page.Params {
	size := min(max(r.GetPageSize(), -1), page.MaxSize) // a negative size stays negative, so that services refuse it
	return page.Params{Size: int32(size), Token: r.GetPageToken(), OrderBy: order}
}

// place returns the filter by UIDs of a request, which all versions have, combined
// with an ID.
func place(u *commonpb.UIDPFilter, id string) resource.UIDFilter {
	f := wire.UIDFilter(u)
	if id != "" {
		f.IDs = append(f.IDs, resource.UID(id))
	}
	return f
}
