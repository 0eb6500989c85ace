package registryapi

import (
	"google.golang.org/protobuf/proto"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry"
)

// EventKinds are the kinds of resources that have events, by the prefix of the
// event types.
var EventKinds = map[string]wire.EventKind{
	"platform.registry.repo":        wire.NewEventKind(RepoOf, &registrypb.DeleteRepoRequest{}),
	"platform.registry.tag":         wire.NewEventKind(TagOf, &registrypb.DeleteTagRequest{}),
	"platform.registry.trash":       wire.NewEventKind(trashEntryOf, &ocipb.DeleteTrashEntryRequest{}),
	"platform.registry.image":       wire.NewEventKind(imageCopyOf, nil),
	"platform.registry.retention":   wire.NewEventKind(ownRetentionOf, &ocipb.DeleteRetentionRequest{}),
	"platform.registry.signer":      wire.NewEventKind(listedSignerOf, &ocipb.DeleteSignerRequest{}),
	"platform.registry.settings":    wire.NewEventKind(ownSettingsOf, nil),
	"platform.registry.upstream":    wire.NewEventKind(upstreamOf, &ocipb.DeleteUpstreamRequest{}),
	"platform.registry.replication": wire.NewEventKind(eventReplicationOf, &ocipb.DeleteReplicationRequest{}),
	"platform.registry.deployment":  wire.NewEventKind(DeploymentOf, nil),
	"platform.registry.access":      wire.NewEventKind(refusedAccessOf, nil),
}

// EventBodies return the bodies of events whose body is not the resource itself.
var EventBodies = map[resource.EventType]wire.EventBody{
	resource.RetentionApplied: func(e resource.Event) (proto.Message, error) {
		r, err := wire.DecodeEvent[registry.RetentionRun](e.After)
		return appliedOf(r), err
	},
}

// DeploymentOf converts a deployment to a message. Only version 1 has deployments.
func DeploymentOf(d registry.Deployment) *registryv1pb.Deployment {
	return &registryv1pb.Deployment{Id: string(d.UID),
		Charts: wire.Convert(d.Charts, func(c registry.HelmChart) *registryv1pb.HelmChart {
			return &registryv1pb.HelmChart{Source: c.Source, Repo: c.Repo, Chart: c.Chart}
		})}
}

func ownSettingsOf(s registry.Settings) *ocipb.Settings { return settingsOf(s.UID)(s) }

func refusedAccessOf(a resource.Activity) *ocipb.RefusedAccess {
	return &ocipb.RefusedAccess{
		IdentityUid: string(a.Identity), Reason: a.Reason, Capability: a.Capability, Agent: a.Agent, Address: a.Address,
		Count: a.Count, FirstTime: wire.Time(a.First), LastTime: wire.Time(a.Last),
	}
}
