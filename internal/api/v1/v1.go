// Package v1 is version 1 of the API: the same services in older words. It has ids
// for uids, lists without pages under the name items, and updates that replace
// all that clients may set. It has no filters, orders or rules of its own: it
// translates its messages to those of version 2 where it can, and calls the
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

// Register adds the services to r. bearer returns the token of a call; issuer is
// the address that our own tokens name.
func Register(r grpc.ServiceRegistrar, all v2.Services, bearer func(context.Context) (string, error), issuer string) {
	iampb.RegisterGroupsServer(r, groups{iam: all.IAM})
	iampb.RegisterIdentitiesServer(r, identities{iam: all.IAM})
	iampb.RegisterRolesServer(r, roles{iam: all.IAM})
	iampb.RegisterRoleBindingsServer(r, roleBindings{iam: all.IAM})
	iampb.RegisterIdentityProvidersServer(r, identityProviders{iam: all.IAM})
	iampb.RegisterGroupAccountAssociationsServer(r, accountAssociations{iam: all.IAM, sts: all.STS})
	iampb.RegisterGroupInvitesServer(r, groupInvites{iam: all.IAM})
	iampb.RegisterExternalGroupRoleMappingsServer(r, externalGroupRoleMappings{iam: all.IAM})
	registrypb.RegisterRegistryServer(r, registries{registry: all.Registry, findings: all.Findings})
	registrypb.RegisterVulnerabilitiesServer(r, vulnerabilities{registry: all.Registry, findings: all.Findings})
	vulnpb.RegisterAdvisoriesServer(r, advisories{service: all.Advisory})
	eventspb.RegisterSubscriptionsServer(r, subscriptions{events: all.Events})
	eventspb.RegisterIdentitiesServer(r, eventIdentities{iam: all.IAM})
	pingpb.RegisterPingServiceServer(r, ping{})
	authpb.RegisterAuthServer(r, auth{
		login: all.Login, people: all.Accounts, iam: all.IAM, runs: all.Operator, bearer: bearer, issuer: issuer,
	})
}

// maxItems is how much a list returns, because it has no pages.
const maxItems = 10_000

// everything returns all that passes the filter, as messages. It returns
// fault.ResourceExhausted if there is more than an answer should hold.
func everything[F, T, M any](
	ctx context.Context, filter F, list func(context.Context, F, page.Params) (page.Page[T], error), write func(T) M,
) ([]M, error) {
	var all []M
	p := page.Params{Size: page.MaxSize}
	for {
		got, err := list(ctx, filter, p)
		if err != nil {
			return nil, err
		}
		all = append(all, wire.Convert(got.Items, write)...)
		switch {
		case got.Next == "":
			return all, nil
		case len(all) >= maxItems:
			return nil, fault.New(fault.ResourceExhausted,
				"Resource exhausted: version 1 lists at most %d items, and %d match; narrow the filter, or use v2beta1, which has pages", maxItems, got.Total)
		}
		p.Token = got.Next
	}
}

// pageParams returns which page the few requests ask for that have pages.
func pageParams(r interface {
	GetPageSize() int64
	GetPageToken() string
}, order string) page.Params {
	size := min(max(r.GetPageSize(), -1), page.MaxSize) // services refuse a negative one
	return page.Params{Size: int32(size), Token: r.GetPageToken(), OrderBy: order}
}

// place returns where a filter looks: by the filter of places that all versions
// have, and by an id.
func place(u *commonpb.UIDPFilter, id string) resource.UIDFilter {
	f := wire.UIDFilter(u)
	if id != "" {
		f.IDs = append(f.IDs, resource.UID(id))
	}
	return f
}
